"""Rule of the gfx950 prefill solution: Problem and Target to Config."""

from __future__ import annotations

from mla_core.target import Target
from mla_prefill.cdna4.config import CDNA4PrefillConfig
from mla_prefill.problem import PrefillProblem


def choose(problem: PrefillProblem, target: Target) -> CDNA4PrefillConfig:
    """128 queries and 64 keys on 4 waves for every problem: one wave a SIMD, with all its registers, and no spill.

    Larger tiles were compiled and need more registers than there are, smaller ones have more instructions for each
    matrix instruction; `docs/gfx950.md` has the figures.
    """
    return CDNA4PrefillConfig()
