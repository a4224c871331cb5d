"""gfx950 layouts of tiles `[tokens, columns]` that all waves of a workgroup share, for 32x32x16 matrix instructions.

The order of the lines in LDS is that of `mla_core.layouts.cdna4`, with a padding for each kind of read.
"""

from __future__ import annotations

from triton.experimental.gluon import constexpr_function
from triton.experimental.gluon import language as gl

from mla_core.errors import ArgumentError
from mla_core.layouts.cdna4 import COPY_ELEMENTS, LINE_ELEMENTS, TRANSPOSE_ELEMENTS, tile_offset_bases

COPY_BITS = COPY_ELEMENTS.bit_length() - 1
LINE_BITS = LINE_ELEMENTS.bit_length() - 1

KEY_PADDING = COPY_ELEMENTS
"""Padding of a line whose tile is read by rows (K): the 16 bytes of a lane, so that 16 lines in turn fill 256 bytes."""

VALUE_PADDING = 2 * TRANSPOSE_ELEMENTS
"""Padding of a line whose tile is read transposed (V): what two groups of 16 lanes take of a row, 64 bytes."""


@constexpr_function
def flat_offset_bases(tokens: int, columns: int) -> list[list[int]]:
    """(token, column) that each bit of an LDS offset moves, padding left out."""
    return [basis[1:] for basis in tile_offset_bases(1, tokens, columns)]


@constexpr_function
def flat_shared_layout(tokens: int, columns: int, padding: int) -> gl.PaddedSharedLayout:
    """LDS layout of a tile: lines of 1024 bytes, each followed by `padding` elements.

    With KEY_PADDING and VALUE_PADDING these are the layouts that Triton 3.9 itself computes for such operands
    (`compute_efficient_padded_shared_layout`).
    """
    bases = flat_offset_bases(tokens, columns)
    return gl.PaddedSharedLayout([[LINE_ELEMENTS, padding]], bases, [], [tokens, columns])


@constexpr_function
def flat_copy_layout(tokens: int, columns: int, num_warps: int) -> gl.SliceLayout:
    """Who copies what of a tile: 16 bytes a lane, a line a wave, consecutive lines over the waves.

    A slice of a layout with one more axis of extent 1, because Triton 3.6 takes no other kind of linear layout here.
    """
    bases = [[*basis, 0] for basis in flat_offset_bases(tokens, columns)]
    wave = LINE_BITS + num_warps.bit_length() - 1
    if wave > len(bases):
        raise ArgumentError("num_warps", num_warps, f"at most {1 << (len(bases) - LINE_BITS)} for this tile")
    linear = gl.DistributedLinearLayout(
        reg_bases=bases[:COPY_BITS] + bases[wave:],
        lane_bases=bases[COPY_BITS:LINE_BITS],
        warp_bases=bases[LINE_BITS:wave],
        block_bases=[],
        shape=[tokens, columns, 1],
    )
    return gl.SliceLayout(2, linear)
