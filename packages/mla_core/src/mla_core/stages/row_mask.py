"""Which keys a row of a folded query tile sees, and removing the others from scores and values.

The rows of a query tile are `q_len x heads` folded: row r belongs to query token r // heads and to head r % heads.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

MINUS_INFINITY_BITS = gl.constexpr(-0x00800000)
"""Bits of the fp32 -inf, 0xFF800000, as int32."""


@gluon.jit
def compute_visible_keys(rows, seqlen, heads: gl.constexpr, q_len: gl.constexpr, causal: gl.constexpr):
    """Keys that each folded row sees: positions below it. `rows` int32 of any shape, seqlen int32.

    Causal is bottom-right aligned: query token i sees `seqlen - q_len + 1 + i` keys. May be negative: no key. Rows
    behind the last one (padding of the tile) count as the last query token, and see no more than it.
    """
    if causal:
        token = gl.minimum(rows // heads, q_len - 1)
        return seqlen - q_len + 1 + token
    else:
        return seqlen + rows * 0


@gluon.jit
def compute_masked_scores(scores, positions, visible):
    """fp32 `scores` where position < visible, else -inf, whatever they were (NaN too).

    positions and visible int32 broadcast against scores; their difference fits 32 bits. Its sign becomes a mask of
    bits, so that no lane mask per score rests in scalar registers.
    """
    mask = (positions - visible) >> 31
    bits = (scores.to(gl.int32, bitcast=True) & mask) | (MINUS_INFINITY_BITS & ~mask)
    return bits.to(gl.float32, bitcast=True)


@gluon.jit
def compute_visible_values(values, positions, visible):
    """16-bit `values` where position < visible, else 0, whatever they were: a probability of 0 times NaN would be NaN.

    positions and visible as in `compute_masked_scores`.
    """
    mask = ((positions - visible) >> 31).to(gl.int16)
    return (values.to(gl.int16, bitcast=True) & mask).to(values.dtype, bitcast=True)
