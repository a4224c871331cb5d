"""Rule of the `triton` prefill solution: Problem and Target to Config."""

from __future__ import annotations

from mla_core.problem import ELEMENT_BYTES
from mla_core.target import Target
from mla_prefill.portable.config import TritonPrefillConfig
from mla_prefill.problem import QK_HEAD_DIM, V_HEAD_DIM, PrefillProblem

IN_PLACE_ARCHS = ("sm_90", "sm_100", "sm_103")
"""Where matrix instructions read K and V from shared memory, so that the tile being multiplied stays there."""


def choose(problem: PrefillProblem, target: Target) -> TritonPrefillConfig:
    """The default Config: the first of the target's tiles that fits its shared memory, else the last."""
    tiles = _tiles(target)
    fitting = [config for config in tiles if shared_footprint(config, target) <= target.shared_bytes]
    return (fitting or tiles[-1:])[0].evolve(within_2gb=problem.within_2gb, interpreted=not target.is_gpu)


def _tiles(target: Target) -> list[TritonPrefillConfig]:
    """Tiles for a target, the preferred one first."""

    def tiles(block_m: int, block_n: int, num_warps: int, num_stages: int) -> TritonPrefillConfig:
        return TritonPrefillConfig(block_m=block_m, block_n=block_n, num_warps=num_warps, num_stages=num_stages)

    if not target.is_gpu:
        return [tiles(64, 64, 4, 1)]
    if target.backend == "hip":
        return [tiles(128, 32, 8 if target.warp_size == 32 else 4, 2)]
    if target.arch in IN_PLACE_ARCHS:
        return [tiles(128, 64, 8, 3)]
    return [tiles(128, 64, 8, 2), tiles(64, 32, 4, 2)]


def shared_footprint(config: TritonPrefillConfig, target: Target) -> int:
    """Shared memory of a workgroup, bytes: the q tile (in registers on AMD GPUs) and the K and V tiles in flight."""
    q_bytes = 0 if target.backend == "hip" else config.block_m * QK_HEAD_DIM * ELEMENT_BYTES
    tiles = config.num_stages if target.arch in IN_PLACE_ARCHS else max(config.num_stages - 1, 1)
    return q_bytes + tiles * config.block_n * (QK_HEAD_DIM + V_HEAD_DIM) * ELEMENT_BYTES
