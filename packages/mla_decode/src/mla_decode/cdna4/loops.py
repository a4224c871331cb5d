"""The two steady loops: what is in flight while what is computed.

`private_tiles` (groups = 4): each wave works on its own sixteen tokens of tile A and of tile B; a step takes both.

    copies in flight   A B | B A'      | A' B'          | A' B'
    wave                   | wait A    | wait B         |
                           | Q K_A     | Q K_B          | softmax of both, P V
                           | V_A->regs | V_B->regs      |
                           | issue A'  | issue B'       |

V of both tiles rests in registers, so that their LDS takes the next copies before the softmax starts: from the first
step to the last there is no moment with nothing in flight.

`shared_tiles` (groups = 1): all waves work on one tile, two LDS stages alternate.

    copies in flight   0 | 0 1 | 1             | 1 2 ...
    wave                 | issue next, wait    |
                         | Q K, softmax, P V   |
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.stages.uniform import keep_here
from mla_decode.cdna4.attention import (
    clear_tail,
    compute_step,
    concatenate_keys,
    concatenate_values,
    load_keys_and_score,
    load_values,
)
from mla_decode.cdna4.paged_tile import allocate_stages, async_copy, issue_tile, load_page_ids


@gluon.jit
def attend_private_tiles(state, query, keys, begin, unmasked_end, end, cfg: gl.constexpr, geo: gl.constexpr):
    """Softmax state of steps [begin, end), begin < end; steps below unmasked_end < end are seen whole by every row."""
    dtype: gl.constexpr = keys.kv_cache.dtype.element_ty
    origin = keep_here(0)
    a = allocate_stages(dtype, 1, geo)
    b = allocate_stages(dtype, 1, geo)
    issue_tile(a.at(origin), keys.kv_cache, load_page_ids(keys.table_row, 2 * begin, keys.seqlen, cfg, geo), 2 * begin, keys.seqlen, cfg, geo)
    issue_tile(b.at(origin), keys.kv_cache, load_page_ids(keys.table_row, 2 * begin + 1, keys.seqlen, cfg, geo), 2 * begin + 1, keys.seqlen, cfg, geo)
    ids_a = load_page_ids(keys.table_row, 2 * begin + 2, keys.seqlen, cfg, geo)
    ids_b = load_page_ids(keys.table_row, 2 * begin + 3, keys.seqlen, cfg, geo)
    for step in range(begin, unmasked_end):
        state, ids_a, ids_b = _private_step(state, query, keys, a, b, origin, ids_a, ids_b, step, False, True, cfg, geo)
    if geo.rows_differ:
        for step in range(unmasked_end, end - 1):
            state, ids_a, ids_b = _private_step(state, query, keys, a, b, origin, ids_a, ids_b, step, True, True, cfg, geo)
    state, ids_a, ids_b = _private_step(state, query, keys, a, b, origin, ids_a, ids_b, end - 1, True, False, cfg, geo)
    return state


@gluon.jit
def _private_step(
    state, query, keys, a, b, origin, ids_a, ids_b, step, masked: gl.constexpr, more: gl.constexpr, cfg: gl.constexpr, geo: gl.constexpr
):
    next_a = ids_a
    next_b = ids_b
    if more:
        next_a = load_page_ids(keys.table_row, 2 * step + 4, keys.seqlen, cfg, geo)
        next_b = load_page_ids(keys.table_row, 2 * step + 5, keys.seqlen, cfg, geo)
    async_copy.wait_group(1)
    scores_a = load_keys_and_score(query, a.at(0), cfg)
    values_a = load_values(a.at(0), cfg)
    if more:
        issue_tile(a.at(origin + (step >> 31)), keys.kv_cache, ids_a, 2 * step + 2, keys.seqlen, cfg, geo)
        async_copy.wait_group(1)
    else:
        async_copy.wait_group(0)
    scores_b = load_keys_and_score(query, b.at(0), cfg)
    values_b = load_values(b.at(0), cfg)
    if more:
        issue_tile(b.at(origin + (step >> 31)), keys.kv_cache, ids_b, 2 * step + 3, keys.seqlen, cfg, geo)
    scores = concatenate_keys(scores_a, scores_b)
    values = concatenate_values(values_a, values_b)
    if not more:
        values = clear_tail(values, step, keys.seqlen, cfg)
    return compute_step(state, scores, values, step, keys, masked, cfg), next_a, next_b


@gluon.jit
def attend_shared_tiles(state, query, keys, begin, unmasked_end, end, cfg: gl.constexpr, geo: gl.constexpr):
    """As `attend_private_tiles`, for one token group."""
    dtype: gl.constexpr = keys.kv_cache.dtype.element_ty
    origin = keep_here(0)
    stages = allocate_stages(dtype, 2, geo)
    ids = load_page_ids(keys.table_row, begin, keys.seqlen, cfg, geo)
    issue_tile(stages.at(origin), keys.kv_cache, ids, begin, keys.seqlen, cfg, geo)
    ids = load_page_ids(keys.table_row, begin + 1, keys.seqlen, cfg, geo)
    for step in range(begin, unmasked_end):
        state, ids = _shared_step(state, query, keys, stages, ids, step, begin, False, True, cfg, geo)
    if geo.rows_differ:
        for step in range(unmasked_end, end - 1):
            state, ids = _shared_step(state, query, keys, stages, ids, step, begin, True, True, cfg, geo)
    state, ids = _shared_step(state, query, keys, stages, ids, end - 1, begin, True, False, cfg, geo)
    return state


@gluon.jit
def _shared_step(
    state, query, keys, stages, ids, step, begin, masked: gl.constexpr, more: gl.constexpr, cfg: gl.constexpr, geo: gl.constexpr
):
    stage = (step - begin) % 2
    next_ids = ids
    if more:
        next_ids = load_page_ids(keys.table_row, step + 2, keys.seqlen, cfg, geo)
        issue_tile(stages.at(1 - stage), keys.kv_cache, ids, step + 1, keys.seqlen, cfg, geo)
        async_copy.wait_group(1)
    else:
        async_copy.wait_group(0)
    tile = stages.at(stage)
    scores = load_keys_and_score(query, tile, cfg)
    values = load_values(tile, cfg)
    if not more:
        values = clear_tail(values, step, keys.seqlen, cfg)
    return compute_step(state, scores, values, step, keys, masked, cfg), next_ids
