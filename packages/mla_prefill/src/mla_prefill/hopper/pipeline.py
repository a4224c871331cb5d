"""The Hopper prefill kernel: one producer warp fetches, two warpgroups compute 64 queries each.

A CTA takes tiles of 128 queries of one head from the work queue until there are none, and for each walks the keys in
blocks of 128 from the last visible one back, so that masked blocks come first. S is a block's scores, P its
probabilities, O the output accumulator.

    producer     Q K0   K1 V0   K2 V1   K3 V2 ...        one warp; bulk copies into rings of two K and two V blocks
    consumer 0   S0 | softmax0 | S1 PV0 | softmax1 | S2 PV1 | softmax2 | ...        queries 0..63
    consumer 1   S0 | softmax0 | S1 PV0 | softmax1 | S2 PV1 | softmax2 | ...        queries 64..127

Sj and PV(j-1) are in flight together. softmaxj starts when Sj is done, beside PV(j-1), and while one consumer is in
its softmax the other one's products fill the matrix unit. P stays in registers, as the first operand of PV.

With `overlap_tiles`, S0 of the next tile starts behind this tile's last PV, and is computed while O is written:

    ... | softmax(n-1) | PV(n-1), S0 of the next tile | write O | softmax0 of the next tile | ...
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, warpgroup_mma_wait
from triton.language.extra.cuda import gdc_wait

from mla_core.layouts import wgmma
from mla_core.layouts.wgmma import WGMMA_ROWS
from mla_core.stages.online_softmax import compute_normalisation
from mla_prefill.hopper import softmax
from mla_prefill.hopper.config import BLOCK_N as _BLOCK_N
from mla_prefill.hopper.config import STAGES as _STAGES
from mla_prefill.hopper.handover import RECORD_SLOTS, WorkQueue, make_ring
from mla_prefill.hopper.operands import CONSUMERS, NOPE, Operands, V
from mla_prefill.hopper.planner import WORDS
from mla_prefill.problem import QK_ROPE_HEAD_DIM

BLOCK_N = gl.constexpr(_BLOCK_N)
STAGES = gl.constexpr(_STAGES)
ROPE = gl.constexpr(QK_ROPE_HEAD_DIM)


@gluon.jit
def produce(operands, queue, geo: gl.constexpr):
    """The producer warp: claims tiles, passes them on, and fetches Q, K and V in the order of their use.

    The next tile is claimed shortly before this one's last block: CTAs that claim early drift over more heads, and
    their K and V no longer fit in L2 together.
    """
    fetch = queue.load_first()
    queue.publish(0, fetch)
    item = 0
    block = 0
    while fetch.head >= 0:
        left = fetch.blocks
        row = fetch.kv_row
        k_column = fetch.head // geo.group * geo.k_head_stride
        v_column = fetch.head // geo.group * geo.v_head_stride
        operands.issue_k(block, row, k_column)
        operands.issue_q(item, block, fetch.q_row, fetch.head * geo.q_head_stride)
        if left < 3:
            fetch = queue.claim()
        while left > 1:
            left -= 1
            operands.issue_k(block + 1, row - BLOCK_N, k_column)
            operands.issue_v(block, row, v_column)
            block += 1
            row -= BLOCK_N
            if left == 2:
                fetch = queue.claim()
        operands.issue_v(block, row, v_column)
        block += 1
        item += 1
        queue.publish(item, fetch)


@gluon.jit
def mask_scores(s, keys, first_key, WG: gl.constexpr, geo: gl.constexpr):
    """-inf for the keys that a row does not see; first_key is the block's, counted from the sequence's first."""
    if geo.is_causal:
        return softmax.mask_from(s, keys.first_visible - first_key + WG * WGMMA_ROWS, 1)
    else:
        return softmax.mask_from(s, keys.last_visible - first_key, 0)


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
    geo: gl.constexpr,
):
    """One turn of the steady loop: S of block n and PV of the block before, in flight together, and softmax of n."""
    operands.k_ring.wait_full(n)
    s = operands.issue_scores(WG, n)
    operands.v_ring.wait_full(n - 1)
    o = operands.issue_output(p, o, n - 1)
    s = warpgroup_mma_wait(1, [s])
    operands.k_ring.release(n)
    if geo.negate:
        s = -s
    if MASKED:
        s = mask_scores(s, keys, first_key, WG, geo)
    next_p, row_max, lane_sum, decay = softmax.compute_next(s, row_max, lane_sum, scale_log2, MASKED)
    o, p = warpgroup_mma_wait(0, [o, p])
    operands.v_ring.release(n - 1)
    p = softmax.pack_pairs(next_p, operands.v.dtype)
    o = o * gl.convert_layout(decay, gl.SliceLayout(1, wgmma.accumulator(V)))[:, None]
    return p, o, row_max, lane_sum


@gluon.jit
def store_rows(rows, WG: gl.constexpr, o, row_max, lane_sum, scale_log2, out_ptr, lse_ptr, geo: gl.constexpr):
    """Writes the consumer's rows of out and lse that belong to the sequence."""
    row_sum = softmax.compute_row_sum(lane_sum, row_max)
    factor, lse = compute_normalisation(row_max * scale_log2, row_sum)
    if geo.return_lse:
        row = WG * WGMMA_ROWS + gl.arange(0, WGMMA_ROWS, row_max.type.layout)
        place = (rows.q_row + row).to(gl.int64) * geo.heads + rows.head
        gl.store(lse_ptr + place, lse, mask=row < rows.q_rows)
    factor = gl.convert_layout(factor, gl.SliceLayout(1, wgmma.accumulator(V)))
    result = (o * factor[:, None]).to(out_ptr.dtype.element_ty)
    layout: gl.constexpr = wgmma.row_store(V)
    row = WG * WGMMA_ROWS + gl.arange(0, WGMMA_ROWS, gl.SliceLayout(1, layout))
    column = gl.arange(0, V, gl.SliceLayout(0, layout))
    start = (rows.q_row + row).to(gl.int64) * geo.out_token_stride + rows.head * geo.out_head_stride
    gl.store(
        out_ptr + start[:, None] + column[None, :], gl.convert_layout(result, layout), mask=(row < rows.q_rows)[:, None]
    )


@gluon.jit
def consume(operands, queue, WG: gl.constexpr, out_ptr, lse_ptr, scale_log2, OVERLAP: gl.constexpr, geo: gl.constexpr):
    """A consumer warpgroup: 64 rows of each tile that the producer passes on."""
    item = 0
    block = 0
    cleared = 0
    more = queue.wait_record(item)
    if OVERLAP:
        operands.wait_first(item, block, more)
        s = operands.issue_scores(WG, block)
        s = warpgroup_mma_wait(0, [s])
        operands.k_ring.release_if(block, more)
    while more:
        keys = queue.load_keys(item)
        last_key = (keys.blocks - 1) * BLOCK_N

        if not OVERLAP:
            operands.wait_first(item, block, True)
            s = operands.issue_scores(WG, block)
            s = warpgroup_mma_wait(0, [s])
            operands.k_ring.release(block)
        if geo.negate:
            s = -s
        s = mask_scores(s, keys, last_key, WG, geo)
        first_p, row_max, lane_sum = softmax.compute_first(s, scale_log2)
        p = softmax.pack_pairs(first_p, operands.v.dtype)
        o = gl.zeros([WGMMA_ROWS, V], gl.float32, wgmma.accumulator(V))
        cleared = operands.clear_hidden_values(WG, block, keys.last_visible - last_key, cleared)

        start = 1
        if geo.is_causal:
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
                    geo,
                )
        for j in range(start, keys.blocks):
            p, o, row_max, lane_sum = compute_block(
                operands, keys, WG, block + j, 0, p, o, row_max, lane_sum, scale_log2, False, geo
            )

        block += keys.blocks
        if OVERLAP:
            more = queue.wait_record(item + 1)
        operands.v_ring.wait_full(block - 1)
        o = operands.issue_output(p, o, block - 1)
        if OVERLAP:
            operands.wait_first(item + 1, block, more)
            s = operands.issue_scores(WG, block)
            o, p = warpgroup_mma_wait(2, [o, p])
        else:
            o, p = warpgroup_mma_wait(0, [o, p])
        operands.v_ring.release(block - 1)
        store_rows(queue.load_rows(item), WG, o, row_max, lane_sum, scale_log2, out_ptr, lse_ptr, geo)
        if OVERLAP:
            s = warpgroup_mma_wait(0, [s])
            operands.k_ring.release_if(block, more)
        else:
            more = queue.wait_record(item + 1)
        item += 1


@gluon.jit
def mla_prefill_hopper(
    q_nope_desc,  # [total_q, columns of q] in boxes [64, 128]
    q_rope_desc,  # the same in boxes [64, 64]
    k_nope_desc,  # [total_kv, columns of k] in boxes [128, 128]
    k_rope_desc,  # the same in boxes [128, 64]
    v_desc,  # [total_kv, columns of v] in boxes [128, 128]
    out_ptr,  # [total_q, heads, 128]
    lse_ptr,  # [total_q, heads] fp32, or None
    table_ptr,  # the planner's table
    scale_log2,  # |softmax_scale| * log2(e)
    cfg: gl.constexpr,
    geo: gl.constexpr,
):
    """Persistent kernel, one CTA an SM."""
    OVERLAP: gl.constexpr = cfg.overlap_tiles
    layout: gl.constexpr = wgmma.swizzled_tile()
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
        gl.allocate_shared_memory(dtype, [CONSUMERS, WGMMA_ROWS, NOPE], layout),
        gl.allocate_shared_memory(dtype, [CONSUMERS, WGMMA_ROWS, ROPE], layout),
        gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, NOPE], layout),
        gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, ROPE], layout),
        gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, V], layout),
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
            (consume, (operands, queue, 0, out_ptr, lse_ptr, scale_log2, OVERLAP, geo)),
            (consume, (operands, queue, 1, out_ptr, lse_ptr, scale_log2, OVERLAP, geo)),
            (produce, (operands, queue, geo)),
        ],
        [4, 1],
        [cfg.consumer_registers, cfg.producer_registers],
    )
