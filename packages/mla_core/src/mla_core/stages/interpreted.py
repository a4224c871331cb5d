"""Operations that plain Triton kernels spell differently where `interpreted`: where Triton's interpreter runs them.

The interpreter computes with NumPy, which has no bf16: it keeps bf16 as bit patterns in 16-bit integers. It multiplies
those patterns in `tl.dot`, and cuts fp32 off when it converts to bf16, instead of rounding.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def multiply(a, b, acc, interpreted: tl.constexpr):
    """acc + a @ b in fp32. a `[M, K]` is rounded to the dtype of b `[K, N]`, as matrix instructions take it.

    Where `interpreted`, the products are those of the operands' fp32 values: the same numbers, a not rounded.
    """
    if interpreted:
        acc += tl.dot(a.to(tl.float32), b.to(tl.float32))
    else:
        acc = tl.dot(a.to(b.dtype), b, acc)
    return acc


@triton.jit
def round_to(x, dtype: tl.constexpr, interpreted: tl.constexpr):
    """fp32 x in `dtype`, rounded to nearest even."""
    if interpreted and dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        nearest = tl.where(x == x, bits + 0x7FFF + ((bits >> 16) & 1), bits)
        return (nearest >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        return x.to(dtype)
