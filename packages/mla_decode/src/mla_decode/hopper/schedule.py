"""Which Config a decode problem gets on Hopper, by rule from Problem and Target."""

from __future__ import annotations

from mla_core.target import Target
from mla_decode.hopper.config import NARROW_ROWS, WIDE_ROWS, HopperDecodeConfig
from mla_decode.problem import DecodeProblem


def choose(problem: DecodeProblem, target: Target) -> HopperDecodeConfig:
    """Narrow up to 32 query rows, where a padded tile of 64 would spend most of its products on zeros; wide above.

    A request costs the wide kernel more to start (a larger q, fetched while nothing else goes on), so it prefers
    fewer cuts.
    """
    for rows in NARROW_ROWS:
        if problem.rows <= rows:
            return HopperDecodeConfig(regime="narrow", block_m=rows, item_cost=2)
    return HopperDecodeConfig(regime="wide", block_m=WIDE_ROWS, item_cost=4)
