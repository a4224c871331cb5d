"""Merge of partial results: requests that the decode kernel cut into several items.

Each request's items are consecutive, so their number may differ from request to request. With m the
largest log-sum-exp of a row's partial results (natural base, arXiv:2205.14135 section 3.1 for the recurrence):

    out = sum_s exp(lse_s - m) out_s / sum_s exp(lse_s - m)        lse = m + log(sum_s exp(lse_s - m))
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.stages.online_softmax import LN_2, LOG2_E
from mla_core.stages.uniform import make_uniform
from mla_decode.cdna4.epilogue import store_result
from mla_decode.cdna4.partials import load_item_range, partial_row_starts

MERGE_WARPS = 4

SPLIT_LANES = gl.constexpr(16)
"""Partial results that a workgroup adds up at once: four a wave, all columns of each."""

LSE_LANES = gl.constexpr(64)
"""Log-sum-exps that a wave looks at at once."""


@gluon.jit
def _largest_lse(scratch, batch, first, splits, row, geo: gl.constexpr):
    """Largest log-sum-exp of a row over its partial results; 0 where none is finite."""
    lane = gl.arange(0, LSE_LANES, layout=gl.BlockedLayout([1], [64], [gl.num_warps()], [0]))
    largest = float("-inf")
    for start in range(0, splits, LSE_LANES):
        split = start + lane
        offsets = partial_row_starts(batch, first + split, row, geo) + geo.kv_lora_rank
        largest = gl.maximum(largest, gl.max(gl.load(scratch + offsets, mask=split < splits, other=float("-inf")), 0))
    return gl.where(largest == float("-inf"), 0.0, largest)


@gluon.jit(do_not_specialize=["batch", "rows_per_workgroup"])
def merge(
    scratch,
    batch,
    out,
    lse,
    rows_per_workgroup,
    geo: gl.constexpr,
):
    """Writes out and lse of requests in several items; leaves the others alone.

    Grid `(row groups, batch)`; arguments as in `kernel.decode`.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [1, 64], [gl.num_warps(), 1], [1, 0])
    request = gl.program_id(1)
    first, splits = load_item_range(scratch, request)
    first = make_uniform(first)
    splits = make_uniform(splits)
    if splits > 1:
        lane = gl.arange(0, SPLIT_LANES, layout=gl.SliceLayout(1, layout))
        column = gl.arange(0, geo.kv_lora_rank, layout=gl.SliceLayout(0, layout))
        first_row = gl.program_id(0) * rows_per_workgroup
        for row in range(first_row, gl.minimum(first_row + rows_per_workgroup, geo.rows)):
            largest = _largest_lse(scratch, batch, first, splits, row, geo)
            acc = gl.zeros([SPLIT_LANES, geo.kv_lora_rank], gl.float32, layout)
            weights = gl.zeros([SPLIT_LANES], gl.float32, gl.SliceLayout(1, layout))
            for start in range(0, splits, SPLIT_LANES):
                split = start + lane
                inside = split < splits
                starts = partial_row_starts(batch, first + split, row, geo)
                part_lse = gl.load(scratch + (starts + geo.kv_lora_rank), mask=inside, other=float("-inf"))
                part = gl.load(scratch + (starts[:, None] + column[None, :]), mask=inside[:, None], other=0.0)
                weight = gl.exp2((part_lse - largest) * LOG2_E)
                weights += weight
                acc += part * weight[:, None]
            total = gl.sum(weights, 0)
            empty = total == 0.0
            divisor = gl.where(empty, 1.0, total)
            merged = gl.expand_dims(gl.sum(acc, 0), 0) / divisor
            merged_lse = gl.where(empty, float("-inf"), largest + gl.log2(divisor) * LN_2)
            row_layout: gl.constexpr = gl.SliceLayout(1, merged.type.layout)
            store_result(merged, gl.full([1], 0.0, gl.float32, row_layout) + merged_lse, out, lse, request, row, geo)
