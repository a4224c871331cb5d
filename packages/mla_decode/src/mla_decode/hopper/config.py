"""How the Hopper decode kernels are done: one immutable value per choice."""

from __future__ import annotations

import attrs

from mla_core.config import KernelConfig, between, kernel_config, one_of
from mla_core.errors import ConfigError

BLOCK_N = 64
"""Keys of a block: the rows of one wgmma product of the narrow kernel, and a page of the common servers."""

WIDE_ROWS = 64
"""Query rows of a tile of the wide kernel: the M side of wgmma (PTX ISA)."""

NARROW_ROWS = (16, 32)
"""Query rows that the narrow kernel may take as the N side of wgmma; 64 do not fit in shared memory beside two blocks."""


@kernel_config
class HopperDecodeConfig(KernelConfig):
    """One way to run a decode problem on Hopper.

    Attributes:
        regime: `wide` (query rows are the M side of every product) or `narrow` (they are the N side, so that few rows
            are not padded to 64).
        block_m: query rows of a tile; 64 for wide, 16 or 32 for narrow.
        item_cost: what starting a request costs a part, in blocks; the planner's balance counts it.
        min_blocks: fewest blocks that the planner cuts off a request.
    """

    regime: str = attrs.field(validator=one_of("wide", "narrow"))
    block_m: int = attrs.field(validator=one_of(*NARROW_ROWS, WIDE_ROWS))
    item_cost: int = attrs.field(default=4, validator=between(1, 64))
    min_blocks: int = attrs.field(default=2, validator=between(1, 64))

    def __attrs_post_init__(self) -> None:
        allowed = (WIDE_ROWS,) if self.regime == "wide" else NARROW_ROWS
        if self.block_m not in allowed:
            raise ConfigError("block_m", self.block_m, f"one of {allowed} for the {self.regime} regime")
