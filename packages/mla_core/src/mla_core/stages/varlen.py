"""Dealing out the query tiles of packed sequences to persistent workgroups, longest first, on the device.

A sequence of q_len queries has `cdiv(q_len, BLOCK_M)` tiles. The work of a tile is the number of keys it sees, counted
in *levels* of BLOCK_M keys: the tiles of a causal sequence lie one level apart, those of a full one on one level.

    level      sequence 0    1    2          rank: order of the tiles by level, then sequence
      3             t3                       0
      2             t2   t1                  1 2
      1             t1   t0   t0             3 4 5       level 1 has the three tiles 3 .. 5
      0             t0                       6

A workgroup takes ranks in rising order, so it walks down the levels once. It never stores the order: how many tiles a
sequence has at or above a level is a closed form, and the sums over the batch are taken 64 sequences at a time.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

SEQUENCES = gl.constexpr(64)
"""Sequences looked at together: one a lane."""

TOP_LEVEL = gl.constexpr(2**30)
"""Above every level: a level counts at least one key, and there are fewer than 2**31 of those."""


@gluon.jit
def load_tile_counts(cu_seqlens_q_ptr, cu_seqlens_kv_ptr, first, batch, BLOCK_M: gl.constexpr, IS_CAUSAL: gl.constexpr):
    """(index, tiles, highest level) of the SEQUENCES sequences from `first` on, int32 `[SEQUENCES]` each.

    Sequences from `batch` on have no tiles; nothing is read for them, so no batch reads past cu_seqlens `[batch + 1]`.
    """
    layout: gl.constexpr = gl.BlockedLayout([1], [SEQUENCES], [gl.num_warps()], [0])
    index = first + gl.arange(0, SEQUENCES, layout=layout)
    real = index < batch
    q_len = gl.load(cu_seqlens_q_ptr + index + 1, mask=real, other=0) - gl.load(
        cu_seqlens_q_ptr + index, mask=real, other=0
    )
    kv_len = gl.load(cu_seqlens_kv_ptr + index + 1, mask=real, other=0) - gl.load(
        cu_seqlens_kv_ptr + index, mask=real, other=0
    )
    tiles = (q_len + BLOCK_M - 1) // BLOCK_M
    if IS_CAUSAL:
        top = gl.maximum((kv_len - q_len) // BLOCK_M + tiles - 1, 0)
    else:
        top = kv_len // BLOCK_M
    return index, tiles, top


@gluon.jit
def compute_tiles_from(level, tiles, top, IS_CAUSAL: gl.constexpr):
    """How many of a sequence's `tiles`, the highest of them at level `top`, are at `level` or above."""
    if IS_CAUSAL:
        above = gl.minimum(gl.maximum(top + 1 - level, 0), tiles)
    else:
        above = gl.where(level <= top, tiles, 0)
    return gl.where(level <= 0, tiles, above)


@gluon.jit
def compute_total_tiles(cu_seqlens_q_ptr, cu_seqlens_kv_ptr, batch, BLOCK_M: gl.constexpr, IS_CAUSAL: gl.constexpr):
    """Tiles of all sequences, int32."""
    total = 0
    for first in range(0, batch, SEQUENCES):
        _, tiles, _ = load_tile_counts(cu_seqlens_q_ptr, cu_seqlens_kv_ptr, first, batch, BLOCK_M, IS_CAUSAL)
        total += gl.sum(tiles, 0)
    return total


@gluon.jit
def compute_next_level(
    ceiling, cu_seqlens_q_ptr, cu_seqlens_kv_ptr, batch, BLOCK_M: gl.constexpr, IS_CAUSAL: gl.constexpr
):
    """(highest level below `ceiling` that has a tile, tiles on it). There must be one."""
    level = 0
    for first in range(0, batch, SEQUENCES):
        _, tiles, top = load_tile_counts(cu_seqlens_q_ptr, cu_seqlens_kv_ptr, first, batch, BLOCK_M, IS_CAUSAL)
        left = compute_tiles_from(ceiling, tiles, top, IS_CAUSAL) < tiles
        level = gl.maximum(level, gl.max(gl.where(left, gl.minimum(top, ceiling - 1), 0), 0))
    count = 0
    for first in range(0, batch, SEQUENCES):
        _, tiles, top = load_tile_counts(cu_seqlens_q_ptr, cu_seqlens_kv_ptr, first, batch, BLOCK_M, IS_CAUSAL)
        here = compute_tiles_from(level, tiles, top, IS_CAUSAL) - compute_tiles_from(ceiling, tiles, top, IS_CAUSAL)
        count += gl.sum(here, 0)
    return level, count


@gluon.jit
def find_level(
    place,
    before,
    count,
    level,
    ceiling,
    cu_seqlens_q_ptr,
    cu_seqlens_kv_ptr,
    batch,
    BLOCK_M: gl.constexpr,
    IS_CAUSAL: gl.constexpr,
):
    """Goes down to the level of the tile at `place` in the order: the state (before, count, level, ceiling) of the walk.

    before: tiles above `level`. count: tiles on it. ceiling: the level looked at before this one, with none between.
    The walk starts as (0, 0, TOP_LEVEL, TOP_LEVEL); `place` never falls from one call to the next.
    """
    while place >= before + count:
        before += count
        ceiling = level
        level, count = compute_next_level(ceiling, cu_seqlens_q_ptr, cu_seqlens_kv_ptr, batch, BLOCK_M, IS_CAUSAL)
    return before, count, level, ceiling


@gluon.jit
def compute_tile(
    place, level, ceiling, cu_seqlens_q_ptr, cu_seqlens_kv_ptr, batch, BLOCK_M: gl.constexpr, IS_CAUSAL: gl.constexpr
):
    """(sequence, tile of it) of the tile at `place` among those from `level` up to below `ceiling`."""
    sequence = 0
    tile = 0
    for first in range(0, batch, SEQUENCES):
        index, tiles, top = load_tile_counts(cu_seqlens_q_ptr, cu_seqlens_kv_ptr, first, batch, BLOCK_M, IS_CAUSAL)
        higher = compute_tiles_from(ceiling, tiles, top, IS_CAUSAL)
        here = compute_tiles_from(level, tiles, top, IS_CAUSAL) - higher
        all_here = gl.sum(here, 0)
        if (place >= 0) & (place < all_here):
            # The last sequence that has no more than `place` tiles in front of it, by halving.
            low = first
            width = SEQUENCES // 2
            while width > 0:
                before = gl.sum(gl.where(index < low + width, here, 0), 0)
                if before <= place:
                    low += width
                    place -= before
                    here = gl.where(index < low, 0, here)
                width //= 2
            sequence = low
            tile = gl.sum(gl.where(index == low, tiles - 1 - higher, 0), 0) - place
            place = 0
        place -= all_here
    return sequence, tile


@gluon.jit
def compute_rank(turn, DIES: gl.constexpr):
    """Rank that this workgroup takes in its turn-th turn, of those `[turn * programs, (turn + 1) * programs)`.

    Every other turn runs backwards, so that who got the longest tile of one turn gets the shortest of the next.
    Workgroups go round-robin over DIES dies, each with an L2 cache, and DIES divides their number. Backwards is by
    groups of DIES: a workgroup's remainder by DIES stays the same, and so does that of the head where the heads are a
    multiple of DIES; a die then keeps to its own heads' keys.
    """
    programs = gl.num_programs(0)
    place = gl.program_id(0)
    if turn % 2 == 1:
        place = programs - DIES - place + 2 * (place % DIES)
    return turn * programs + place


@gluon.jit
def compute_turns(ranks, DIES: gl.constexpr):
    """Turns of this workgroup that have a rank below `ranks`: the last one may be short."""
    whole = ranks // gl.num_programs(0)
    return whole + gl.where(compute_rank(whole, DIES) < ranks, 1, 0)
