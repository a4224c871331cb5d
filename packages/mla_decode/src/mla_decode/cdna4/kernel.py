"""The decode kernel: one workgroup's items, one after another.

Grid `(xcds, row blocks, slots / xcds)`. Workgroups go to the dies (XCDs) round-robin in the order of their number, in
which the first coordinate runs fastest, so that coordinate is the die: the row blocks of one slot, which read the same
keys, run on the same die and share its L2.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.layouts.cdna4 import mfma_layout
from mla_core.stages.row_mask import compute_visible_keys
from mla_core.stages.split_plan import (
    PLAN_LANES,
    compute_item_steps,
    compute_split_plan,
    compute_splits,
    divide_up,
    find_item,
)
from mla_core.stages.uniform import keep_here, make_uniform
from mla_decode.cdna4.attention import load_query, start_softmax
from mla_decode.cdna4.epilogue import compute_rows, store_result
from mla_decode.cdna4.loops import attend_private_tiles, attend_shared_tiles
from mla_decode.cdna4.paged_tile import Keys
from mla_decode.cdna4.partials import store_item_range, store_partial


@gluon.jit
def attend(
    q,
    kv_cache,
    table_row,
    request,
    first_row,
    seqlen,
    begin,
    end,
    scale_log2,
    cfg: gl.constexpr,
    geo: gl.constexpr,
):
    """Rows `[rows, 512]` fp32 of one query tile over the steps [begin, end) of a request, and their log-sum-exp."""
    mma: gl.constexpr = mfma_layout(cfg.mfma_rows, cfg.waves)
    state = start_softmax(cfg, geo)
    if begin < end:
        row = first_row + gl.arange(0, cfg.rows, layout=gl.SliceLayout(0, gl.SliceLayout(2, mma)))[None, :, None]
        visible = compute_visible_keys(row, seqlen, geo.heads, geo.q_len, geo.causal)
        least_visible = compute_visible_keys(0, seqlen, geo.heads, geo.q_len, geo.causal)
        unmasked_end = gl.maximum(gl.minimum(least_visible // cfg.step_tokens, end - 1), begin)
        keys = Keys(kv_cache, table_row, seqlen, visible, scale_log2)
        query = load_query(q, request, first_row, cfg, geo)
        if cfg.groups == 1:
            state = attend_shared_tiles(state, query, keys, begin, unmasked_end, end, cfg, geo)
        else:
            state = attend_private_tiles(state, query, keys, begin, unmasked_end, end, cfg, geo)
    return compute_rows(state, cfg, geo)


@gluon.jit(do_not_specialize=["batch", "max_tokens", "page_table_stride", "scale_log2"])
def decode(
    q,
    kv_cache,
    page_table,
    cache_seqlens,
    out,
    lse,
    scratch,
    batch,
    max_tokens,
    page_table_stride,
    scale_log2,
    cfg: gl.constexpr,
    geo: gl.constexpr,
):
    """Writes out and lse of requests in one item, partial results of the others, and the item range of all.

    q, kv_cache, out: pointers to bf16 or fp16; strides are in `geo`. page_table int32, rows page_table_stride apart.
    cache_seqlens int32 `[batch]`. lse fp32 `[batch, rows]` or None. scratch: fp32, laid out as `partials` says.
    max_tokens: what a row of page_table can name. scale_log2: softmax_scale * log2(e).
    """
    # Each wave holds all of the lengths, so that no sum of them goes through LDS.
    plan_layout: gl.constexpr = gl.BlockedLayout([PLAN_LANES // 64], [64], [cfg.num_warps], [0])
    slot = gl.program_id(2) * gl.num_programs(0) + gl.program_id(0)
    slots = gl.num_programs(0) * gl.num_programs(2)
    first_row = gl.program_id(1) * cfg.rows
    plan = compute_split_plan(cache_seqlens, batch, max_tokens, slots, cfg.step_tokens, plan_layout)
    chunk = make_uniform(plan.chunk)
    for item in range(slot, make_uniform(plan.rounds) * slots, slots):
        request, first_item = find_item(item, chunk, cache_seqlens, batch, max_tokens, cfg.step_tokens, plan_layout)
        request = make_uniform(request)
        first_item = make_uniform(first_item)
        if request < batch:
            seqlen = make_uniform(gl.minimum(gl.maximum(gl.load(cache_seqlens + request), 0), max_tokens))
            splits = compute_splits(seqlen, chunk, cfg.step_tokens)
            steps = divide_up(seqlen, cfg.step_tokens)
            begin, end = compute_item_steps(item - first_item, splits, steps)
            if (item == first_item) & (first_row == 0):
                store_item_range(scratch, request, first_item, splits)
            first_row = keep_here(first_row)
            table_row = page_table + request.to(gl.int64) * page_table_stride
            rows, row_lse = attend(q, kv_cache, table_row, request, first_row, seqlen, begin, end, scale_log2, cfg, geo)
            first_row = keep_here(first_row)
            if splits == 1:
                store_result(rows, row_lse, out, lse, request, first_row, geo)
            else:
                store_partial(rows, row_lse, scratch, batch, item, first_row, geo)
