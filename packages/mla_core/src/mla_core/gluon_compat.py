"""What differs in the Gluon API between Triton 3.6 and 3.9, under one name each. Imports Triton."""

from __future__ import annotations

import triton

try:
    from triton import aggregate  # 3.9
except ImportError:
    from triton.language.core import _aggregate as aggregate  # 3.6

from triton.experimental.gluon import constexpr_function, jit

__all__ = ["aggregate", "constexpr_function", "jit", "triton"]
