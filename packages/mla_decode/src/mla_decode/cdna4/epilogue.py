"""What happens after the last key: token groups meet, rows are normalised, and leave as result or as partial result."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.layouts.cdna4 import group_exchange_layout, group_sum_layout
from mla_core.stages.online_softmax import compute_decay, compute_normalisation


@gluon.jit
def compute_rows(state, cfg: gl.constexpr, geo: gl.constexpr):
    """Normalised rows `[rows, 512]` fp32 and their log-sum-exp `[rows]`, natural base, from a Softmax."""
    if cfg.groups == 1:
        row_sum = gl.sum(state.row_sum, 2)
        row_sum = gl.convert_layout(row_sum, state.row_max.type.layout)
        factor, lse = compute_normalisation(state.row_max, row_sum)
        acc = state.acc * gl.expand_dims(factor, 2)
        acc = acc.reshape([cfg.rows, geo.kv_lora_rank])
        lse = lse.reshape([cfg.rows])
        layout: gl.constexpr = acc.type.layout
        return acc, gl.convert_layout(lse, gl.SliceLayout(1, layout))
    else:
        return _compute_rows_of_groups(state, cfg, geo)


@gluon.jit
def _compute_rows_of_groups(state, cfg: gl.constexpr, geo: gl.constexpr):
    """Each group scales its rows to the common maximum and sum; the sum over the groups goes through LDS."""
    best = gl.max(state.row_max, 0)
    best = gl.convert_layout(gl.expand_dims(best, 0), state.row_max.type.layout)
    decay = compute_decay(state.row_max, best)
    row_sum = gl.convert_layout(gl.sum(state.row_sum, 2), state.row_max.type.layout) * decay
    row_sum = gl.convert_layout(gl.expand_dims(gl.sum(row_sum, 0), 0), state.row_max.type.layout)
    factor, lse = compute_normalisation(best, row_sum)
    acc = state.acc * gl.expand_dims(decay * factor, 2)
    shape: gl.constexpr = [cfg.groups, cfg.rows, geo.kv_lora_rank]
    exchange = gl.allocate_shared_memory(gl.float32, shape, group_exchange_layout(shape[0], shape[1], shape[2]))
    exchange.store(acc)
    rows = gl.sum(exchange.load(group_sum_layout(cfg.groups, cfg.num_warps)), 0)
    layout: gl.constexpr = rows.type.layout
    return rows, gl.convert_layout(lse.reshape([cfg.rows]), gl.SliceLayout(1, layout))


@gluon.jit
def store_result(rows, lse, out, lse_out, request, first_row, geo: gl.constexpr):
    """Stores `[rows, 512]` fp32 as the final result, rounded to out's dtype, and lse where it is asked for."""
    layout: gl.constexpr = rows.type.layout
    row = first_row + gl.arange(0, rows.shape[0], layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, rows.shape[1], layout=gl.SliceLayout(0, layout))
    token = (row // geo.heads).to(gl.int64)
    head = (row % geo.heads).to(gl.int64)
    base = out + request.to(gl.int64) * geo.out_stride_batch
    starts = token * geo.out_stride_token + head * geo.out_stride_head
    inside = row < geo.rows
    gl.store(base + (starts[:, None] + column[None, :]), rows.to(out.dtype.element_ty), mask=inside[:, None])
    if geo.return_lse:
        gl.store(lse_out + (request.to(gl.int64) * geo.rows + row), lse, mask=inside)
