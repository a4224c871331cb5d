"""The Hopper prefill kernel: one producer warp fetches, two warpgroups compute 64 queries each.

A CTA takes tiles of 128 queries of one head from the work queue until there are none, and for each walks the keys in
blocks of 128 from the last visible one back, so that masked blocks come first. S is a block's scores, P its
probabilities, O the output accumulator.

    producer     Q K0   K1 V0   K2 V1   K3 V2 ...        one warp; bulk copies into rings of two K and two V blocks
    consumer 0   S0 | softmax0 | S1 PV0 | softmax1 | S2 PV1 | softmax2 | ...        queries 0..63
    consumer 1   S0 | softmax0 | S1 PV0 | softmax1 | S2 PV1 | softmax2 | ...        queries 64..127

Sj and PV(j-1) are in flight together. softmaxj starts when Sj is done, beside PV(j-1), and while one consumer is in
its softmax the other one's products fill the matrix unit. P stays in registers, as the first operand of PV.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_wait

from mla_core.gluon_compat import aggregate
from mla_core.layouts import wgmma
from mla_core.layouts.wgmma import WGMMA_ROWS
from mla_core.stages.bulk_copy import issue_bulk_load
from mla_core.stages.online_softmax import compute_normalisation
from mla_core.stages.row_mask import compute_visible_values
from mla_prefill.hopper import softmax
from mla_prefill.hopper.config import CONSUMERS as _CONSUMERS
from mla_prefill.hopper.handover import RECORD_SLOTS, Ring, WorkQueue, make_ring
from mla_prefill.hopper.planner import WORDS
from mla_prefill.problem import QK_HEAD_DIM, QK_NOPE_HEAD_DIM, QK_ROPE_HEAD_DIM, V_HEAD_DIM

CONSUMERS = gl.constexpr(_CONSUMERS)
NOPE = gl.constexpr(QK_NOPE_HEAD_DIM)
ROPE = gl.constexpr(QK_ROPE_HEAD_DIM)
QK = gl.constexpr(QK_HEAD_DIM)
V = gl.constexpr(V_HEAD_DIM)
ELEMENT_BYTES = gl.constexpr(2)


@aggregate
class Operands:
    """Where the producer fetches from, and the shared memory it fetches to."""

    q_nope_desc: tma.tensor_descriptor
    q_rope_desc: tma.tensor_descriptor
    k_nope_desc: tma.tensor_descriptor
    k_rope_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    q_nope: gl.shared_memory_descriptor  # [consumers, 64, 128]
    q_rope: gl.shared_memory_descriptor  # [consumers, 64, 64]
    k_nope: gl.shared_memory_descriptor  # [stages, block_n, 128]
    k_rope: gl.shared_memory_descriptor  # [stages, block_n, 64]
    v: gl.shared_memory_descriptor  # [stages, block_n, 128]
    q_full: gl.shared_memory_descriptor
    k_ring: Ring
    v_ring: Ring
    v_cleared: gl.shared_memory_descriptor

    @gluon.constexpr_function
    def __init__(
        self,
        q_nope_desc,
        q_rope_desc,
        k_nope_desc,
        k_rope_desc,
        v_desc,
        q_nope,
        q_rope,
        k_nope,
        k_rope,
        v,
        q_full,
        k_ring,
        v_ring,
        v_cleared,
    ):
        self.q_nope_desc = q_nope_desc
        self.q_rope_desc = q_rope_desc
        self.k_nope_desc = k_nope_desc
        self.k_rope_desc = k_rope_desc
        self.v_desc = v_desc
        self.q_nope = q_nope
        self.q_rope = q_rope
        self.k_nope = k_nope
        self.k_rope = k_rope
        self.v = v
        self.q_full = q_full
        self.k_ring = k_ring
        self.v_ring = v_ring
        self.v_cleared = v_cleared

    @gluon.jit
    def issue_q(self, n, block, row, column):
        """Fetches the n-th tile's queries, whose first block of K is the block-th; column is where the head starts.

        Q of the tile before is free when the last scores of it are done, which is when that block of K is released.
        """
        if n > 0:
            self.k_ring.wait_released(block - 1)
        mbarrier.expect(self.q_full, CONSUMERS * WGMMA_ROWS * QK * ELEMENT_BYTES)
        for wg in gl.static_range(CONSUMERS):
            issue_bulk_load(self.q_nope_desc, [row + wg * WGMMA_ROWS, column], self.q_full, self.q_nope.index(wg))
            issue_bulk_load(
                self.q_rope_desc, [row + wg * WGMMA_ROWS, column + NOPE], self.q_full, self.q_rope.index(wg)
            )

    @gluon.jit
    def issue_k(self, n, row, column):
        """Fetches the n-th block of K."""
        slot = self.k_ring.slot(n)
        self.k_ring.wait_empty(n)
        full = self.k_ring.full.index(slot)
        mbarrier.expect(full, self.k_nope.shape[1] * QK * ELEMENT_BYTES)
        issue_bulk_load(self.k_nope_desc, [row, column], full, self.k_nope.index(slot))
        issue_bulk_load(self.k_rope_desc, [row, column + NOPE], full, self.k_rope.index(slot))

    @gluon.jit
    def issue_v(self, n, row, column):
        """Fetches the n-th block of V."""
        slot = self.v_ring.slot(n)
        self.v_ring.wait_empty(n)
        full = self.v_ring.full.index(slot)
        mbarrier.expect(full, self.v.shape[1] * V * ELEMENT_BYTES)
        issue_bulk_load(self.v_desc, [row, column], full, self.v.index(slot))

    @gluon.jit
    def issue_scores(self, WG: gl.constexpr, n):
        """Starts S = Q K^T of the n-th block, as two groups of matrix instructions."""
        slot = self.k_ring.slot(n)
        BLOCK_N: gl.constexpr = self.k_nope.shape[1]
        zero = gl.zeros([WGMMA_ROWS, BLOCK_N], gl.float32, wgmma.accumulator(BLOCK_N))
        s = warpgroup_mma(
            self.q_nope.index(WG), self.k_nope.index(slot).permute((1, 0)), zero, use_acc=False, is_async=True
        )
        return warpgroup_mma(self.q_rope.index(WG), self.k_rope.index(slot).permute((1, 0)), s, is_async=True)

    @gluon.jit
    def issue_output(self, p, o, n):
        """Starts O += P V of the n-th block."""
        layout: gl.constexpr = wgmma.register_operand(wgmma.accumulator(V))
        operand = softmax.unpack_pairs(p, self.v.dtype, layout)
        return warpgroup_mma(operand, self.v.index(self.v_ring.slot(n)), o, is_async=True)

    @gluon.jit
    def clear_hidden_values(self, WG: gl.constexpr, n, visible, cleared):
        """Zeroes the rows of the n-th block of V past `visible`, which may hold anything; 0 times NaN is NaN.

        Each consumer clears its half and waits for the other's. Returns the number of clearances so far.
        """
        BLOCK_N: gl.constexpr = self.v.shape[1]
        HALF: gl.constexpr = BLOCK_N // CONSUMERS
        layout: gl.constexpr = wgmma.row_store(V)
        if visible < BLOCK_N:
            self.v_ring.wait_full(n)
            half = self.v.index(self.v_ring.slot(n)).slice(WG * HALF, HALF, 0)
            row = WG * HALF + gl.arange(0, HALF, gl.SliceLayout(1, layout))
            values = half.load(layout)
            half.store(compute_visible_values(values, row[:, None], visible))
            fence_async_shared()
            mbarrier.arrive(self.v_cleared, count=1)
            mbarrier.wait(self.v_cleared, cleared & 1)
            cleared += 1
        return cleared


@gluon.jit
def mask_scores(s, keys, first_key, WG: gl.constexpr, IS_CAUSAL: gl.constexpr):
    """-inf for the keys that a row does not see; first_key is the block's, counted from the sequence's first."""
    if IS_CAUSAL:
        return softmax.mask_from(s, keys.first_visible - first_key + WG * WGMMA_ROWS, 1)
    else:
        return softmax.mask_from(s, keys.last_visible - first_key, 0)


@gluon.jit
def produce(
    operands,
    queue,
    K_HEAD_STRIDE: gl.constexpr,
    Q_HEAD_STRIDE: gl.constexpr,
    V_HEAD_STRIDE: gl.constexpr,
    GROUP: gl.constexpr,
    BLOCK_N: gl.constexpr,
):
    """The producer warp: claims tiles, passes them on, and fetches Q, K and V in the order of their use.

    The next tile is claimed shortly before this one's last block: CTAs that claim early drift over more heads, and
    their K and V no longer fit in L2 together.
    """
    record = queue.existing(gl.program_id(0))
    fetch = queue.load_fetch(record)
    queue.publish(0, fetch)
    item = 0
    block = 0
    while fetch.head >= 0:
        left = fetch.blocks
        row = fetch.kv_row
        k_column = fetch.head // GROUP * K_HEAD_STRIDE
        v_column = fetch.head // GROUP * V_HEAD_STRIDE
        operands.issue_k(block, row, k_column)
        operands.issue_q(item, block, fetch.q_row, fetch.head * Q_HEAD_STRIDE)
        if left < 3:
            record = queue.claim()
            fetch = queue.load_fetch(record)
        while left > 1:
            left -= 1
            operands.issue_k(block + 1, row - BLOCK_N, k_column)
            operands.issue_v(block, row, v_column)
            block += 1
            row -= BLOCK_N
            if left == 2:
                record = queue.claim()
                fetch = queue.load_fetch(record)
        operands.issue_v(block, row, v_column)
        block += 1
        item += 1
        queue.publish(item, fetch)


@gluon.jit
def compute_block(
    operands,
    keys,
    WG: gl.constexpr,
    n,
    first_key,
    p,
    o,
    row_max,
    lane_sum,
    scale_log2,
    MASKED: gl.constexpr,
    IS_CAUSAL: gl.constexpr,
    NEGATE: gl.constexpr,
):
    """One turn of the steady loop: S of block n and PV of the block before, in flight together, and softmax of n."""
    operands.k_ring.wait_full(n)
    s = operands.issue_scores(WG, n)
    operands.v_ring.wait_full(n - 1)
    o = operands.issue_output(p, o, n - 1)
    s = warpgroup_mma_wait(1, [s])
    operands.k_ring.release(n)
    if NEGATE:
        s = -s
    if MASKED:
        s = mask_scores(s, keys, first_key, WG, IS_CAUSAL)
    next_p, row_max, lane_sum, decay = softmax.compute_next(s, row_max, lane_sum, scale_log2, MASKED)
    o, p = warpgroup_mma_wait(0, [o, p])
    operands.v_ring.release(n - 1)
    o_layout: gl.constexpr = wgmma.accumulator(V)
    p = softmax.pack_pairs(next_p, operands.v.dtype)
    o = o * gl.convert_layout(decay, gl.SliceLayout(1, o_layout))[:, None]
    return p, o, row_max, lane_sum


@gluon.jit
def store_rows(
    rows,
    WG: gl.constexpr,
    o,
    row_max,
    row_sum,
    scale_log2,
    out_ptr,
    lse_ptr,
    HEADS: gl.constexpr,
    OUT_TOKEN_STRIDE: gl.constexpr,
    OUT_HEAD_STRIDE: gl.constexpr,
    RETURN_LSE: gl.constexpr,
):
    """Writes the consumer's rows of out and lse that belong to the sequence."""
    row_layout: gl.constexpr = row_max.type.layout
    o_layout: gl.constexpr = wgmma.accumulator(V)
    factor, lse = compute_normalisation(row_max * scale_log2, row_sum)
    if RETURN_LSE:
        row = WG * WGMMA_ROWS + gl.arange(0, WGMMA_ROWS, row_layout)
        place = (rows.q_row + row).to(gl.int64) * HEADS + rows.head
        gl.store(lse_ptr + place, lse, mask=row < rows.q_rows)
    factor = gl.convert_layout(factor, gl.SliceLayout(1, o_layout))
    result = (o * factor[:, None]).to(out_ptr.dtype.element_ty)
    layout: gl.constexpr = wgmma.row_store(V)
    row = WG * WGMMA_ROWS + gl.arange(0, WGMMA_ROWS, gl.SliceLayout(1, layout))
    column = gl.arange(0, V, gl.SliceLayout(0, layout))
    start = (rows.q_row + row).to(gl.int64) * OUT_TOKEN_STRIDE + rows.head * OUT_HEAD_STRIDE
    gl.store(
        out_ptr + start[:, None] + column[None, :], gl.convert_layout(result, layout), mask=(row < rows.q_rows)[:, None]
    )


@gluon.jit
def consume(
    operands,
    queue,
    WG: gl.constexpr,
    out_ptr,
    lse_ptr,
    scale_log2,
    HEADS: gl.constexpr,
    OUT_TOKEN_STRIDE: gl.constexpr,
    OUT_HEAD_STRIDE: gl.constexpr,
    BLOCK_N: gl.constexpr,
    IS_CAUSAL: gl.constexpr,
    RETURN_LSE: gl.constexpr,
    NEGATE: gl.constexpr,
):
    """A consumer warpgroup: 64 rows of each tile that the producer passes on."""
    o_layout: gl.constexpr = wgmma.accumulator(V)
    item = 0
    block = 0
    cleared = 0
    while queue.wait_record(item):
        keys = queue.load_keys(item)
        blocks = keys.blocks
        last_key = (blocks - 1) * BLOCK_N

        mbarrier.wait(operands.q_full, item & 1)
        operands.k_ring.wait_full(block)
        s = operands.issue_scores(WG, block)
        s = warpgroup_mma_wait(0, [s])
        operands.k_ring.release(block)
        if NEGATE:
            s = -s
        s = mask_scores(s, keys, last_key, WG, IS_CAUSAL)
        first_p, row_max, lane_sum = softmax.compute_first(s, scale_log2)
        p = softmax.pack_pairs(first_p, operands.v.dtype)
        o = gl.zeros([WGMMA_ROWS, V], gl.float32, o_layout)
        cleared = operands.clear_hidden_values(WG, block, keys.last_visible - last_key, cleared)

        start = 1
        if IS_CAUSAL:
            start = keys.masked_blocks(BLOCK_N)
            for j in range(1, start):
                p, o, row_max, lane_sum = compute_block(
                    operands,
                    keys,
                    WG,
                    block + j,
                    last_key - j * BLOCK_N,
                    p,
                    o,
                    row_max,
                    lane_sum,
                    scale_log2,
                    True,
                    IS_CAUSAL,
                    NEGATE,
                )
        for j in range(start, blocks):
            p, o, row_max, lane_sum = compute_block(
                operands, keys, WG, block + j, 0, p, o, row_max, lane_sum, scale_log2, False, IS_CAUSAL, NEGATE
            )

        block += blocks
        operands.v_ring.wait_full(block - 1)
        o = operands.issue_output(p, o, block - 1)
        o, p = warpgroup_mma_wait(0, [o, p])
        operands.v_ring.release(block - 1)
        row_sum = softmax.compute_row_sum(lane_sum, row_max)
        store_rows(
            queue.load_rows(item),
            WG,
            o,
            row_max,
            row_sum,
            scale_log2,
            out_ptr,
            lse_ptr,
            HEADS,
            OUT_TOKEN_STRIDE,
            OUT_HEAD_STRIDE,
            RETURN_LSE,
        )
        item += 1


@gluon.jit
def mla_prefill_hopper(
    q_nope_desc,  # [total_q, columns of q] in boxes [64, 128]
    q_rope_desc,  # the same in boxes [64, 64]
    k_nope_desc,  # [total_kv, columns of k] in boxes [block_n, 128]
    k_rope_desc,  # the same in boxes [block_n, 64]
    v_desc,  # [total_kv, columns of v] in boxes [block_n, 128]
    out_ptr,  # [total_q, heads, 128]
    lse_ptr,  # [total_q, heads] fp32, or None
    table_ptr,  # the planner's table
    scale_log2,  # |softmax_scale| * log2(e)
    cfg: gl.constexpr,
    HEADS: gl.constexpr,
    GROUP: gl.constexpr,
    Q_HEAD_STRIDE: gl.constexpr,
    K_HEAD_STRIDE: gl.constexpr,
    V_HEAD_STRIDE: gl.constexpr,
    OUT_TOKEN_STRIDE: gl.constexpr,
    OUT_HEAD_STRIDE: gl.constexpr,
    IS_CAUSAL: gl.constexpr,
    RETURN_LSE: gl.constexpr,
    NEGATE: gl.constexpr,
):
    """Persistent kernel, one CTA an SM. NEGATE: softmax_scale is negative."""
    BLOCK_N: gl.constexpr = cfg.block_n
    STAGES: gl.constexpr = cfg.kv_stages
    tile_layout: gl.constexpr = wgmma.swizzled_tile()
    dtype: gl.constexpr = out_ptr.dtype.element_ty
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full, count=1)
    v_cleared = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(v_cleared, count=CONSUMERS)
    operands = Operands(
        q_nope_desc,
        q_rope_desc,
        k_nope_desc,
        k_rope_desc,
        v_desc,
        gl.allocate_shared_memory(dtype, [CONSUMERS, WGMMA_ROWS, NOPE], tile_layout),
        gl.allocate_shared_memory(dtype, [CONSUMERS, WGMMA_ROWS, ROPE], tile_layout),
        gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, NOPE], tile_layout),
        gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, ROPE], tile_layout),
        gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, V], tile_layout),
        q_full,
        make_ring(STAGES, CONSUMERS),
        make_ring(STAGES, CONSUMERS),
        v_cleared,
    )
    records = gl.allocate_shared_memory(gl.int32, [RECORD_SLOTS, WORDS], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    queue = WorkQueue(table_ptr, records, make_ring(RECORD_SLOTS, CONSUMERS))
    fence_async_shared()
    gdc_wait()  # until here nothing was read that the planner writes
    gl.warp_specialize(
        [
            (
                consume,
                (
                    operands,
                    queue,
                    0,
                    out_ptr,
                    lse_ptr,
                    scale_log2,
                    HEADS,
                    OUT_TOKEN_STRIDE,
                    OUT_HEAD_STRIDE,
                    BLOCK_N,
                    IS_CAUSAL,
                    RETURN_LSE,
                    NEGATE,
                ),
            ),
            (
                consume,
                (
                    operands,
                    queue,
                    1,
                    out_ptr,
                    lse_ptr,
                    scale_log2,
                    HEADS,
                    OUT_TOKEN_STRIDE,
                    OUT_HEAD_STRIDE,
                    BLOCK_N,
                    IS_CAUSAL,
                    RETURN_LSE,
                    NEGATE,
                ),
            ),
            (produce, (operands, queue, K_HEAD_STRIDE, Q_HEAD_STRIDE, V_HEAD_STRIDE, GROUP, BLOCK_N)),
        ],
        [4, 1],
        [cfg.consumer_registers, cfg.producer_registers],
    )
