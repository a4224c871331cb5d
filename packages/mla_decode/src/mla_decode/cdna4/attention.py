"""Attention of one query tile to a range of KV tiles: the steady loops, one for each way of sharing a tile.

Tensors are `[groups, rows, ...]`: a token group has keys, running maximum and accumulator of its own. The matrix
instruction takes the group as its batch dimension.

    sharing              tile is read by      LDS reads a wave      exchange between waves in the loop
    groups = 4 waves     its group alone      its 16 tokens         none
    groups = 1           all four waves       rows x columns split  row maxima and P
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.gluon_compat import aggregate
from mla_core.layouts.cdna4 import mfma_layout
from mla_core.stages.online_softmax import (
    ROW_MAX_START,
    compute_decay,
    compute_probabilities,
    compute_row_max,
)
from mla_core.stages.row_mask import compute_masked_scores, compute_visible_values
from mla_core.stages.uniform import keep_in_lanes, keep_order
from mla_decode.cdna4.paged_tile import TILE_TOKENS, async_copy, view_latent, view_rope

QK_WIDTH = gl.constexpr(8)
"""Consecutive columns of Q and K in a lane: one 16-byte LDS read."""

PV_WIDTH = gl.constexpr(4)
"""Consecutive tokens of P and V in a lane: what a lane holds of S, and what a transposed LDS read of V brings."""


@aggregate
class Query:
    """One query tile in registers as the left operand: latent `[groups, rows, 512]`, rope `[groups, rows, 64]`."""

    latent: gl.tensor
    rope: gl.tensor


@aggregate
class Softmax:
    """State of the rows: row_max `[groups, rows]`, row_sum `[groups, rows, waves]` (a part for each wave that shares
    the row's keys), acc `[groups, rows, 512]` fp32."""

    row_max: gl.tensor
    row_sum: gl.tensor
    acc: gl.tensor


@gluon.jit
def start_softmax(cfg: gl.constexpr, geo: gl.constexpr):
    """State before the first key."""
    layout: gl.constexpr = mfma_layout(cfg.mfma_rows, cfg.waves)
    keys: gl.constexpr = cfg.step_keys
    return Softmax(
        gl.full([cfg.groups, cfg.rows], ROW_MAX_START, gl.float32, gl.SliceLayout(2, layout)),
        _wave_sums(gl.zeros([cfg.groups, cfg.rows, keys], gl.float32, layout), cfg),
        gl.zeros([cfg.groups, cfg.rows, geo.kv_lora_rank], gl.float32, layout),
    )


@gluon.jit
def _wave_sums(p, cfg: gl.constexpr):
    """Sum of `[groups, rows, keys]` over the keys that one wave holds: `[groups, rows, waves]`."""
    parts: gl.constexpr = [cfg.groups, cfg.rows, cfg.column_waves, p.shape[2] // cfg.column_waves]
    return gl.sum(p.reshape(parts), 3)


@gluon.jit
def load_query(q, request, first_row, cfg: gl.constexpr, geo: gl.constexpr):
    """The Query of folded rows [first_row, first_row + rows) of a request; rows behind the last are 0."""
    return Query(
        _load_query_columns(q, request, first_row, 0, geo.kv_lora_rank, cfg, geo),
        _load_query_columns(q, request, first_row, geo.kv_lora_rank, geo.qk_rope_head_dim, cfg, geo),
    )


@gluon.jit
def _load_query_columns(
    q, request, first_row, first_column: gl.constexpr, columns: gl.constexpr, cfg: gl.constexpr, geo: gl.constexpr
):
    mma: gl.constexpr = mfma_layout(cfg.mfma_rows, cfg.waves)
    layout: gl.constexpr = gl.DotOperandLayout(0, mma, k_width=QK_WIDTH)
    group = gl.arange(0, cfg.groups, layout=gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
    row = first_row + gl.arange(0, cfg.rows, layout=gl.SliceLayout(0, gl.SliceLayout(2, layout)))[None, :, None]
    column = gl.arange(0, columns, layout=gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
    token = (row // geo.heads).to(gl.int64)
    head = (row % geo.heads).to(gl.int64)
    base = q + request.to(gl.int64) * geo.q_stride_batch + first_column
    offsets = token * geo.q_stride_token + head * geo.q_stride_head + (group * 0 + column)
    return gl.load(base + offsets, mask=row < geo.rows, other=0.0)


@gluon.jit
def load_keys_and_score(query, tile, cfg: gl.constexpr):
    """Raw scores `[groups, rows, 64 / groups]` of a tile in LDS."""
    mma: gl.constexpr = mfma_layout(cfg.mfma_rows, cfg.waves)
    layout: gl.constexpr = gl.DotOperandLayout(1, mma, k_width=QK_WIDTH)
    scores = gl.zeros([cfg.groups, cfg.rows, cfg.group_tokens], gl.float32, mma)
    k = async_copy.load_shared_relaxed(view_latent(tile, cfg).permute([0, 2, 1]), layout)
    scores = gl.amd.cdna4.mfma(query.latent, k, scores)
    k = async_copy.load_shared_relaxed(view_rope(tile, cfg).permute([0, 2, 1]), layout)
    return gl.amd.cdna4.mfma(query.rope, k, scores)


@gluon.jit
def load_values(tile, cfg: gl.constexpr):
    """V `[groups, 64 / groups, 512]` of a tile: the latent of the same rows, read transposed."""
    return _load_value_columns(tile, 0, tile.latent.shape[2], cfg)


@gluon.jit
def _load_value_columns(tile, first: gl.constexpr, columns: gl.constexpr, cfg: gl.constexpr):
    mma: gl.constexpr = mfma_layout(cfg.mfma_rows, cfg.waves)
    layout: gl.constexpr = gl.DotOperandLayout(1, mma, k_width=PV_WIDTH)
    part = view_latent(tile, cfg).slice(first, columns, dim=2)
    return async_copy.load_shared_relaxed(part, layout)


@gluon.jit
def concatenate_keys(first, second):
    """Scores of two tiles side by side: `[groups, rows, 2 x keys]`, the first tile's keys first."""
    shape: gl.constexpr = [first.shape[0], first.shape[1], 2 * first.shape[2]]
    joined = gl.join(first, second).permute([0, 1, 3, 2]).reshape(shape)
    return gl.convert_layout(joined, first.type.layout)


@gluon.jit
def concatenate_values(first, second):
    """Values of two tiles one below the other: `[groups, 2 x keys, columns]`."""
    shape: gl.constexpr = [first.shape[0], 2 * first.shape[1], first.shape[2]]
    joined = gl.join(first, second).permute([0, 3, 1, 2]).reshape(shape)
    return gl.convert_layout(joined, first.type.layout)


@gluon.jit
def _key_numbers(layout: gl.constexpr, cfg: gl.constexpr, axis: gl.constexpr):
    """Number of each of a step's keys, by position, along `axis` of a tensor `[groups, rows, keys]` (2) or
    `[groups, keys, columns]` (1).

    Key j of group g is token `j % group_tokens` of the group in tile `j // group_tokens` of the step.
    """
    other: gl.constexpr = 3 - axis
    group = gl.arange(0, cfg.groups, layout=gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
    key = gl.arange(0, cfg.step_keys, layout=gl.SliceLayout(0, gl.SliceLayout(other, layout)))
    key = gl.expand_dims(gl.expand_dims(key, 0), other)
    return key // cfg.group_tokens * TILE_TOKENS + group * cfg.group_tokens + key % cfg.group_tokens


@gluon.jit
def clear_tail(values, step, seqlen, cfg: gl.constexpr):
    """V of a step with 0 behind the end of the sequence: there P is 0, and 0 times what a free row holds may be NaN."""
    layout: gl.constexpr = values.type.layout
    visible = keep_in_lanes(seqlen - step * cfg.step_tokens)
    return compute_visible_values(values, _key_numbers(layout, cfg, 1), visible)


@gluon.jit
def compute_softmax(state, scores, dtype: gl.constexpr, step, keys, masked: gl.constexpr, cfg: gl.constexpr):
    """Online softmax of the keys of one step: (P as left operand in `dtype`, state with acc decayed)."""
    mma: gl.constexpr = mfma_layout(cfg.mfma_rows, cfg.waves)
    p_layout: gl.constexpr = gl.DotOperandLayout(0, mma, k_width=PV_WIDTH)
    scores = scores * keys.scale_log2
    if masked:
        visible = keep_in_lanes(keys.visible - step * cfg.step_tokens)
        scores = compute_masked_scores(scores, _key_numbers(mma, cfg, 2), visible)
    row_max = compute_row_max(scores, state.row_max)
    decay = compute_decay(state.row_max, row_max)
    p = compute_probabilities(scores, row_max)
    sum_layout: gl.constexpr = state.row_sum.type.layout
    sum_decay = gl.convert_layout(gl.expand_dims(decay, 2), sum_layout)
    row_sum = state.row_sum * sum_decay + _wave_sums(p, cfg)
    p = gl.convert_layout(p.to(dtype), p_layout)
    return p, Softmax(row_max, row_sum, state.acc * gl.expand_dims(decay, 2))


@gluon.jit
def compute_step(state, scores, values, step, keys, masked: gl.constexpr, cfg: gl.constexpr):
    """Online softmax and P V of the keys of one step. Returns the new Softmax."""
    p, state = compute_softmax(state, scores, values.dtype, step, keys, masked, cfg)
    return Softmax(state.row_max, state.row_sum, gl.amd.cdna4.mfma(p, values, state.acc))


@gluon.jit
def compute_last_step(state, scores, tile, step, keys, cfg: gl.constexpr):
    """As `compute_step`, masked, with V of the tile loaded and cleared in two halves of the columns, one after the
    other: cleared values need vector registers, which do not hold all of V beside the accumulator."""
    half: gl.constexpr = tile.latent.shape[2] // 2
    p, state = compute_softmax(state, scores, tile.latent.dtype, step, keys, True, cfg)
    layout: gl.constexpr = state.acc.type.layout
    shape: gl.constexpr = state.acc.shape
    first, second = state.acc.reshape([shape[0], shape[1], 2, half]).permute([0, 1, 3, 2]).split()
    values = clear_tail(_load_value_columns(tile, 0, half, cfg), step, keys.seqlen, cfg)
    first = gl.amd.cdna4.mfma(p, values, gl.convert_layout(first, layout))
    keep_order()
    values = clear_tail(_load_value_columns(tile, half, half, cfg), step, keys.seqlen, cfg)
    second = gl.amd.cdna4.mfma(p, values, gl.convert_layout(second, layout))
    acc = gl.join(first, second).permute([0, 1, 3, 2]).reshape(shape)
    return Softmax(state.row_max, state.row_sum, gl.convert_layout(acc, layout))
