"""The `triton` prefill solution: plain Triton on every GPU that Triton supports, and in its interpreter on a CPU."""

from __future__ import annotations

from collections.abc import Mapping

from mla_core import triton_support
from mla_core.dispatch import YES, Solution, Verdict, no
from mla_core.target import Target, interpreting
from mla_prefill.portable.config import TritonPrefillConfig
from mla_prefill.portable.schedule import choose
from mla_prefill.problem import PrefillProblem


def supports(problem: PrefillProblem, target: Target) -> Verdict:
    """Everything that passes validation, on any GPU, and on a CPU under TRITON_INTERPRET=1."""
    missing = triton_support.missing()
    if missing:
        return no(missing)
    if not target.is_gpu:
        if not interpreting():
            return no("runs on CPU tensors only in Triton's interpreter (TRITON_INTERPRET=1)")
        missing = triton_support.interpreter_missing()
        if missing:
            return no(missing)
    return YES


def build(problem: PrefillProblem, target: Target, config: TritonPrefillConfig) -> object:
    """The Program; the first call imports Triton."""
    from mla_prefill.portable.program import TritonPrefillProgram

    return TritonPrefillProgram(problem, target, config)


def samples(target: Target) -> Mapping[str, PrefillProblem]:
    """A Problem for each mask, and for 64-bit offsets."""
    return {
        "causal": PrefillProblem.make(batch=4, seqlen=4096, heads=16, return_lse=True),
        "full, grouped": PrefillProblem.make(batch=1, seqlen=1024, heads=128, kv_heads=8, is_causal=False),
        "causal, beyond 2 GiB": PrefillProblem.make(batch=8, seqlen=16384, heads=128, dtype="fp16"),
    }


SOLUTION = Solution(
    operation=PrefillProblem.operation,
    name="triton",
    priority=10,
    config_type=TritonPrefillConfig,
    supports=supports,
    choose=choose,
    build=build,  # type: ignore[arg-type]
    samples=samples,
)
