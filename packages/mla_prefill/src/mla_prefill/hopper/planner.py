"""The order of the tiles, made on the device: a table with one record a (sequence, 128 queries, head).

CTAs take records from the front. Inside a section, the (key) heads of one sequence whose K and V fit in L2 together,
the longest tiles come first; sections of a sequence have equally many heads, give or take one; longer sequences come
first, and the shortest tiles of all sequences last, so that the CTAs end together.

    sequence with most keys                               next sequence ...      all sequences
    | section 0: heads 0..7      | section 1: heads 8..15 | section 0 ...        | tiles of at most tail_blocks
    | last queries .. first ones | last queries .. first  |                      | blocks, longest first

The table is int32 `[rows, 8]`: first the header (claims so far, the number of records), then the records.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

WORDS = tl.constexpr(8)
"""int32 words of the header and of a record: one 32-byte sector of device memory."""

# Header words.
NEXT_RECORD = tl.constexpr(0)
RECORD_COUNT = tl.constexpr(1)

# Record words.
Q_ROW = tl.constexpr(0)  # first row of the tile in q and out
Q_ROWS = tl.constexpr(1)  # rows of the tile that are the sequence's, 1 to block_m
KV_ROW = tl.constexpr(2)  # first row of the tile's last block in k and v
BLOCKS = tl.constexpr(3)  # blocks of keys; 1 even where the tile sees no key, to write its empty rows
LAST_VISIBLE = tl.constexpr(4)  # keys that the tile's last row sees
FIRST_VISIBLE = tl.constexpr(5)  # keys that its first row sees; each later row sees one more if causal; may be < 0
HEAD = tl.constexpr(6)  # query head; what is passed on with a negative one says that there is no more work


def table_shape(total_q: int, batch: int, heads: int, block_m: int) -> tuple[int, int]:
    """Shape of the table: the header, as many records as any lengths of these totals can need, and one that is never written."""
    return (total_q // block_m + batch) * heads + 2, WORDS.value


@triton.jit
def _short_tiles(q_len, kv_len, tail_blocks, IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """How many of a sequence's tiles, counted from its first query, see at most tail_blocks blocks of keys."""
    tiles = tl.cdiv(q_len, BLOCK_M)
    short = tiles * 0
    if IS_CAUSAL:
        reached = (tail_blocks * BLOCK_N - (kv_len - q_len)) // BLOCK_M
        short = tl.maximum(tl.minimum(reached, tiles - 1), 0)
    return tl.where(kv_len <= tail_blocks * BLOCK_N, tiles, short)


@triton.jit
def order_tiles(
    table_ptr,  # [rows, WORDS] int32
    cu_seqlens_q_ptr,  # [batch + 1] int32
    cu_seqlens_kv_ptr,
    batch,
    section_tokens,  # tokens of one key head whose K and V fill a section's share of L2
    tail_blocks,  # tiles of at most so many blocks come last
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SEQUENCES: tl.constexpr,  # sequences looked at in one step
    RECORDS: tl.constexpr,  # records written in one step
):
    """Program (s, c) writes every programs(1)-th group of the records of sequence s, from the c-th on."""
    sequence = tl.program_id(0)
    q_start = tl.load(cu_seqlens_q_ptr + sequence)
    q_len = tl.load(cu_seqlens_q_ptr + sequence + 1) - q_start
    kv_start = tl.load(cu_seqlens_kv_ptr + sequence)
    kv_len = tl.load(cu_seqlens_kv_ptr + sequence + 1) - kv_start

    # Tiles of one head: all long ones, and the long and the short ones of the sequences that come before this one.
    all_long = 0
    all_short = 0
    long_before = 0
    short_before = 0
    for first in range(0, batch, SEQUENCES):
        other = first + tl.arange(0, SEQUENCES)
        real = other < batch
        other_q = tl.load(cu_seqlens_q_ptr + other + 1, real, 0) - tl.load(cu_seqlens_q_ptr + other, real, 0)
        other_kv = tl.load(cu_seqlens_kv_ptr + other + 1, real, 0) - tl.load(cu_seqlens_kv_ptr + other, real, 0)
        other_short = _short_tiles(other_q, other_kv, tail_blocks, IS_CAUSAL, BLOCK_M, BLOCK_N)
        other_long = tl.cdiv(other_q, BLOCK_M) - other_short
        before = (other_kv > kv_len) | ((other_kv == kv_len) & (other < sequence))
        all_long += tl.sum(other_long, 0)
        all_short += tl.sum(other_short, 0)
        long_before += tl.sum(tl.where(before, other_long, 0), 0)
        short_before += tl.sum(tl.where(before, other_short, 0), 0)
    if (sequence == 0) & (tl.program_id(1) == 0):
        tl.store(table_ptr + NEXT_RECORD, 0)
        tl.store(table_ptr + RECORD_COUNT, (all_long + all_short) * HEADS)

    tiles = tl.cdiv(q_len, BLOCK_M)
    short = _short_tiles(q_len, kv_len, tail_blocks, IS_CAUSAL, BLOCK_M, BLOCK_N)
    tiles_long = tiles - short
    GROUP: tl.constexpr = HEADS // KV_HEADS
    heads_fitting = tl.minimum(tl.maximum(section_tokens // tl.maximum(kv_len, 1), 1), KV_HEADS)
    sections = tl.cdiv(KV_HEADS, heads_fitting)

    for first in range(tl.program_id(1) * RECORDS, tiles * HEADS, tl.num_programs(1) * RECORDS):
        item = first + tl.arange(0, RECORDS)
        real = item < tiles * HEADS
        tile = item // HEADS
        head = item % HEADS
        # Section x has the key heads [x KV_HEADS / sections, (x + 1) KV_HEADS / sections), rounded down.
        section = ((head // GROUP + 1) * sections - 1) // KV_HEADS
        section_first = section * KV_HEADS // sections * GROUP
        section_heads = (section + 1) * KV_HEADS // sections * GROUP - section_first
        long_place = section_first * tiles_long + (tiles - 1 - tile) * section_heads + head - section_first
        short_place = (all_long + short_before + short - 1 - tile) * HEADS + head
        place = tl.where(tile < short, short_place, long_before * HEADS + long_place)

        row = tile * BLOCK_M
        rows = tl.minimum(BLOCK_M, q_len - row)
        if IS_CAUSAL:
            first_visible = row + 1 + kv_len - q_len
            last_visible = tl.maximum(first_visible + rows - 1, 0)
        else:
            first_visible = row * 0 + kv_len
            last_visible = first_visible
        blocks = tl.maximum(tl.cdiv(last_visible, BLOCK_N), 1)
        record = table_ptr + (place + 1) * WORDS
        tl.store(record + Q_ROW, q_start + row, real)
        tl.store(record + Q_ROWS, rows, real)
        tl.store(record + KV_ROW, kv_start + (blocks - 1) * BLOCK_N, real)
        tl.store(record + BLOCKS, blocks, real)
        tl.store(record + LAST_VISIBLE, last_visible, real)
        tl.store(record + FIRST_VISIBLE, first_visible, real)
        tl.store(record + HEAD, head, real)


@triton.jit
def plan_tiles(
    table_ptr,
    cu_seqlens_q_ptr,
    cu_seqlens_kv_ptr,
    batch,
    section_tokens,
    tail_blocks,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SEQUENCES: tl.constexpr,
    RECORDS: tl.constexpr,
):
    """The planner kernel, grid `(batch, any)`; what depends on it may be launched from its start on."""
    gdc_launch_dependents()
    order_tiles(
        table_ptr,
        cu_seqlens_q_ptr,
        cu_seqlens_kv_ptr,
        batch,
        section_tokens,
        tail_blocks,
        HEADS,
        KV_HEADS,
        IS_CAUSAL,
        BLOCK_M,
        BLOCK_N,
        SEQUENCES,
        RECORDS,
    )
