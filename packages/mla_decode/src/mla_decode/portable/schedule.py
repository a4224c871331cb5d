"""Rules of the `triton` decode solution: Problem and Target to Config, and how many ways KV is split."""

from __future__ import annotations

from mla_core.problem import ELEMENT_BYTES
from mla_core.target import Target
from mla_decode.portable.config import TritonDecodeConfig
from mla_decode.problem import KV_LORA_RANK, QK_ROPE_HEAD_DIM, DecodeProblem

WGMMA_ARCH = "sm_90"
"""Where Triton compiles `tl.dot` to matrix instructions of four warps, which read their operands from shared memory."""

WGMMA_ROWS = 64
"""Rows of such an instruction (PTX ISA, wgmma.mma_async: m64nNk16)."""

FULL_WARPS = {"cuda": 8, "hip": 4}
"""Warps that fill a compute unit at the most registers a lane can have: 65536 / (32 * 255) on NVIDIA GPUs, one on each
of four SIMDs on AMD's. The kernels come near that many registers, so this bounds the workgroups that run together."""

INTERPRETED_SLOTS = 4
"""Workgroups that the interpreter pretends to run together, so that small batches go through the merge there too."""

SPLIT_COST_TOKENS = 96
"""What a split costs besides its keys (prologue, partial results, merge), in KV tokens of a workgroup's time."""


def choose(problem: DecodeProblem, target: Target) -> TritonDecodeConfig:
    """The default Config: the first of the target's tiles that fits its shared memory, else the last."""
    tiles = _tiles(problem.rows, target)
    fitting = [config for config in tiles if shared_footprint(config, target) <= target.shared_bytes]
    return (fitting or tiles[-1:])[0].evolve(
        within_2gb=problem.kv.within_2gb, interpreted=not target.is_gpu
    )  # fmt: skip


def _tiles(rows: int, target: Target) -> list[TritonDecodeConfig]:
    """Tiles for so many rows on a target, the preferred one first.

    The compiler keeps them in registers, but for a few values that the steady loop does not need: 32 rows on sm_90 with
    newer releases of Triton, 64 on gfx950 with Triton 3.6. AMD GPUs with wavefronts of 32 have too few registers for
    any tile.
    """

    def tiles(block_m: int, block_n: int, num_warps: int, num_stages: int) -> TritonDecodeConfig:
        return TritonDecodeConfig(block_m=block_m, block_n=block_n, num_warps=num_warps, num_stages=num_stages)

    if not target.is_gpu:
        return [tiles(16 if rows <= 16 else 64, 64, 4, 1)]
    if target.backend == "hip" and target.warp_size == 32:
        return [tiles(16, 16, 8, 2)]
    if target.backend == "hip":
        highest = 64 if target.arch == "gfx950" else 32  # CDNA 3 has matrix instructions half as deep, and spills at 64
        return [tiles(min(highest, 64 if rows > 32 else 32 if rows > 16 else 16), 32, 4, 2)]
    if rows <= 16:
        return [tiles(16, 32, 4, 3), tiles(16, 32, 4, 2), tiles(16, 16, 4, 2)]
    if target.arch == WGMMA_ARCH:
        return [tiles(32, 32, 4, 3) if rows <= 32 else tiles(64, 64, 8, 2).evolve(recompute_addresses=True)]
    return [tiles(32, 32, 8, 3), tiles(32, 32, 8, 2), tiles(32, 16, 8, 2)]


def shared_footprint(config: TritonDecodeConfig, target: Target) -> int:
    """Shared memory of a workgroup, bytes, about: the KV tiles in flight and the q tile, which is in registers on AMD
    GPUs. `num_stages` counts the tile that is being multiplied; it stays in shared memory only where the matrix
    instructions read it from there."""
    row_bytes = (KV_LORA_RANK + QK_ROPE_HEAD_DIM) * ELEMENT_BYTES
    in_place = target.arch == WGMMA_ARCH and config.block_m >= WGMMA_ROWS
    tiles = config.num_stages if in_place else max(config.num_stages - 1, 1)
    q_rows = 0 if target.backend == "hip" else config.block_m
    return (q_rows + tiles * config.block_n) * row_bytes


def plan_splits(problem: DecodeProblem, target: Target, config: TritonDecodeConfig) -> tuple[int, int]:
    """(num_splits, split_tokens): the fewest splits that finish the longest sequence soonest.

    With s splits the machine works off ceil(workgroups * s / slots) waves, each as long as one split:
    ceil(max_seqlen_k / s) keys, and SPLIT_COST_TOKENS where s > 1. The hint max_seqlen_k only schedules: the kernel
    lengthens the splits of a sequence that num_splits of them would not hold.
    """
    slots = INTERPRETED_SLOTS
    if target.is_gpu:
        by_memory = target.shared_bytes // shared_footprint(config, target)
        by_registers = FULL_WARPS[target.backend] // config.num_warps
        slots = target.compute_units * max(min(by_memory, by_registers), 1)
    workgroups = max(problem.batch, 1) * -(-problem.rows // config.block_m)
    blocks = max(-(-problem.max_seqlen_k // config.block_n), 1)

    def cost(splits: int) -> int:
        waves = -(-workgroups * splits // slots)
        return waves * (-(-blocks // splits) * config.block_n + (SPLIT_COST_TOKENS if splits > 1 else 0))

    num_splits = min(range(1, min(config.max_splits, blocks) + 1), key=lambda splits: (cost(splits), splits))
    split_blocks = -(-blocks // num_splits)
    return -(-blocks // split_blocks), split_blocks * config.block_n
