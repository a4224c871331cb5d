"""Cuts a batch into equal parts on the device: which blocks of which requests each part of the grid takes.

The KV blocks of all requests, laid end to end, each request preceded by `item_cost` virtual blocks for what starting
it costs, are cut into `parts` equal stretches. A cut that would leave fewer than `min_blocks` blocks on one side moves
to that end of the request. Where requests are so alike that whole requests, or equal pieces of them, give nearly the
same load, the cuts are made there instead: fewer partial results.

A request is cut at most where parts meet, so a part has at most two partial items, its first and its last; slots
`2 part` and `2 part + 1` of the scratch take their results. Everything that depends on lengths is in the plan, which
is filled in place: a captured graph replays correctly with other lengths.

    plan (int32)  boundaries [parts + 1] x (block, request)    where each part starts, in order
                  records    [parts] x WORDS                   what a part needs to know
                  arrivals   [row tiles x parts] int64         counts of the merge, grown by each launch
                  tokens     [batch]                           keys of each request that count
"""

from __future__ import annotations

import triton
import triton.language as tl

from mla_decode.hopper.config import BLOCK_N as _BLOCK_N
from mla_decode.hopper.geometry import RECORD_WORDS

BLOCK_N = tl.constexpr(_BLOCK_N)

WORDS = tl.constexpr(RECORD_WORDS)

FIRST_REQUEST = tl.constexpr(0)
FIRST_BLOCK = tl.constexpr(1)
FIRST_END = tl.constexpr(2)
LAST_REQUEST = tl.constexpr(3)
LAST_END = tl.constexpr(4)
FIRST_SLOT = tl.constexpr(5)
FIRST_PIECES = tl.constexpr(6)
LAST_SLOT = tl.constexpr(7)
LAST_PIECES = tl.constexpr(8)

# A regular cut is taken where its heaviest part has at most this much more than the even share.
TOLERANCE_PERCENT = tl.constexpr(4)
TOLERANCE_BLOCKS = tl.constexpr(3)

PLANNER_WARPS = 8
REQUEST_CHUNK = 64
"""Requests that the planner looks at together."""


@triton.jit
def load_tokens(seqlens_ptr, request, batch, max_tokens):
    """Keys of each of `request` that count; 0 beyond the batch."""
    inside = (request >= 0) & (request < batch)
    tokens = tl.load(seqlens_ptr + request, mask=inside, other=0)
    return tl.minimum(tl.maximum(tokens, 0), max_tokens)


@triton.jit
def count_blocks(seqlens_ptr, request, batch, max_tokens):
    """Blocks of each of `request`; 0 beyond the batch."""
    return tl.cdiv(load_tokens(seqlens_ptr, request, batch, max_tokens), BLOCK_N)


@triton.jit
def boundary_key(request, block):
    """A boundary as one int64 that orders like (request, block)."""
    return (request.to(tl.int64) << 32) | block.to(tl.int64)


@triton.jit
def narrow_search(boundaries_ptr, low, high, key):
    """One step of a binary search for the first boundary that is not before `key`; done where low == high."""
    middle = (low + high) // 2
    searching = low < high
    before = tl.load(boundaries_ptr + middle, mask=searching, other=0) < key
    return tl.where(searching & before, middle + 1, low), tl.where(searching & (before == 0), middle, high)


@triton.jit
def find_pieces(boundaries_ptr, parts, one, other, STEPS: tl.constexpr):
    """(slot of the first piece, number of pieces) of each request of `one` and of `other`.

    A request's first piece is in the last part that does not start after it, its last piece in the last part that
    starts before the next request. The four searches go together, as each step waits for memory.
    """
    zero = tl.zeros_like(one)
    one_start, other_start = boundary_key(one, zero), boundary_key(other, zero)
    one_end, other_end = boundary_key(one + 1, zero), boundary_key(other + 1, zero)
    low_a, low_b, low_c, low_d = zero, zero, zero, zero
    high_a, high_b, high_c, high_d = zero + parts, zero + parts, zero + parts, zero + parts
    for _ in tl.static_range(STEPS):
        low_a, high_a = narrow_search(boundaries_ptr, low_a, high_a, one_start + 1)
        low_b, high_b = narrow_search(boundaries_ptr, low_b, high_b, one_end)
        low_c, high_c = narrow_search(boundaries_ptr, low_c, high_c, other_start + 1)
        low_d, high_d = narrow_search(boundaries_ptr, low_d, high_d, other_end)
    first_a, first_c = tl.maximum(low_a - 1, 0), tl.maximum(low_c - 1, 0)
    inside_a = tl.load(boundaries_ptr + first_a) != one_start
    inside_c = tl.load(boundaries_ptr + first_c) != other_start
    slot_a, slot_c = 2 * first_a + inside_a.to(tl.int32), 2 * first_c + inside_c.to(tl.int32)
    return slot_a, low_b - first_a, slot_c, low_d - first_c


@triton.jit(do_not_specialize=["batch", "max_tokens"], do_not_specialize_on_alignment=["seqlens_ptr"])
def plan_decode(
    seqlens_ptr, plan_ptr, batch, max_tokens, GEOMETRY: tl.constexpr, ITEM_COST: tl.constexpr, MIN_BLOCKS: tl.constexpr,
    PARTS: tl.constexpr, STEPS: tl.constexpr, CHUNK: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """One workgroup. PARTS: a power of two above the number of parts; STEPS: binary search steps over them. LONG: positions
    need int64."""
    parts: tl.constexpr = GEOMETRY.parts
    boundaries_ptr = plan_ptr.to(tl.pointer_type(tl.int64))
    part = tl.arange(0, PARTS)
    lane = tl.arange(0, CHUNK)

    total = tl.zeros([], tl.int64 if LONG else tl.int32)
    longest = 0
    for index in range(0, tl.cdiv(batch, CHUNK)):
        chunk = index * CHUNK
        tokens = load_tokens(seqlens_ptr, chunk + lane, batch, max_tokens)
        tl.store(plan_ptr + GEOMETRY.tokens_at + chunk + lane, tokens, mask=chunk + lane < batch)
        blocks = tl.cdiv(tokens, BLOCK_N)
        weight = tl.where(chunk + lane < batch, blocks + ITEM_COST, 0)
        total += tl.sum(weight.to(total.dtype), 0)
        longest = tl.maximum(longest, tl.max(blocks, 0))
    share = tl.maximum((total + parts - 1) // parts, MIN_BLOCKS + ITEM_COST)

    # Regular cuts: `together` whole requests a part, or `pieces` equal pieces of each request.
    together = tl.cdiv(batch, parts)
    pieces = tl.minimum(tl.maximum(parts // batch, 1), tl.maximum(tl.cdiv(longest, MIN_BLOCKS), 1))
    whole = together > 1
    heaviest = tl.where(whole, together * (longest + ITEM_COST), tl.cdiv(longest, pieces) + ITEM_COST)
    regular = heaviest <= share + share * TOLERANCE_PERCENT // 100 + TOLERANCE_BLOCKS
    regular_request = tl.minimum(tl.where(whole, part * together, part // pieces), batch)
    regular_piece = tl.where(whole, 0, part % pieces)
    regular_blocks = count_blocks(seqlens_ptr, regular_request, batch, max_tokens)
    own_pieces = tl.minimum(pieces, tl.maximum(tl.cdiv(regular_blocks, MIN_BLOCKS), 1))  # none of them empty
    regular_block = (regular_blocks.to(tl.int64) * regular_piece // own_pieces).to(tl.int32)
    beyond = regular_piece >= own_pieces
    regular_request = tl.minimum(tl.where(beyond, regular_request + 1, regular_request), batch)
    regular_block = tl.where(beyond, 0, regular_block)

    # Even cuts: the request in which each share ends, and how far into it.
    cut = tl.minimum(part, parts).to(total.dtype) * share
    request = tl.zeros([PARTS], tl.int32)
    before = tl.zeros([PARTS], total.dtype)
    carry = tl.zeros([], total.dtype)
    for index in range(0, tl.cdiv(batch, CHUNK)):
        chunk = index * CHUNK
        blocks = count_blocks(seqlens_ptr, chunk + lane, batch, max_tokens)
        weight = tl.where(chunk + lane < batch, blocks + ITEM_COST, 0).to(total.dtype)
        ends = carry + tl.cumsum(weight, 0)
        passed = (ends[None, :] <= cut[:, None]) & (chunk + lane < batch)[None, :]
        request += tl.sum(passed.to(tl.int32), 1)
        before += tl.sum(tl.where(passed, weight[None, :], 0), 1)
        carry += tl.sum(weight, 0)
    blocks = count_blocks(seqlens_ptr, request, batch, max_tokens)
    block = tl.maximum(cut - before - ITEM_COST, 0).to(tl.int32)
    to_start = block < MIN_BLOCKS
    to_end = (blocks - block < MIN_BLOCKS) & (to_start == 0)
    even_request = tl.minimum(tl.where(to_end, request + 1, request), batch)
    even_block = tl.where(to_start | to_end | (request >= batch), 0, block)

    last = part >= parts
    start_request = tl.where(last, batch, tl.where(regular, regular_request, even_request))
    start_block = tl.where(last, 0, tl.where(regular, regular_block, even_block))
    tl.store(boundaries_ptr + part, boundary_key(start_request, start_block), mask=part <= parts)
    tl.debug_barrier()

    valid = part < parts
    end = tl.load(boundaries_ptr + part + 1, mask=valid, other=0)
    end_request = (end >> 32).to(tl.int32)
    end_block = (end & 0xFFFFFFFF).to(tl.int32)
    is_empty = (end_request == start_request) & (end_block == start_block)
    last_request = tl.where(end_block > 0, end_request, end_request - 1)
    last_end = tl.where(end_block > 0, end_block, count_blocks(seqlens_ptr, last_request, batch, max_tokens))
    first_end = tl.where(
        last_request == start_request, last_end, count_blocks(seqlens_ptr, start_request, batch, max_tokens)
    )
    first_slot, first_pieces, last_slot, last_pieces = find_pieces(
        boundaries_ptr, parts, start_request, last_request, STEPS
    )
    record_ptr = plan_ptr + GEOMETRY.records_at + part * WORDS
    tl.store(record_ptr + FIRST_REQUEST, start_request, mask=valid)
    tl.store(record_ptr + FIRST_BLOCK, start_block, mask=valid)
    tl.store(record_ptr + FIRST_END, first_end, mask=valid)
    tl.store(record_ptr + LAST_REQUEST, tl.where(is_empty, start_request - 1, last_request), mask=valid)
    tl.store(record_ptr + LAST_END, last_end, mask=valid)
    tl.store(record_ptr + FIRST_SLOT, first_slot, mask=valid)
    tl.store(record_ptr + FIRST_PIECES, tl.where(is_empty, 1, first_pieces), mask=valid)
    tl.store(record_ptr + LAST_SLOT, last_slot, mask=valid)
    tl.store(record_ptr + LAST_PIECES, tl.where(is_empty, 1, last_pieces), mask=valid)
    for tile in range(GEOMETRY.row_tiles):
        arrivals_ptr = (plan_ptr + GEOMETRY.arrivals_at).to(tl.pointer_type(tl.int64)) + tile * parts + part
        tl.store(arrivals_ptr, tl.zeros([PARTS], tl.int64), mask=valid)
