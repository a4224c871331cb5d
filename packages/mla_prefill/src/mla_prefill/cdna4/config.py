"""How the gfx950 prefill kernel is done. No Triton is imported here."""

from __future__ import annotations

import attrs

from mla_core.config import KernelConfig, kernel_config, one_of

ROWS_PER_WAVE = 32
"""Queries of one wave: the rows of a 32x32x16 matrix instruction (AMD CDNA 4 ISA reference)."""

WAVES = 4
"""Waves of a workgroup, one a SIMD of a compute unit: each may have all 512 registers of a lane."""

STAGES = 3
"""K and V tiles in LDS at a time: one that is read, two on their way."""


@kernel_config
class CDNA4PrefillConfig(KernelConfig):
    """Config of the gfx950 prefill kernel.

    Attributes:
        block_n: keys of a tile.
        scheduling: LLVM's strategy of ordering instructions (`amdgpu-sched-strategy`), empty for its default. Taken
            up where Triton lets a kernel choose one; otherwise the default is used.
    """

    block_n: int = attrs.field(default=64, validator=one_of(32, 64))
    scheduling: str = attrs.field(default="iterative-ilp", validator=one_of("", "iterative-ilp", "max-ilp"))

    @property
    def num_warps(self) -> int:
        """Waves of a workgroup."""
        return WAVES

    @property
    def block_m(self) -> int:
        """Queries of a tile."""
        return ROWS_PER_WAVE * WAVES

    @property
    def stages(self) -> int:
        """Tiles of K, and of V, in LDS at a time."""
        return STAGES
