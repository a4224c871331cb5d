"""How the gfx950 prefill kernel is done. No Triton is imported here."""

from __future__ import annotations

import attrs

from mla_core.config import KernelConfig, kernel_config, one_of
from mla_core.errors import ConfigError

ROWS_PER_WAVE = 32
"""Queries of one wave: the rows of a 32x32x16 matrix instruction (AMD CDNA 4 ISA reference)."""

STAGES = 3
"""K and V tiles in LDS at a time: one that is read, two on their way."""


@kernel_config
class CDNA4PrefillConfig(KernelConfig):
    """Config of the gfx950 prefill kernel.

    Attributes:
        block_m: queries of a tile; each wave has 32 of them.
        block_n: keys of a tile.
        num_warps: waves of a workgroup.
        scheduling: LLVM's strategy of ordering instructions (`amdgpu-sched-strategy`), empty for its default. Taken
            up where Triton lets a kernel choose one; otherwise the default is used.
    """

    block_m: int = attrs.field(default=128, validator=one_of(128, 256))
    block_n: int = attrs.field(default=64, validator=one_of(32, 64))
    num_warps: int = attrs.field(default=4, validator=one_of(4, 8))

    scheduling: str = attrs.field(default="iterative-ilp", validator=one_of("", "iterative-ilp", "max-ilp"))

    def __attrs_post_init__(self) -> None:
        if self.block_m != ROWS_PER_WAVE * self.num_warps:
            raise ConfigError("block_m", self.block_m, f"{ROWS_PER_WAVE} x num_warps ({self.num_warps})")

    @property
    def stages(self) -> int:
        """Tiles of K, and of V, in LDS at a time."""
        return STAGES
