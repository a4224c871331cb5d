"""From a Problem and a Target to the Config of the gfx950 decode kernel, and how many workgroups run."""

from __future__ import annotations

from mla_core.problem import ELEMENT_BYTES, MAX_INT32
from mla_core.stages.split_bounds import max_items
from mla_core.target import Target
from mla_decode.cdna4.config import TILE_TOKENS, WAVE_TOKENS, CDNA4DecodeConfig
from mla_decode.problem import DecodeProblem


def choose(problem: DecodeProblem, target: Target) -> CDNA4DecodeConfig:
    """The default Config: the fewest rows that hold q_len x heads, at most 64, and the widest paging."""
    rows = problem.rows
    regime = "bh16bn64" if rows <= 16 else "bh32bn64" if rows <= 32 else "bh64bn64"
    paging = choose_paging(problem.kv.page_size)
    if not offsets_fit(problem, paging):
        paging = "page_per_token"
    return CDNA4DecodeConfig(regime=regime, paging=paging, within_2gb=offsets_fit(problem, paging))


def choose_paging(page_size: int) -> str:
    """What one page id can serve: a whole tile, a wave's sixteen tokens, or one token."""
    if page_size % TILE_TOKENS == 0:
        return "page_per_tile"
    return "page_per_wave" if page_size % WAVE_TOKENS == 0 else "page_per_token"


def offsets_fit(problem: DecodeProblem, paging: str) -> bool:
    """Whether every byte offset that a lane adds to a scalar base fits a signed 32-bit register.

    With `page_per_tile` the base is the tile's first row; otherwise it is the pool's.
    """
    if paging == "page_per_tile":
        last = (TILE_TOKENS - 1) * problem.kv.stride_token + problem.kv.head_dim
        return last * ELEMENT_BYTES - 1 <= MAX_INT32
    return problem.kv.within_2gb


def row_blocks(problem: DecodeProblem, config: CDNA4DecodeConfig) -> int:
    """Workgroups that share the keys of one item."""
    return -(-problem.rows // config.rows)


def slots(problem: DecodeProblem, target: Target, config: CDNA4DecodeConfig) -> int:
    """Workgroups of one row block: one for each CU (LDS holds no second), a multiple of the dies, and no more than
    the page table could give work to."""
    most = max(target.compute_units // row_blocks(problem, config), 1)
    needed = problem.batch * max_steps(problem, config)
    return max(min(most, needed) // target.xcds, 1) * target.xcds


def max_steps(problem: DecodeProblem, config: CDNA4DecodeConfig) -> int:
    """Steps of the longest sequence that a row of page_table can hold."""
    return max(-(-problem.max_kv_tokens // config.step_tokens), 1)


def scratch_items(problem: DecodeProblem, target: Target, config: CDNA4DecodeConfig) -> int:
    """Items that partial results are kept for: none where no sequence can be cut."""
    steps = max_steps(problem, config)
    return 0 if steps == 1 else max_items(problem.batch, slots(problem, target, config), steps)
