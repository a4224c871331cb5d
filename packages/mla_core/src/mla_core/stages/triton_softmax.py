"""The online softmax of the plain Triton kernels of both operations.

It (Milakov and Gimelshein, arXiv:1805.02867) keeps, for each row, the largest logit seen so far and
the sum of exponentials relative to it. Logits here are raw products q . k; `scale_log2` = |softmax_scale| * log2(e)
turns them into exponents of 2, so that one fused multiply-add and one exp2 make a probability. A negative
softmax_scale negates the logits instead, so that the largest logit is always the one with the largest exponent;
`split_scale` gives the kernels both.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

LN_2 = tl.constexpr(math.log(2.0))

SMALLEST_SCALE = 2.0**-126
"""Smallest normal fp32: stands for a scale of 0, whose product with a masked logit (-inf) would be NaN."""


def split_scale(softmax_scale: float) -> tuple[float, bool]:
    """(scale_log2, negate) of a softmax_scale of either sign, as `compute_softmax` takes them."""
    return max(abs(softmax_scale) * math.log2(math.e), SMALLEST_SCALE), softmax_scale < 0


@triton.jit
def compute_softmax(
    logits, row_max, row_sum, scale_log2, visible, masked: tl.constexpr, negate: tl.constexpr
):  # fmt: skip
    """One block of keys. logits `[M, N]` raw; row_max (raw), row_sum `[M]`; visible `[M, N]`, read where `masked`.

    Returns (p `[M, N]`, new row_max, new row_sum, decay `[M]` of what was accumulated before). A row that has seen no
    key yet has row_max -inf and row_sum 0.
    """
    if negate:
        logits = -logits
    if masked:
        logits = tl.where(visible, logits, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(logits, axis=1))
    reference = new_max * scale_log2
    if masked:
        reference = tl.where(new_max == float("-inf"), 0.0, reference)
    p = tl.exp2(logits * scale_log2 - reference[:, None])
    decay = tl.exp2(row_max * scale_log2 - reference)
    return p, new_max, row_sum * decay + tl.sum(p, axis=1), decay


@triton.jit
def finish_softmax(acc, row_max, row_sum, scale_log2):
    """(out `[M, D]`, lse `[M]` natural) of accumulated rows; out 0 and lse -inf for a row that saw no key."""
    empty = row_sum == 0
    divisor = tl.where(empty, 1.0, row_sum)
    out = tl.where(empty[:, None], 0.0, acc / divisor[:, None])
    lse = tl.where(empty, float("-inf"), (row_max * scale_log2 + tl.log2(divisor)) * LN_2)
    return out, lse
