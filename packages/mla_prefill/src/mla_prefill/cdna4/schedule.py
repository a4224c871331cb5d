"""Rule of the gfx950 prefill solution: Problem and Target to Config."""

from __future__ import annotations

from mla_core.target import Target
from mla_prefill.cdna4.config import CDNA4PrefillConfig
from mla_prefill.problem import PrefillProblem


def choose(problem: PrefillProblem, target: Target) -> CDNA4PrefillConfig:
    """The default Config."""
    return CDNA4PrefillConfig(block_m=128, block_n=64, num_warps=4)
