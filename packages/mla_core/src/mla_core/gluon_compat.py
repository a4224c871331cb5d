"""What differs in the Gluon API between Triton 3.6 and 3.9, under one name each. Imports Triton."""

from __future__ import annotations

import triton

try:
    from triton import aggregate  # 3.9
except ImportError:
    from triton.language.core import _aggregate as aggregate  # 3.6

from triton.experimental.gluon import constexpr_function, jit
from triton.experimental.gluon import language as gl

if hasattr(gl, "barrier"):
    wait_all_waves = gl.barrier  # 3.9
else:
    wait_all_waves = gl.thread_barrier  # 3.6

__all__ = ["aggregate", "constexpr_function", "jit", "triton", "wait_all_waves"]
