"""The default Config of the Hopper prefill kernel, and the planner's run-time figures, by rule. Imports no Triton."""

from __future__ import annotations

from mla_core.problem import ELEMENT_BYTES
from mla_core.target import Target
from mla_prefill.hopper.config import HopperPrefillConfig
from mla_prefill.problem import QK_HEAD_DIM, V_HEAD_DIM, PrefillProblem

KEY_BYTES = (QK_HEAD_DIM + V_HEAD_DIM) * ELEMENT_BYTES
"""Bytes of K and V of one token and head."""

TAIL_BLOCKS_PER_SM = 3.5
"""Blocks of keys an SM that the tail of shortest tiles holds; more re-reads K and V, fewer leaves SMs idle at the end
(docs/experiments-hopper-prefill.md)."""


OVERLAP_FROM = 8192
"""Keys of the longest sequence from which a causal tile's start is worth overlapping with the end of the one before;
below, and without a mask, the simpler order is faster (docs/experiments-hopper-prefill.md)."""


def choose(problem: PrefillProblem, target: Target) -> HopperPrefillConfig:
    """The default Config: overlapped tiles for long causal sequences."""
    return HopperPrefillConfig(overlap_tiles=problem.is_causal and problem.max_seqlen_kv >= OVERLAP_FROM)


def section_tokens(target: Target) -> int:
    """Tokens of one key head whose K and V fill half of L2: each half of it serves the nearer SMs."""
    return target.l2_bytes // 2 // KEY_BYTES


def tail_blocks(problem: PrefillProblem, target: Target, block_n: int) -> int:
    """Largest tile, in blocks of keys, that comes last.

    A causal sequence has about one tile of each number of blocks, so tiles of up to t blocks are
    batch * heads * t (t + 1) / 2 blocks in all; t is the smallest that gives every SM TAIL_BLOCKS_PER_SM of them, and
    at most a third of the longest tile.
    """
    if not problem.is_causal:
        return 0
    longest = -(-problem.max_seqlen_kv // block_n)
    wanted = TAIL_BLOCKS_PER_SM * target.compute_units
    blocks = 1
    while blocks < longest // 3 and problem.batch * problem.heads * blocks * (blocks + 1) / 2 < wanted:
        blocks += 1
    return min(blocks, longest // 3)
