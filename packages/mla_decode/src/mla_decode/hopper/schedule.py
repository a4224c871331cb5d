"""Which Config a decode problem gets on Hopper, by rule from Problem and Target."""

from __future__ import annotations

from mla_core.target import Target
from mla_decode.hopper.config import BLOCK_N, NARROW_ROWS, WIDE_ROWS, HopperDecodeConfig
from mla_decode.problem import DecodeProblem

FEW_BLOCKS = 128
"""KV blocks of a whole batch up to which 16-row tiles serve up to `FEW_BLOCKS_ROWS` rows better.

Each of the tiles reads all keys, which L2 serves, but a tile has a quarter of the partial results to merge. Measured on
an H200 with 128 heads and one request: 64 blocks take 19.5 us with narrow tiles and 26.3 with wide ones, 512 blocks
60.7 and 43.3; straight lines through these cross near 140 blocks (docs/experiments-hopper-decode.md).
"""

FEW_BLOCKS_ROWS = 128


def choose(problem: DecodeProblem, target: Target) -> HopperDecodeConfig:
    """Narrow up to 16 query rows, where a tile of 64 would spend most of its products on zeros, and for few blocks.

    A request costs the wide kernel more to start (a larger q, fetched while nothing else goes on), so it prefers
    fewer cuts. The narrow kernel's tile of 32 rows is slower than a padded wide one on long batches (169 us against 160,
    128 requests x 4096 keys x 32 rows), so it is for those who ask for it.
    """
    blocks = problem.batch * -(-problem.max_seqlen_k // BLOCK_N)
    few = blocks <= FEW_BLOCKS and problem.rows <= FEW_BLOCKS_ROWS
    if problem.rows <= NARROW_ROWS[0] or few:
        return HopperDecodeConfig(regime="narrow", block_m=NARROW_ROWS[0], item_cost=2)
    return HopperDecodeConfig(regime="wide", block_m=WIDE_ROWS, item_cost=4)
