"""The order of varlen tiles, walked by emulated workgroups: every tile once, longest first, evenly dealt."""

from __future__ import annotations

import itertools

import pytest
import torch

triton = pytest.importorskip("triton")

from triton.experimental import gluon  # noqa: E402
from triton.experimental.gluon import language as gl  # noqa: E402

from mla_core.stages.varlen import (  # noqa: E402
    TOP_LEVEL,
    compute_rank,
    compute_tile,
    compute_total_tiles,
    compute_turns,
    find_level,
)
from mla_testing import emulate  # noqa: E402

BLOCK_M = 128
PROGRAMS = 8


@gluon.jit
def deal(
    record_ptr,  # [ranks, 3] int32: (workgroup, sequence, tile)
    cu_seqlens_q_ptr,
    cu_seqlens_kv_ptr,
    batch,
    HEADS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    IS_CAUSAL: gl.constexpr,
    DIES: gl.constexpr,
):
    """Records who gets which tile, walking as a kernel does."""
    total = HEADS * compute_total_tiles(cu_seqlens_q_ptr, cu_seqlens_kv_ptr, batch, BLOCK_M, IS_CAUSAL)
    before, count, level, ceiling = 0, 0, TOP_LEVEL, TOP_LEVEL
    for turn in range(0, compute_turns(total, DIES)):
        rank = compute_rank(turn, DIES)
        place = rank // HEADS
        before, count, level, ceiling = find_level(
            place, before, count, level, ceiling, cu_seqlens_q_ptr, cu_seqlens_kv_ptr, batch, BLOCK_M, IS_CAUSAL
        )
        sequence, tile = compute_tile(
            place - before, level, ceiling, cu_seqlens_q_ptr, cu_seqlens_kv_ptr, batch, BLOCK_M, IS_CAUSAL
        )
        gl.store(record_ptr + rank * 3, gl.program_id(0))
        gl.store(record_ptr + rank * 3 + 1, sequence)
        gl.store(record_ptr + rank * 3 + 2, tile)


def dealt(q_lens: list[int], kv_lens: list[int], *, heads: int = 1, is_causal: bool = True, dies: int = 8):
    """[(workgroup, sequence, tile)] in order of rank. cu_seqlens have no byte more than they need."""
    cu_q = torch.tensor([0, *itertools.accumulate(q_lens)], dtype=torch.int32)
    cu_kv = torch.tensor([0, *itertools.accumulate(kv_lens)], dtype=torch.int32)
    ranks = heads * sum(-(-length // BLOCK_M) for length in q_lens)
    record = torch.full((ranks, 3), -1, dtype=torch.int32)
    with emulate(compute_units=PROGRAMS):
        deal[(PROGRAMS,)](
            record, cu_q, cu_kv, len(q_lens), HEADS=heads, BLOCK_M=BLOCK_M, IS_CAUSAL=is_causal, DIES=dies
        )
    return [tuple(row) for row in record.tolist()]


def keys_seen(q_len: int, kv_len: int, tile: int, is_causal: bool) -> int:
    """Keys that the last row of a tile sees."""
    if not is_causal:
        return kv_len
    return max(min((tile + 1) * BLOCK_M, q_len) + kv_len - q_len, 0)


LENGTHS = (300, 0, 1, 1000, 128, 129, 5, 777, 2000, 64)


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("batch", [1, 2, 5, 17, 64, 65, 130])
def test_every_tile_once_and_longest_first(batch: int, is_causal: bool) -> None:
    q_lens = [LENGTHS[index % len(LENGTHS)] for index in range(batch)]
    kv_lens = [(length, length + 700, length // 2)[index % 3] for index, length in enumerate(q_lens)]
    tiles = [(sequence, tile) for _, sequence, tile in dealt(q_lens, kv_lens, is_causal=is_causal)]
    wanted = [(seq, tile) for seq, length in enumerate(q_lens) for tile in range(-(-length // BLOCK_M))]
    assert sorted(tiles) == wanted
    seen = [keys_seen(q_lens[seq], kv_lens[seq], tile, is_causal) for seq, tile in tiles]
    # A level counts BLOCK_M keys, and where a tile's last key lies within its level is not looked at.
    assert all(later <= earlier + 2 * BLOCK_M for earlier, later in itertools.combinations(seen, 2))


def test_heads_take_each_tile_in_turn_and_the_batch_need_not_fit_the_workgroups() -> None:
    order = dealt([1] * 5, [1] * 5, heads=128)
    assert [(sequence, tile) for _, sequence, tile in order] == [(seq, 0) for seq in range(5) for _ in range(128)]


def test_causal_work_is_dealt_evenly_and_heads_keep_their_die() -> None:
    heads, dies = 4, 4
    order = dealt([4096] * 2, [4096] * 2, heads=heads, dies=dies)
    load = [0] * PROGRAMS
    for rank, (workgroup, sequence, tile) in enumerate(order):
        load[workgroup] += keys_seen(4096, 4096, tile, True)
        assert workgroup % dies == rank % heads
        assert (sequence, tile) == order[rank - rank % heads][1:]
    assert max(load) <= 1.02 * min(load)


@pytest.mark.parametrize("dies", [1, 2, 8])
def test_ranks_are_a_permutation_for_any_number_of_dies(dies: int) -> None:
    order = dealt([1000, 10], [1000, 10], heads=3, dies=dies)
    assert len(order) == 27
    assert all(workgroup >= 0 for workgroup, _, _ in order)
    assert max(sum(w == workgroup for w, _, _ in order) for workgroup in range(PROGRAMS)) == 4
