"""Rule of the `triton` prefill solution: Problem and Target to Config."""

from __future__ import annotations

from mla_core.target import Target
from mla_prefill.portable.config import TritonPrefillConfig
from mla_prefill.problem import PrefillProblem


def choose(problem: PrefillProblem, target: Target) -> TritonPrefillConfig:
    """The default Config."""
    return TritonPrefillConfig(
        block_m=128,
        block_n=64,
        num_warps=8,
        num_stages=2,
        within_2gb=problem.within_2gb,
        interpreted=target.backend == "cpu",
    )
