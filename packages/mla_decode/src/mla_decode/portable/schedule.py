"""Rules of the `triton` decode solution: Problem and Target to Config, and how many ways KV is split."""

from __future__ import annotations

from mla_core.target import Target
from mla_decode.portable.config import MIN_DOT, TritonDecodeConfig
from mla_decode.problem import DecodeProblem

SPLIT_COST_TOKENS = 96
"""What a split costs besides its keys (prologue, partial results, merge), in KV tokens of a workgroup's time."""


def choose(problem: DecodeProblem, target: Target) -> TritonDecodeConfig:
    """The default Config."""
    block_m = MIN_DOT
    while block_m < min(problem.rows, 64):
        block_m *= 2
    return TritonDecodeConfig(
        block_m=block_m,
        block_n=32,
        num_warps=4 if block_m < 64 else 8,
        num_stages=2,
        within_2gb=problem.kv.within_2gb,
        interpreted=target.backend == "cpu",
    )


def plan_splits(problem: DecodeProblem, target: Target, config: TritonDecodeConfig) -> tuple[int, int]:
    """(num_splits, split_tokens): the fewest splits that finish the longest sequence soonest.

    With s splits the machine works off ceil(workgroups * s / compute_units) waves, each as long as one split:
    ceil(max_seqlen_k / s) keys, and SPLIT_COST_TOKENS where s > 1. The hint max_seqlen_k only schedules: the kernel
    lengthens the splits of a sequence that num_splits of them would not hold.
    """
    workgroups = max(problem.batch, 1) * -(-problem.rows // config.block_m)
    blocks = max(-(-problem.max_seqlen_k // config.block_n), 1)

    def cost(splits: int) -> int:
        waves = -(-workgroups * splits // target.compute_units)
        return waves * (-(-blocks // splits) * config.block_n + (SPLIT_COST_TOKENS if splits > 1 else 0))

    num_splits = min(range(1, min(config.max_splits, blocks) + 1), key=lambda splits: (cost(splits), splits))
    split_blocks = -(-blocks // num_splits)
    return -(-blocks // split_blocks), split_blocks * config.block_n
