"""Config of the `triton` prefill solution: how the kernel is done, none of it varying with the batch."""

from __future__ import annotations

import attrs

from mla_core.config import KernelConfig, between, kernel_config, one_of


@kernel_config
class TritonPrefillConfig(KernelConfig):
    """Tiles and resources of one workgroup.

    Attributes:
        block_m: rows of q of a tile.
        block_n: keys of a step.
        num_warps, num_stages: Triton's; stages are K and V tiles in flight.
        within_2gb: every byte of q, k, v and out is within a signed 32-bit offset; False: 64-bit offsets.
        interpreted: Triton's interpreter runs the kernel.
    """

    block_m: int = attrs.field(default=128, validator=one_of(16, 32, 64, 128, 256))
    block_n: int = attrs.field(default=64, validator=one_of(16, 32, 64, 128))
    num_warps: int = attrs.field(default=8, validator=one_of(1, 2, 4, 8, 16))
    num_stages: int = attrs.field(default=2, validator=between(1, 8))
    within_2gb: bool = attrs.field(default=True, validator=one_of(True, False))
    interpreted: bool = attrs.field(default=False, validator=one_of(True, False))
