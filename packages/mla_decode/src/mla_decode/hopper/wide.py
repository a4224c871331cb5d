"""The wide decode kernel: tiles of 64 query rows, four warpgroups, no producer.

Two softmax warpgroups take turns at the blocks of an item, two output warpgroups hold 64 x 256 of O each. S is a
block's scores, P its probabilities; a block's latent columns, in four pieces of 128, are K for S and V for O.

    softmax 0   fetch 0 | S0  softmax0        | fetch 2 | S2  softmax2        | ...      even blocks, slot 0
    softmax 1   fetch 1 |     S1     softmax1 | fetch 3 |     S3     softmax3 | ...      odd blocks, slot 1
    output L                          PV0 PV1                   PV2 PV3         ...      columns   0..255
    output R                          PV0 PV1                   PV2 PV3         ...      columns 256..511

A softmax warpgroup fetches its next block as soon as both output warpgroups have released its slot, half by half. P
overwrites the RoPE columns of its block, which nothing needs after S. The running maximum goes back and forth between
the softmax warpgroups, so each scales its P by the latest one, and the factor that O is to be rescaled by goes to the
output warpgroups with P. Each softmax warpgroup keeps the sum of its own blocks; the two are added at the end.

A barrier's waiter never falls two completions behind: block j's maximum is waited for before that of j + 2 is sent,
an item's last factor before that of the next item is stored, and a slot is refilled only after its release.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.core import _aggregate as aggregate

from mla_core.layouts import wgmma
from mla_core.layouts.wgmma import WGMMA_ROWS
from mla_core.stages.bulk_copy import issue_bulk_load
from mla_core.stages.hopper_sync import sync_partition
from mla_decode.hopper.cursor import first_cursor
from mla_decode.hopper.parts import Part
from mla_decode.hopper.planner import BLOCK_N
from mla_decode.hopper.pool import ELEMENT_BYTES, KV_LORA_RANK, PIECE, PIECES, ROPE, Pool, clear_hidden_keys
from mla_decode.hopper.results import Results
from mla_decode.hopper.softmax import finite_reference, is_masked, visible_keys

SOFTMAX_WARPGROUPS = gl.constexpr(2)
OUTPUT_WARPGROUPS = gl.constexpr(2)
STORERS = gl.constexpr(3)
"""Warpgroups that store something of an item: softmax 0 (lse) and both output ones."""
MERGE_COLUMNS = gl.constexpr(128)
FLOAT_COLUMNS = gl.constexpr(4)  # of a lane's 128-bit store

SOFTMAX_REGISTERS = 96
OUTPUT_REGISTERS = 160
"""Registers of a thread: four warpgroups share 65536, and a 64 x 256 fp32 accumulator takes 128."""


@aggregate
class Tiles:
    """Shared memory of a workgroup. Index [slot] is a softmax warpgroup's; a piece of slot s is `s * 4 + i`."""

    q: gl.shared_memory_descriptor  # [4, 1, 64, 128]
    q_rope: gl.shared_memory_descriptor  # [1, 1, 64, 64]
    latent: gl.shared_memory_descriptor  # [8, 1, 64, 128]
    rope_or_p: gl.shared_memory_descriptor  # [2, 1, 64, 64]
    rescale: gl.shared_memory_descriptor  # [2, 64] fp32
    maximum: gl.shared_memory_descriptor  # [2, 64] fp32
    last: gl.shared_memory_descriptor  # [2, 64] fp32: sum and maximum of softmax 1
    factor: gl.shared_memory_descriptor  # [1, 64] fp32
    q_full: gl.shared_memory_descriptor
    q_empty: gl.shared_memory_descriptor
    near_full: gl.shared_memory_descriptor  # [2] pieces 0 and 2 of a block
    far_full: gl.shared_memory_descriptor  # [2] pieces 1 and 3, RoPE
    near_empty: gl.shared_memory_descriptor
    far_empty: gl.shared_memory_descriptor  # with P
    p_full: gl.shared_memory_descriptor  # [2] with rescale
    maximum_full: gl.shared_memory_descriptor  # [2]
    last_full: gl.shared_memory_descriptor
    factor_full: gl.shared_memory_descriptor
    factor_empty: gl.shared_memory_descriptor
    pieces_ready: gl.shared_memory_descriptor  # [2] pieces of the first and of the last item

    @gluon.constexpr_function
    def __init__(
        self, q, q_rope, latent, rope_or_p, rescale, maximum, last, factor, q_full, q_empty, near_full, far_full,
        near_empty, far_empty, p_full, maximum_full, last_full, factor_full, factor_empty,
        pieces_ready,
    ):  # fmt: skip
        self.q = q
        self.q_rope = q_rope
        self.latent = latent
        self.rope_or_p = rope_or_p
        self.rescale = rescale
        self.maximum = maximum
        self.last = last
        self.factor = factor
        self.q_full = q_full
        self.q_empty = q_empty
        self.near_full = near_full
        self.far_full = far_full
        self.near_empty = near_empty
        self.far_empty = far_empty
        self.p_full = p_full
        self.maximum_full = maximum_full
        self.last_full = last_full
        self.factor_full = factor_full
        self.factor_empty = factor_empty
        self.pieces_ready = pieces_ready

    @gluon.jit
    def issue_q(self, q_desc, q_rope_desc, request, first_row):
        """Starts the copy of a tile of q; rows past the request's last come as zeros."""
        mbarrier.expect(self.q_full, WGMMA_ROWS * (KV_LORA_RANK + ROPE) * ELEMENT_BYTES)
        for piece in gl.static_range(PIECES):
            issue_bulk_load(q_desc, [request, first_row, piece * PIECE], self.q_full, self.q.index(piece))
        issue_bulk_load(q_rope_desc, [request, first_row, KV_LORA_RANK], self.q_full, self.q_rope.index(0))

    @gluon.jit
    def issue_block(self, pool, page, block, SLOT: gl.constexpr, phase):
        """Starts the copy of a block to a slot as the output warpgroups release its halves."""
        near, far = self.near_full.index(SLOT), self.far_full.index(SLOT)
        mbarrier.wait(self.near_empty.index(SLOT), phase ^ 1)
        mbarrier.expect(near, 2 * BLOCK_N * PIECE * ELEMENT_BYTES)
        for piece in gl.static_range(0, PIECES, 2):
            pool.issue_piece(page, block, piece, near, self.latent.index(SLOT * PIECES + piece), True)
        mbarrier.wait(self.far_empty.index(SLOT), phase ^ 1)
        mbarrier.expect(far, BLOCK_N * (2 * PIECE + ROPE) * ELEMENT_BYTES)
        for piece in gl.static_range(1, PIECES, 2):
            pool.issue_piece(page, block, piece, far, self.latent.index(SLOT * PIECES + piece), True)
        pool.issue_rope(page, block, far, self.rope_or_p.index(SLOT), True)

    @gluon.jit
    def compute_scores(self, SLOT: gl.constexpr, phase, zero):
        """S [64, 64] of the block in a slot. `zero` is a 0 that the compiler takes for a new number in each block:
        descriptors of fixed indices would be kept in registers throughout, and there are none to spare."""
        near, far = self.near_full.index(SLOT), self.far_full.index(SLOT)
        q_rope, rope = self.q_rope.index(zero), self.rope_or_p.index(SLOT + zero)
        s = gl.zeros([WGMMA_ROWS, BLOCK_N], gl.float32, wgmma.accumulator(BLOCK_N))
        mbarrier.wait(near, phase)
        for piece in gl.static_range(0, PIECES, 2):
            q, k = self.q.index(zero + piece), self.latent.index(zero + SLOT * PIECES + piece)
            s = warpgroup_mma(
                q.reshape([WGMMA_ROWS, PIECE]),
                k.reshape([BLOCK_N, PIECE]).permute((1, 0)),
                s,
                use_acc=piece > 0,
                is_async=True,
            )
        mbarrier.wait(far, phase)
        for piece in gl.static_range(1, PIECES, 2):
            q, k = self.q.index(zero + piece), self.latent.index(zero + SLOT * PIECES + piece)
            s = warpgroup_mma(
                q.reshape([WGMMA_ROWS, PIECE]), k.reshape([BLOCK_N, PIECE]).permute((1, 0)), s, is_async=True
            )
        s = warpgroup_mma(
            q_rope.reshape([WGMMA_ROWS, ROPE]), rope.reshape([BLOCK_N, ROPE]).permute((1, 0)), s, is_async=True
        )
        return warpgroup_mma_wait(0, deps=[s])

    @gluon.jit
    def clear_hidden(self, SLOT: gl.constexpr, visible):
        """Zeroes the latent rows of a slot from `visible` on."""
        for piece in range(PIECES):
            clear_hidden_keys(self.latent.index(SLOT * PIECES + piece).reshape([BLOCK_N, PIECE]), visible)

    @gluon.jit
    def issue_output(self, piece, slot, o):
        """Starts O += P V for one piece of columns."""
        p, v = self.rope_or_p.index(slot), self.latent.index(slot * PIECES + piece)
        return warpgroup_mma(p.reshape([WGMMA_ROWS, BLOCK_N]), v.reshape([BLOCK_N, PIECE]), o, is_async=True)


@gluon.jit
def run_softmax(
    tiles, pool, results, q_desc, q_rope_desc, part, scale_log2, zero, WG: gl.constexpr, NEGATE: gl.constexpr
):
    """A softmax warpgroup: every second block of each item, from fetching it to handing P on."""
    layout: gl.constexpr = wgmma.accumulator(BLOCK_N)
    by_row: gl.constexpr = gl.SliceLayout(1, layout)
    g: gl.constexpr = results.geometry
    phase = 0  # of the slot's barriers
    maximum_phase = 0
    item_phase = 0
    first_request, last_request = part.load_requests()
    cursor = first_cursor(part, pool, first_request, last_request, WG, SOFTMAX_WARPGROUPS)
    if (WG == 0) & (first_request <= last_request):
        tiles.issue_q(q_desc, q_rope_desc, first_request, part.first_row())
    if cursor.valid():
        tiles.issue_block(pool, cursor.page, cursor.block, WG, phase)
    cursor = cursor.advanced(part, pool, last_request)
    if WG == 1:
        launches = part.load_launches(STORERS)
    for request in range(first_request, last_request + 1):
        tokens, begin, end = part.load_item(request)
        row_max = gl.full([WGMMA_ROWS], float("-inf"), gl.float32, by_row)
        row_sum = gl.zeros([WGMMA_ROWS], gl.float32, by_row)
        for block in range(begin + WG, end, SOFTMAX_WARPGROUPS):
            if block == begin + WG:
                mbarrier.wait(tiles.q_full, item_phase)
            s = tiles.compute_scores(WG, phase, zero * block)
            phase ^= 1
            if NEGATE:
                s = -s
            if is_masked(tokens, block, part.first_row(), g):
                key = block * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))
                visible = visible_keys(tokens, part.first_row() + gl.arange(0, WGMMA_ROWS, by_row), g)
                s = gl.where(key[None, :] < visible[:, None], s, float("-inf"))
            block_max = gl.max(s, 1) * scale_log2
            mbarrier.wait(tiles.maximum_full.index(1 - WG), maximum_phase, pred=block > begin)
            previous = tiles.maximum.index(1 - WG).load(by_row)
            if block > begin:
                maximum_phase ^= 1
            else:
                previous = row_max
            latest = gl.maximum(previous, block_max)
            tiles.maximum.index(WG).store(latest)
            mbarrier.arrive(tiles.maximum_full.index(WG), pred=block < end - 1)
            reference = finite_reference(latest)
            p = gl.exp2(s * scale_log2 - reference[:, None])
            tiles.rope_or_p.index(WG).reshape([WGMMA_ROWS, BLOCK_N]).store(p.to(tiles.latent.dtype))
            tiles.rescale.index(WG).store(gl.exp2(previous - reference))
            if tokens - block * BLOCK_N < BLOCK_N:
                tiles.clear_hidden(WG, tokens - block * BLOCK_N)
            fence_async_shared()
            mbarrier.arrive(tiles.p_full.index(WG))
            row_sum = row_sum * gl.exp2(row_max - reference) + gl.sum(p, 1)
            row_max = latest
            if cursor.valid():
                tiles.issue_block(pool, cursor.page, cursor.block, WG, phase)
            cursor = cursor.advanced(part, pool, last_request)
        if begin + WG >= end:
            mbarrier.wait(tiles.q_full, item_phase)
        mbarrier.arrive(tiles.q_empty)
        if WG == 1:
            tiles.last.index(0).store(row_sum)
            tiles.last.index(1).store(row_max)
            mbarrier.arrive(tiles.last_full)
        else:
            mbarrier.wait(tiles.last_full, item_phase)
            if request < last_request:
                mbarrier.wait(tiles.q_empty, item_phase)
                tiles.issue_q(q_desc, q_rope_desc, request + 1, part.first_row())
            other_sum = tiles.last.index(0).load(by_row)
            other_max = tiles.last.index(1).load(by_row)
            latest = gl.maximum(row_max, other_max)
            reference = finite_reference(latest)
            row_sum = row_sum * gl.exp2(row_max - reference) + other_sum * gl.exp2(other_max - reference)
            seen = row_sum > 0
            mbarrier.wait(tiles.factor_empty, item_phase ^ 1)
            tiles.factor.index(0).store(gl.where(seen, 1.0 / row_sum, 0.0))
            mbarrier.arrive(tiles.factor_full)
            lse = gl.where(seen, latest + gl.log2(row_sum), float("-inf"))
            row = part.first_row() + gl.arange(0, WGMMA_ROWS, by_row)
            if part.load_pieces(request) > 1:
                results.store_partial_lse(part.load_slot(request), row, lse, row < g.rows)
                results.publish_piece(part, request)
            else:
                results.store_lse(request, row, lse, row < g.rows)
        item_phase ^= 1
    if WG == 1:
        results.wait_pieces(part, launches, tiles.pieces_ready, STORERS)
    results.merge_pieces(part, tiles.pieces_ready, WG * MERGE_COLUMNS, MERGE_COLUMNS)


@gluon.jit
def store_columns(results, part, request, FIRST_COLUMN: gl.constexpr, o, DTYPE: gl.constexpr):
    """Stores 128 columns of an item's normalised O: rounded to out, or in fp32 to the scratch for a piece."""
    if part.load_pieces(request) > 1:
        scratch_layout: gl.constexpr = wgmma.row_store(PIECE, lane_columns=FLOAT_COLUMNS)
        scratch_row = part.first_row() + gl.arange(0, WGMMA_ROWS, gl.SliceLayout(1, scratch_layout))
        scratch_column = FIRST_COLUMN + gl.arange(0, PIECE, gl.SliceLayout(0, scratch_layout))
        valid = (scratch_row < results.geometry.rows)[:, None]
        lines = gl.convert_layout(o, scratch_layout)
        results.store_partial(part.load_slot(request), scratch_row[:, None], scratch_column[None, :], lines, valid)
    else:
        layout: gl.constexpr = wgmma.row_store(PIECE)
        row = part.first_row() + gl.arange(0, WGMMA_ROWS, gl.SliceLayout(1, layout))
        column = FIRST_COLUMN + gl.arange(0, PIECE, gl.SliceLayout(0, layout))
        values = gl.convert_layout(o.to(DTYPE), layout)
        results.store_out(request, row[:, None], column[None, :], values, (row < results.geometry.rows)[:, None])


@gluon.jit
def run_output(tiles, results, part, HALF: gl.constexpr):
    """An output warpgroup: 256 columns of O, every block of each item in order."""
    layout: gl.constexpr = wgmma.accumulator(PIECE)
    by_row: gl.constexpr = gl.SliceLayout(1, layout)
    near: gl.constexpr = HALF * 2
    far: gl.constexpr = HALF * 2 + 1
    phases = 0  # bit s: of slot s
    item_phase = 0
    first_request, last_request = part.load_requests()
    for request in range(first_request, last_request + 1):
        _, begin, end = part.load_item(request)
        o_near = gl.zeros([WGMMA_ROWS, PIECE], gl.float32, layout)
        o_far = gl.zeros([WGMMA_ROWS, PIECE], gl.float32, layout)
        for block in range(begin, end):
            slot = (block - begin) & 1
            mbarrier.wait(tiles.p_full.index(slot), (phases >> slot) & 1)
            phases ^= 1 << slot
            rescale = tiles.rescale.index(slot).load(by_row)
            near_token = tiles.issue_output(near, slot, o_near * rescale[:, None])
            far_token = tiles.issue_output(far, slot, o_far * rescale[:, None])
            o_near = warpgroup_mma_wait(1, deps=[near_token])
            mbarrier.arrive(tiles.near_empty.index(slot))
            o_far = warpgroup_mma_wait(0, deps=[far_token])
            mbarrier.arrive(tiles.far_empty.index(slot))
        mbarrier.wait(tiles.factor_full, item_phase)
        item_phase ^= 1
        factor = tiles.factor.index(0).load(by_row)
        mbarrier.arrive(tiles.factor_empty)
        store_columns(results, part, request, near * PIECE, o_near * factor[:, None], tiles.latent.dtype)
        store_columns(results, part, request, far * PIECE, o_far * factor[:, None], tiles.latent.dtype)
        if part.load_pieces(request) > 1:
            results.publish_piece(part, request)
    results.merge_pieces(part, tiles.pieces_ready, (SOFTMAX_WARPGROUPS + HALF) * MERGE_COLUMNS, MERGE_COLUMNS)


@gluon.jit
def _barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """COUNT fresh barriers that complete after ARRIVALS arrivals."""
    barriers = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(barriers.index(i), count=ARRIVALS)
    return barriers


@gluon.jit
def _make_tiles(q_desc, q_rope_desc, pool):
    """Allocates the shared memory and sets the barriers up."""
    dtype: gl.constexpr = q_desc.dtype
    vector: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    return Tiles(
        gl.allocate_shared_memory(dtype, [PIECES, 1, WGMMA_ROWS, PIECE], q_desc.layout),
        gl.allocate_shared_memory(dtype, [1, 1, WGMMA_ROWS, ROPE], q_rope_desc.layout),
        gl.allocate_shared_memory(dtype, [2 * PIECES, 1, BLOCK_N, PIECE], pool.piece_desc.layout),
        gl.allocate_shared_memory(dtype, [2, 1, BLOCK_N, ROPE], pool.rope_desc.layout),
        gl.allocate_shared_memory(gl.float32, [2, WGMMA_ROWS], vector),
        gl.allocate_shared_memory(gl.float32, [2, WGMMA_ROWS], vector),
        gl.allocate_shared_memory(gl.float32, [2, WGMMA_ROWS], vector),
        gl.allocate_shared_memory(gl.float32, [1, WGMMA_ROWS], vector),
        _barriers(1, 1).index(0),
        _barriers(1, SOFTMAX_WARPGROUPS).index(0),
        _barriers(2, 1),
        _barriers(2, 1),
        _barriers(2, OUTPUT_WARPGROUPS),
        _barriers(2, OUTPUT_WARPGROUPS),
        _barriers(2, 1),
        _barriers(2, 1),
        _barriers(1, 1).index(0),
        _barriers(1, 1).index(0),
        _barriers(1, OUTPUT_WARPGROUPS).index(0),
        _barriers(2, 1),
    )


@gluon.jit(
    do_not_specialize=["page_table_stride", "zero"], do_not_specialize_on_alignment=["page_table_ptr", "lse_ptr"]
)
def decode_wide(
    q_desc, q_rope_desc, piece_desc, rope_desc, page_table_ptr, page_table_stride, plan_ptr, out_ptr, lse_ptr, scratch_ptr,
    scale_log2, zero, GEOMETRY: gl.constexpr, NEGATE: gl.constexpr, SOFTMAX_REGS: gl.constexpr, OUTPUT_REGS: gl.constexpr,
):  # fmt: skip
    """One program for each row tile of each part."""
    pool = Pool(piece_desc, rope_desc, page_table_ptr, page_table_stride, GEOMETRY.page_blocks)
    results = Results(out_ptr, lse_ptr, scratch_ptr, GEOMETRY)
    part = Part(plan_ptr, GEOMETRY)
    tiles = _make_tiles(q_desc, q_rope_desc, pool)
    fence_async_shared()
    sync_partition()
    gl.warp_specialize(
        [
            (run_softmax, (tiles, pool, results, q_desc, q_rope_desc, part, scale_log2, zero, 0, NEGATE)),
            (run_softmax, (tiles, pool, results, q_desc, q_rope_desc, part, scale_log2, zero, 1, NEGATE)),
            (run_output, (tiles, results, part, 0)),
            (run_output, (tiles, results, part, 1)),
        ],
        [4, 4, 4],
        [SOFTMAX_REGS, OUTPUT_REGS, OUTPUT_REGS],
    )
