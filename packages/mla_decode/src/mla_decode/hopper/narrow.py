"""The narrow decode kernel: up to 32 query rows, two warpgroups that each own half of the columns.

Query rows are the N side of every product: S^T = K Q^T and O^T = V^T P^T, so that few rows are not padded to the 64
of wgmma's M side. A warpgroup fetches its half of a block's columns (256 latent ones; warpgroup 1 the RoPE ones too),
sums its half of S^T, adds the other's half, and accumulates its half of O^T. Both compute the same softmax, bit by bit.

    warpgroup 0   S0' | add | softmax0 | PV0 | fetch 2 | S1' | add | softmax1 | PV1 | fetch 3 | ...
    warpgroup 1   S0''| add | softmax0 | PV0 | fetch 2 | S1''| add | softmax1 | PV1 | fetch 3 | ...

S' and S'' are exchanged through shared memory, in two buffers that blocks use in turn; a warpgroup writes a buffer
again only after the other has sent the block between, which it does after reading this one. Nobody else touches a
warpgroup's half of a slot, so it refills it, with the block after next, possibly of another request, on its own.
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
from mla_core.stages.bulk_copy import issue_bulk_load
from mla_core.stages.hopper_sync import sync_partition
from mla_decode.hopper.cursor import first_cursor
from mla_decode.hopper.parts import Part
from mla_decode.hopper.planner import BLOCK_N
from mla_decode.hopper.pool import ELEMENT_BYTES, KV_LORA_RANK, PIECE, PIECES, ROPE, Pool, clear_hidden_keys
from mla_decode.hopper.results import Results
from mla_decode.hopper.softmax import finite_reference, is_masked, visible_keys

WARPGROUPS = gl.constexpr(2)
HALF_PIECES = gl.constexpr(2)
HALF_COLUMNS = gl.constexpr(256)
SLOTS = gl.constexpr(2)


@aggregate
class Tiles:
    """Shared memory of a workgroup; N is the tile's query rows. Index [warpgroup * 2 + slot] where both have one."""

    q: gl.shared_memory_descriptor  # [4, 1, N, 128]
    q_rope: gl.shared_memory_descriptor  # [1, 1, N, 64]
    latent: gl.shared_memory_descriptor  # [8, 1, 64, 128], piece i of slot s at s * 4 + i
    rope: gl.shared_memory_descriptor  # [2, 1, 64, 64]
    scores: gl.shared_memory_descriptor  # [4, 64, N] fp32
    p: gl.shared_memory_descriptor  # [2, 64, N]
    q_full: gl.shared_memory_descriptor  # [2]
    block_full: gl.shared_memory_descriptor  # [4]
    scores_full: gl.shared_memory_descriptor  # [4]
    pieces_ready: gl.shared_memory_descriptor  # [2] pieces of the first and of the last item

    @gluon.constexpr_function
    def __init__(self, q, q_rope, latent, rope, scores, p, q_full, block_full, scores_full, pieces_ready):
        self.q = q
        self.q_rope = q_rope
        self.latent = latent
        self.rope = rope
        self.scores = scores
        self.p = p
        self.q_full = q_full
        self.block_full = block_full
        self.scores_full = scores_full
        self.pieces_ready = pieces_ready

    @gluon.jit
    def issue_q(self, q_desc, q_rope_desc, request, first_row, WG: gl.constexpr):
        """Starts the copy of this warpgroup's columns of a tile of q; rows past the request's last come as zeros."""
        ROWS: gl.constexpr = self.scores.shape[2]
        full = self.q_full.index(WG)
        mbarrier.expect(full, ROWS * (HALF_COLUMNS + WG * ROPE) * ELEMENT_BYTES)
        for half in gl.static_range(HALF_PIECES):
            issue_bulk_load(
                q_desc,
                [request, first_row, (WG * HALF_PIECES + half) * PIECE],
                full,
                self.q.index(WG * HALF_PIECES + half),
            )
        if WG == 1:
            issue_bulk_load(q_rope_desc, [request, first_row, KV_LORA_RANK], full, self.q_rope.index(0))

    @gluon.jit
    def issue_block(self, pool, page, block, slot, valid, WG: gl.constexpr):
        """Starts the copy of this warpgroup's columns of a block to a slot, where `valid`."""
        full = self.block_full.index(WG * SLOTS + slot)
        mbarrier.expect(full, BLOCK_N * (HALF_COLUMNS + WG * ROPE) * ELEMENT_BYTES, pred=valid)
        for half in gl.static_range(HALF_PIECES):
            destination = self.latent.index(slot * PIECES + WG * HALF_PIECES + half)
            pool.issue_piece(page, block, WG * HALF_PIECES + half, full, destination, valid)
        if WG == 1:
            pool.issue_rope(page, block, full, self.rope.index(slot), valid)

    @gluon.jit
    def key_piece(self, slot, piece):
        """A piece of a slot as `[64, 128]`."""
        return self.latent.index(slot * PIECES + piece).reshape([BLOCK_N, PIECE])

    @gluon.jit
    def compute_scores(self, slot, WG: gl.constexpr):
        """This warpgroup's share of S^T [64, N] of the block in a slot."""
        ROWS: gl.constexpr = self.scores.shape[2]
        s = gl.zeros([BLOCK_N, ROWS], gl.float32, wgmma.accumulator(ROWS))
        for half in gl.static_range(HALF_PIECES):
            q = self.q.index(WG * HALF_PIECES + half).reshape([ROWS, PIECE]).permute((1, 0))
            s = warpgroup_mma(self.key_piece(slot, WG * HALF_PIECES + half), q, s, use_acc=half > 0, is_async=True)
        if WG == 1:
            q_rope = self.q_rope.index(0).reshape([ROWS, ROPE]).permute((1, 0))
            s = warpgroup_mma(self.rope.index(slot).reshape([BLOCK_N, ROPE]), q_rope, s, is_async=True)
        return warpgroup_mma_wait(0, deps=[s])

    @gluon.jit
    def exchange_scores(self, s, buffer, phase, WG: gl.constexpr):
        """S^T: this warpgroup's share plus the other's."""
        self.scores.index(WG * 2 + buffer).store(s)
        mbarrier.arrive(self.scores_full.index(WG * 2 + buffer))
        mbarrier.wait(self.scores_full.index((1 - WG) * 2 + buffer), phase)
        return s + self.scores.index((1 - WG) * 2 + buffer).load(wgmma.accumulator(self.scores.shape[2]))

    @gluon.jit
    def clear_hidden(self, slot, visible, WG: gl.constexpr):
        """Zeroes the latent rows of this warpgroup's half of a slot from `visible` on."""
        for half in gl.static_range(HALF_PIECES):
            clear_hidden_keys(self.key_piece(slot, WG * HALF_PIECES + half), visible)

    @gluon.jit
    def issue_output(self, slot, HALF: gl.constexpr, o, WG: gl.constexpr):
        """Starts O^T += V^T P^T for one piece of columns; o is `[128, N]`."""
        return warpgroup_mma(
            self.key_piece(slot, WG * HALF_PIECES + HALF).permute((1, 0)), self.p.index(WG), o, is_async=True
        )


@gluon.jit
def store_columns(results, part, request, pieces, FIRST_COLUMN: gl.constexpr, o):
    """Stores 128 columns of an item's normalised O^T: rounded to out, or in fp32 to the scratch for a piece."""
    COLUMNS: gl.constexpr = o.shape[0]
    ROWS: gl.constexpr = o.shape[1]
    layout: gl.constexpr = wgmma.accumulator(ROWS)
    row = part.first_row() + gl.arange(0, ROWS, gl.SliceLayout(0, layout))
    column = FIRST_COLUMN + gl.arange(0, COLUMNS, gl.SliceLayout(1, layout))
    valid = (row < results.geometry.rows)[None, :]
    if pieces > 1:
        results.store_partial(part.load_slot(request), row[None, :], column[:, None], o, valid)
    else:
        results.store_out(request, row[None, :], column[:, None], o, valid)


@gluon.jit
def run_half(tiles, pool, results, part, q_desc, q_rope_desc, scale_log2, WG: gl.constexpr, NEGATE: gl.constexpr):
    """One of the two warpgroups: every block of each item."""
    ROWS: gl.constexpr = tiles.scores.shape[2]
    layout: gl.constexpr = wgmma.accumulator(ROWS)
    by_row: gl.constexpr = gl.SliceLayout(0, layout)
    g: gl.constexpr = results.geometry
    first_request, last_request = part.load_requests()
    cursor = first_cursor(part, pool, first_request, last_request, 0, 1)
    for free in gl.static_range(SLOTS):
        tiles.issue_block(pool, cursor.page, cursor.block, free, cursor.valid(), WG)
        cursor = cursor.advanced(part, pool, last_request)
    if WG == 0:
        launches = part.load_launches(WARPGROUPS)
    turn = 0  # blocks so far; slot and buffer are its low bit
    item_phase = 0
    for request in range(first_request, last_request + 1):
        tokens, begin, end = part.load_item(request)
        tiles.issue_q(q_desc, q_rope_desc, request, part.first_row(), WG)
        row_max = gl.full([ROWS], float("-inf"), gl.float32, by_row)
        p_sum = gl.zeros([BLOCK_N, ROWS], gl.float32, layout)  # summed over the keys at the end
        o_near = gl.zeros([PIECE, ROWS], gl.float32, layout)
        o_far = gl.zeros([PIECE, ROWS], gl.float32, layout)
        mbarrier.wait(tiles.q_full.index(WG), item_phase)
        item_phase ^= 1
        for block in range(begin, end):
            slot = turn & 1
            phase = (turn >> 1) & 1
            mbarrier.wait(tiles.block_full.index(WG * SLOTS + slot), phase)
            s = tiles.compute_scores(slot, WG)
            s = tiles.exchange_scores(s, slot, phase, WG)
            if NEGATE:
                s = -s
            if is_masked(tokens, block, part.first_row(), g):
                key = block * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(1, layout))
                visible = visible_keys(tokens, part.first_row() + gl.arange(0, ROWS, by_row), g)
                s = gl.where(key[:, None] < visible[None, :], s, float("-inf"))
            new_max = gl.maximum(row_max, gl.max(s, 0) * scale_log2)
            reference = finite_reference(new_max)
            rescale = gl.exp2(row_max - reference)[None, :]
            p = gl.exp2(s * scale_log2 - reference[None, :])
            tiles.p.index(WG).store(p.to(tiles.latent.dtype))
            if tokens - block * BLOCK_N < BLOCK_N:
                tiles.clear_hidden(slot, tokens - block * BLOCK_N, WG)
            fence_async_shared()
            sync_partition()
            near_token = tiles.issue_output(slot, 0, o_near * rescale, WG)
            far_token = tiles.issue_output(slot, 1, o_far * rescale, WG)
            p_sum = p_sum * rescale + p
            row_max = new_max
            o_near, o_far = warpgroup_mma_wait(0, deps=[near_token, far_token])
            sync_partition()
            tiles.issue_block(pool, cursor.page, cursor.block, slot, cursor.valid(), WG)
            cursor = cursor.advanced(part, pool, last_request)
            turn += 1
        row_sum = gl.sum(p_sum, 0)
        seen = row_sum > 0
        factor = gl.where(seen, 1.0 / row_sum, 0.0)[None, :]
        pieces = part.load_pieces(request)
        store_columns(results, part, request, pieces, WG * HALF_COLUMNS, o_near * factor)
        store_columns(results, part, request, pieces, WG * HALF_COLUMNS + PIECE, o_far * factor)
        if WG == 0:
            lse = gl.where(seen, row_max + gl.log2(row_sum), float("-inf"))
            row = part.first_row() + gl.arange(0, ROWS, by_row)
            if pieces > 1:
                results.store_partial_lse(part.load_slot(request), row, lse, row < g.rows)
            else:
                results.store_lse(request, row, lse, row < g.rows)
        if pieces > 1:
            results.publish_piece(part, request)
    if WG == 0:
        results.wait_pieces(part, launches, tiles.pieces_ready, WARPGROUPS)
    results.merge_pieces(part, tiles.pieces_ready, WG * HALF_COLUMNS, HALF_COLUMNS)


@gluon.jit
def _barriers(COUNT: gl.constexpr):
    """COUNT fresh barriers that complete after one arrival."""
    barriers = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(barriers.index(i), count=1)
    return barriers


@gluon.jit(
    do_not_specialize=["page_table_stride", "zero"], do_not_specialize_on_alignment=["page_table_ptr", "lse_ptr"]
)
def decode_narrow(
    q_desc, q_rope_desc, piece_desc, rope_desc, page_table_ptr, page_table_stride, plan_ptr, out_ptr, lse_ptr, scratch_ptr,
    scale_log2, zero, GEOMETRY: gl.constexpr, NEGATE: gl.constexpr,
):  # fmt: skip
    """One program for each row tile of each part."""
    pool = Pool(piece_desc, rope_desc, page_table_ptr, page_table_stride, GEOMETRY.page_blocks)
    results = Results(out_ptr, lse_ptr, scratch_ptr, GEOMETRY)
    part = Part(plan_ptr, GEOMETRY)
    dtype: gl.constexpr = q_desc.dtype
    ROWS: gl.constexpr = GEOMETRY.tile_rows
    p_layout: gl.constexpr = gl.NVMMASharedLayout(ROWS * 2, 16, 2)
    tiles = Tiles(
        gl.allocate_shared_memory(dtype, [PIECES, 1, ROWS, PIECE], q_desc.layout),
        gl.allocate_shared_memory(dtype, [1, 1, ROWS, ROPE], q_rope_desc.layout),
        gl.allocate_shared_memory(dtype, [SLOTS * PIECES, 1, BLOCK_N, PIECE], piece_desc.layout),
        gl.allocate_shared_memory(dtype, [SLOTS, 1, BLOCK_N, ROPE], rope_desc.layout),
        gl.allocate_shared_memory(
            gl.float32, [2 * WARPGROUPS, BLOCK_N, ROWS], gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
        ),
        gl.allocate_shared_memory(dtype, [WARPGROUPS, BLOCK_N, ROWS], p_layout),
        _barriers(WARPGROUPS),
        _barriers(WARPGROUPS * SLOTS),
        _barriers(WARPGROUPS * 2),
        _barriers(2),
    )
    fence_async_shared()
    sync_partition()
    gl.warp_specialize(
        [
            (run_half, (tiles, pool, results, part, q_desc, q_rope_desc, scale_log2, 0, NEGATE)),
            (run_half, (tiles, pool, results, part, q_desc, q_rope_desc, scale_log2, 1, NEGATE)),
        ],
        [4],
        [240],
    )
