"""Which keys a row of a folded query tile sees, and removing the others from scores and values.

The rows of a query tile are `q_len x heads` folded: row r belongs to query token r // heads and to head r % heads.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


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
def compute_masked_scores(scores, positions, visible_keys):
    """`scores` where position < visible_keys, else -inf, whatever they were (NaN too).

    positions and visible_keys broadcast against scores.
    """
    return gl.where(positions < visible_keys, scores, float("-inf"))


@gluon.jit
def compute_visible_values(values, positions, seqlen):
    """`values` where position < seqlen, else 0, whatever they were: a probability of 0 times NaN would be NaN."""
    return gl.where(positions < seqlen, values, gl.zeros_like(values))
