"""Pieces of the online softmax that the wide and the narrow kernel share."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_decode.hopper.planner import BLOCK_N


@gluon.jit
def visible_keys(tokens, row, GEOMETRY: gl.constexpr):
    """Keys that each row of a request of `tokens` keys sees; not above 0 for an empty row."""
    if GEOMETRY.causal:
        return tokens - GEOMETRY.q_len + 1 + row // GEOMETRY.heads
    return tokens + row * 0


@gluon.jit
def is_masked(tokens, block, first_row, GEOMETRY: gl.constexpr):
    """Whether a block has a key that some row of the tile does not see."""
    return (block + 1) * BLOCK_N > visible_keys(tokens, first_row, GEOMETRY)


@gluon.jit
def finite_reference(maximum):
    """The maximum to subtract: 0 for a row that has seen no key, whose difference of infinities would be NaN."""
    return gl.where(maximum == float("-inf"), 0.0, maximum)
