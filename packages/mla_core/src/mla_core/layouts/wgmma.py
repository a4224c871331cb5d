"""Layouts around Hopper's warpgroup matrix instruction (wgmma m64nNk16), by rule.

A warpgroup of 4 warps holds a 64-row accumulator: warp w has rows [16 w, 16 w + 16), and in it lane l has rows l / 4
and l / 4 + 8, and of each group of 8 columns the two that start at 2 (l % 4) (PTX ISA, "Register Fragments for
wgmma.mma_async.m64nNk16").
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

WARPGROUP_WARPS = gl.constexpr(4)
"""Warps that issue one wgmma together (PTX ISA)."""

WGMMA_ROWS = gl.constexpr(64)
"""Rows of a wgmma accumulator (PTX ISA)."""

ROWS_PER_WARP = 16
LANES_PER_ROW = 4
LANES_PER_WARP = 32
STORE_COLUMNS = 8
"""16-bit elements of a 128-bit store, the widest one of a lane."""


@gluon.constexpr_function
def accumulator(columns: int) -> gl.NVMMADistributedLayout:
    """fp32 accumulator `[64, columns]` of one warpgroup."""
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPGROUP_WARPS.value, 1], instr_shape=[16, columns, 16]
    )


@gluon.constexpr_function
def register_operand(result: gl.NVMMADistributedLayout) -> gl.DotOperandLayout:
    """Operand A in registers, 16-bit elements, for a product accumulated in `result`.

    Its fragment is that of an accumulator of as many columns, so converting one to it moves nothing between lanes.
    """
    return gl.DotOperandLayout(operand_index=0, parent=result, k_width=2)


@gluon.constexpr_function
def swizzled_tile() -> gl.NVMMASharedLayout:
    """Shared-memory tile of 16-bit elements as the bulk copy writes and wgmma reads it: 128-byte swizzle."""
    return gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)


@gluon.constexpr_function
def row_store(columns: int, lane_columns: int = STORE_COLUMNS) -> gl.DistributedLinearLayout:
    """A `[64, columns]` tile for wide stores, each row in the warp whose accumulator holds it.

    A lane holds `lane_columns` neighbouring columns (8 elements of 16 bits or 4 of 32 fill a store), the 4 lanes of a
    row four times that; so converting an accumulator to it stays in the warp.
    """
    registers = [[0, 1 << bit] for bit in range((lane_columns - 1).bit_length())]
    lanes = [[0, lane_columns << bit] for bit in range((LANES_PER_ROW - 1).bit_length())]
    row, rows_per_pass = 1, LANES_PER_WARP // LANES_PER_ROW
    while row < rows_per_pass:
        lanes.append([row, 0])
        row *= 2
    column = lane_columns * LANES_PER_ROW
    while column < columns:
        registers.append([0, column])
        column *= 2
    while row < ROWS_PER_WARP:
        registers.append([row, 0])
        row *= 2
    warps = []
    while row < 64:
        warps.append([row, 0])
        row *= 2
    return gl.DistributedLinearLayout(
        reg_bases=registers, lane_bases=lanes, warp_bases=warps, block_bases=[], shape=[64, columns]
    )
