"""Layouts of the gfx950 kernels, each derived from a tile shape and the width of one lane's copy.

A KV tile is `[groups, tokens, columns]`: `groups` of waves own `tokens` tokens each (a tile that all waves share has
one group). A direct-to-LDS copy of a wave writes 64 consecutive 16-byte pieces, in the order of its lanes, to one LDS
address (AMD CDNA 4 ISA reference, MUBUF with LDS = 1); those 1024 bytes are a *line* here. Every layout below is a
list of basis vectors, lowest bit first, that says which tile coordinate each bit of an offset (or of a register, lane
or wave number) moves.

    bits of an element's LDS offset     who counts them in a copy
    0 .. 2    within 16 bytes           registers
    3 .. 8    piece of a line           lanes
    9 ..      line                      registers, then waves (top bits)
"""

from __future__ import annotations

from collections.abc import Sequence

from triton.experimental.gluon import constexpr_function
from triton.experimental.gluon import language as gl

from mla_core.errors import ArgumentError
from mla_core.problem import COPY_BYTES, ELEMENT_BYTES

WARP_SIZE = 64
"""Lanes of a wavefront of every CDNA generation."""

FP32_BYTES = 4

COPY_ELEMENTS = COPY_BYTES // ELEMENT_BYTES
"""Elements that one lane copies with one instruction."""

LINE_ELEMENTS = WARP_SIZE * COPY_ELEMENTS
"""Elements that one wave copies with one instruction: contiguous in LDS."""

TRANSPOSE_ELEMENTS = 16
"""Columns that the 16 lanes of a transposed read (ds_read_b64_tr_b16) take from each of 4 tokens."""

BANKS_ELEMENTS = 64 * 4 // ELEMENT_BYTES
"""Elements that LDS delivers at once: all 64 banks of 4 bytes (AMD CDNA 4 ISA reference, LDS)."""


@constexpr_function
def _bits(extent: int, name: str) -> int:
    if extent < 1 or extent & (extent - 1):
        raise ArgumentError(name, extent, "a power of two")
    return extent.bit_length() - 1


@constexpr_function
def _steps(axis: int, extent: int, name: str) -> list[list[int]]:
    """Basis vectors that count through one of the three coordinates of a tile."""
    return [[(1 << bit) if axis == at else 0 for at in range(3)] for bit in range(_bits(extent, name))]


@constexpr_function
def tile_offset_bases(groups: int, tokens: int, columns: int) -> list[list[int]]:
    """Tile coordinate that each bit of an LDS offset moves, padding left out.

    A line holds whole rows. Where a row is shorter than a line (the RoPE columns), the rows that share one are as far
    apart as the tile allows, so that the consecutive tokens that a fragment reads together lie in different lines,
    which the padding spreads over the banks.
    """
    column_bits = _steps(2, columns, "columns")
    row_bits = _steps(1, tokens, "tokens") + _steps(0, groups, "groups")
    shared = max(_bits(LINE_ELEMENTS, "line") - len(column_bits), 0)
    return column_bits + row_bits[len(row_bits) - shared :] + row_bits[: len(row_bits) - shared]


@constexpr_function
def tile_shared_layout(groups: int, tokens: int, columns: int, value_columns: int = 0) -> gl.PaddedSharedLayout:
    """LDS layout of a KV tile: lines of 1024 bytes with padding between them, so that reads meet no bank twice.

    Args:
        value_columns: columns that 32 lanes of a transposed read take of one token, the columns of the matrix
            instruction; 0 for a part that is read by rows only.

    A read by rows (K, 16 bytes a lane) takes sixteen consecutive tokens at once, a transposed one (V) `value_columns`
    of as many tokens as fill the banks. Padding each line by what a transposed read takes of it puts those tokens side
    by side; 16 bytes more behind each set of them put the next set's 16-byte pieces into the gaps.
    """
    bases = tile_offset_bases(groups, tokens, columns)
    padding = [[LINE_ELEMENTS, value_columns if value_columns else COPY_ELEMENTS]]
    if value_columns:
        padding.append([LINE_ELEMENTS * (BANKS_ELEMENTS // value_columns), COPY_ELEMENTS])
    return gl.PaddedSharedLayout(padding, bases, [], [groups, tokens, columns])


@constexpr_function
def tile_copy_layout(groups: int, tokens: int, columns: int, num_warps: int) -> gl.DistributedLinearLayout:
    """Who copies what of a KV tile: 16 bytes a lane, a line a wave, the top lines' bits over the waves.

    With a group per wave, each wave copies the rows of its own group as far as lines hold whole rows.
    """
    bases = tile_offset_bases(groups, tokens, columns)
    piece = _bits(COPY_ELEMENTS, "copy")
    line = piece + _bits(WARP_SIZE, "lanes")
    top = len(bases) - _bits(num_warps, "num_warps")
    if top < line:
        raise ArgumentError("num_warps", num_warps, f"at most {1 << (len(bases) - line)} for this tile")
    return gl.DistributedLinearLayout(
        reg_bases=bases[:piece] + bases[line:top],
        lane_bases=bases[piece:line],
        warp_bases=bases[top:],
        block_bases=[],
        shape=[groups, tokens, columns],
    )


@constexpr_function
def mfma_layout(rows: int, waves: Sequence[int]) -> gl.amd.AMDMFMALayout:
    """Result layout of the matrix instruction with `rows` rows (16: 16x16x32, 32: 32x32x16) of bf16 or fp16.

    `waves` is (groups, waves over the rows, waves over the columns). The result is transposed: a lane holds four
    consecutive columns of one row, which is how the next multiplication takes its left operand with `k_width` 4.
    """
    depth = 512 // rows
    return gl.amd.AMDMFMALayout(
        version=4, instr_shape=[rows, rows, depth], transposed=True, warps_per_cta=[waves[0], waves[1], waves[2]]
    )


@constexpr_function
def group_exchange_layout(groups: int, rows: int, columns: int) -> gl.PaddedSharedLayout:
    """LDS of fp32 rows `[groups, rows, columns]` by which token groups meet.

    Lanes of one store hold the same columns of consecutive rows, 16 bytes each; so much padding behind each row puts
    them in different banks.
    """
    padding = COPY_BYTES // FP32_BYTES
    return gl.PaddedSharedLayout.with_identity_for([[columns, padding]], [groups, rows, columns], [2, 1, 0])


@constexpr_function
def group_sum_layout(groups: int, num_warps: int) -> gl.BlockedLayout:
    """fp32 `[groups, rows, columns]` read back for the sum over the groups and for global stores.

    A lane holds all groups of 4 consecutive columns, one 16-byte read each, so that 16 lanes meet every bank once; a
    wave holds whole rows.
    """
    return gl.BlockedLayout([groups, 1, COPY_BYTES // FP32_BYTES], [1, 1, WARP_SIZE], [1, num_warps, 1], [2, 1, 0])
