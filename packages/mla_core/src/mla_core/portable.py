"""Where plain Triton kernels run: on every GPU that Triton supports, and in its interpreter on a CPU."""

from __future__ import annotations

from mla_core import triton_support
from mla_core.dispatch import YES, Verdict, no
from mla_core.target import Target, interpreting


def runs_plain_triton(target: Target) -> Verdict:
    """Yes on any GPU with a supported Triton, and on a CPU under TRITON_INTERPRET=1."""
    missing = triton_support.missing()
    if missing:
        return no(missing)
    if target.is_gpu:
        return YES
    if not interpreting():
        return no("runs on CPU tensors only in Triton's interpreter (TRITON_INTERPRET=1)")
    missing = triton_support.interpreter_missing()
    return no(missing) if missing else YES
