"""The steady loops: what is in flight while what is computed. One loop for each way of sharing a tile.

`attend_private_tiles` (groups = 4): each wave works on its own sixteen tokens of tile A and of tile B; a step takes
both. V of both rests in registers, so that their LDS takes the next copies before the softmax starts: from the first
step to the last there is no moment with nothing in flight.

    copies in flight    A B  |  B            |  A'            |  A' B'
    wave                     |  wait A       |  wait B        |  softmax of both
                             |  Q K_A, V_A   |  Q K_B, V_B    |  P V
                             |  issue A'     |  issue B'      |

`attend_shared_tiles` (groups = 1): all waves work on one tile; two LDS stages take turns.

    copies in flight    0  |  0 1         |  1                    |  1 2 ...
    wave                   |  issue next  |  wait for this        |
                           |              |  Q K, softmax, P V    |

Only the steps in which some row does not see every key are masked: for one query token the last step, for more of
them the last two at most (three steps' worth of code would not fit the registers, so a masked step does not
overlap the copies of the next).
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.stages.uniform import keep_here, keep_order
from mla_decode.cdna4.attention import (
    clear_tail,
    compute_last_step,
    compute_step,
    concatenate_keys,
    concatenate_values,
    load_keys_and_score,
    load_values,
)
from mla_decode.cdna4.paged_tile import allocate_stages, async_copy, issue_tile, load_page_ids, wait_page_ids


@gluon.jit
def attend_private_tiles(state, query, keys, begin, unmasked_end, end, cfg: gl.constexpr, geo: gl.constexpr):
    """Softmax state after the steps [begin, end). Every row sees all keys of the steps below unmasked_end < end."""
    dtype: gl.constexpr = keys.kv_cache.dtype.element_ty
    a = allocate_stages(dtype, 1, cfg, geo)
    b = allocate_stages(dtype, 1, cfg, geo)
    origin = keep_here(0)
    ids_a = load_page_ids(keys, 2 * begin, cfg, geo)
    ids_b = load_page_ids(keys, 2 * begin + 1, cfg, geo)
    next_a = load_page_ids(keys, 2 * begin + 2, cfg, geo)
    next_b = load_page_ids(keys, 2 * begin + 3, cfg, geo)
    issue_tile(a.at(origin), wait_page_ids(ids_a, cfg), keys, 2 * begin, cfg, geo)
    issue_tile(b.at(origin), wait_page_ids(ids_b, cfg), keys, 2 * begin + 1, cfg, geo)
    ids_a = wait_page_ids(next_a, cfg)
    ids_b = wait_page_ids(next_b, cfg)
    for step in range(begin, unmasked_end):
        next_a = load_page_ids(keys, 2 * step + 4, cfg, geo)
        next_b = load_page_ids(keys, 2 * step + 5, cfg, geo)
        here = origin + (step >> 31)
        async_copy.wait_group(1)
        scores_a = load_keys_and_score(query, a.at(0), cfg)
        values_a = load_values(a.at(0), cfg)
        issue_tile(a.at(here), ids_a, keys, 2 * step + 2, cfg, geo)
        async_copy.wait_group(1)
        scores_b = load_keys_and_score(query, b.at(0), cfg)
        values_b = load_values(b.at(0), cfg)
        issue_tile(b.at(here), ids_b, keys, 2 * step + 3, cfg, geo)
        values = concatenate_values(values_a, values_b)
        state = compute_step(state, concatenate_keys(scores_a, scores_b), values, step, keys, False, cfg)
        ids_a = wait_page_ids(next_a, cfg)
        ids_b = wait_page_ids(next_b, cfg)
    for step in range(unmasked_end, end):
        async_copy.wait_group(0)
        scores_a = load_keys_and_score(query, a.at(0), cfg)
        keep_order()
        scores_b = load_keys_and_score(query, b.at(0), cfg)
        keep_order()
        values = concatenate_values(load_values(a.at(0), cfg), load_values(b.at(0), cfg))
        values = clear_tail(values, step, keys.seqlen, cfg)
        state = compute_step(state, concatenate_keys(scores_a, scores_b), values, step, keys, True, cfg)
        if step + 1 < end:
            here = keep_here(0)
            ids_a = load_page_ids(keys, 2 * step + 2, cfg, geo)
            ids_b = load_page_ids(keys, 2 * step + 3, cfg, geo)
            issue_tile(a.at(here), wait_page_ids(ids_a, cfg), keys, 2 * step + 2, cfg, geo)
            issue_tile(b.at(here), wait_page_ids(ids_b, cfg), keys, 2 * step + 3, cfg, geo)
    return state


@gluon.jit
def attend_shared_tiles(state, query, keys, begin, unmasked_end, end, cfg: gl.constexpr, geo: gl.constexpr):
    """As `attend_private_tiles`, for one token group."""
    dtype: gl.constexpr = keys.kv_cache.dtype.element_ty
    stages = allocate_stages(dtype, 2, cfg, geo)
    origin = keep_here(0)
    ids = load_page_ids(keys, begin, cfg, geo)
    next_ids = load_page_ids(keys, begin + 1, cfg, geo)
    issue_tile(stages.at(origin), wait_page_ids(ids, cfg), keys, begin, cfg, geo)
    ids = wait_page_ids(next_ids, cfg)
    for step in range(begin, unmasked_end):
        stage = (step - begin) % 2
        next_ids = load_page_ids(keys, step + 2, cfg, geo)
        issue_tile(stages.at(1 - stage), ids, keys, step + 1, cfg, geo)
        async_copy.wait_group(1)
        scores = load_keys_and_score(query, stages.at(stage), cfg)
        state = compute_step(state, scores, load_values(stages.at(stage), cfg), step, keys, False, cfg)
        ids = wait_page_ids(next_ids, cfg)
    for step in range(unmasked_end, end):
        stage = (step - begin) % 2
        async_copy.wait_group(0)
        scores = load_keys_and_score(query, stages.at(stage), cfg)
        state = compute_last_step(state, scores, stages.at(stage), step, keys, cfg)
        if step + 1 < end:
            ids = wait_page_ids(load_page_ids(keys, step + 1, cfg, geo), cfg)
            issue_tile(stages.at(1 - stage), ids, keys, step + 1, cfg, geo)
    return state
