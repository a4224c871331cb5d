"""Stages of the online softmax for Gluon kernels, generic over layout and rank.

The recurrence is that of Milakov and Gimelshein (arXiv:1805.02867) in base 2. `scores` are logits that are already
multiplied by `softmax_scale * log2(e)`, of either sign; the keys are their last axis. A row's state is

    row_max   largest score so far, ROW_MAX_START before the first visible key
    row_sum   sum of exp2(score - row_max)

ROW_MAX_START is finite and below every finite score, and a masked score is -inf, so a row that has seen no key yet
keeps row_max, adds exactly 0 to row_sum and decays by exactly 1: no select is needed for it in the loop.
"""

from __future__ import annotations

import math

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.core import PropagateNan

ROW_MAX_START = gl.constexpr(-3.4028234663852886e38)
"""The lowest finite fp32."""

ALL_NAN = gl.constexpr(PropagateNan.ALL)

LN_2 = gl.constexpr(math.log(2.0))

LOG2_E = gl.constexpr(math.log2(math.e))
"""Factor from natural to base-2 exponents; host code multiplies softmax_scale by it."""


@gluon.jit
def compute_row_max(scores, row_max):
    """Row maximum with the keys of `scores [..., keys]`; row_max `[...]`."""
    return gl.maximum(row_max, gl.max(scores, len(scores.shape) - 1))


@gluon.jit
def _maximum(a, b):
    """IEEE 754-2019 maximum, NaN if either is; unlike maxNum it takes operands as they are, not first made quiet."""
    return gl.maximum(a, b, propagate_nan=ALL_NAN)


@gluon.jit
def compute_scaled_row_max(products, scale_log2, row_max):
    """Row maximum with the keys of scores `products * scale_log2`, scale_log2 > 0: one multiplication a row.

    `compute_probabilities(products * scale_log2, row_max)` then is one fused multiply-add and one exp2 a score.
    """
    return _maximum(row_max, gl.reduce(products, len(products.shape) - 1, _maximum) * scale_log2)


@gluon.jit
def compute_decay(row_max, new_row_max):
    """Factor of what was accumulated relative to row_max, in (0, 1]."""
    return gl.exp2(row_max - new_row_max)


@gluon.jit
def compute_probabilities(scores, row_max):
    """exp2(scores - row_max), fp32 in [0, 1]."""
    return gl.exp2(scores - gl.expand_dims(row_max, len(scores.shape) - 1))


@gluon.jit
def compute_row_sum(row_sum, decay, probabilities):
    """Row sum with the keys of `probabilities [..., keys]`."""
    return row_sum * decay + gl.sum(probabilities, len(probabilities.shape) - 1)


@gluon.jit
def compute_normalisation(row_max, row_sum):
    """(factor that normalises the accumulated rows, log-sum-exp in natural base).

    A row without a visible key has row_sum exactly 0; its factor is 0 and its log-sum-exp -inf. Any other row holds
    its own maximum, so that row_sum >= 1 within rounding.
    """
    empty = row_sum == 0.0
    divisor = gl.where(empty, 1.0, row_sum)
    factor = gl.where(empty, 0.0, 1.0 / divisor)
    lse = gl.where(empty, float("-inf"), (row_max + gl.log2(divisor)) * LN_2)
    return factor, lse
