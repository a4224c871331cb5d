"""How the Hopper prefill kernel is done. No Triton is imported here."""

from __future__ import annotations

import attrs

from mla_core.config import KernelConfig, kernel_config, one_of
from mla_core.errors import ConfigError

CONSUMERS = 2
"""Warpgroups that compute; each has 64 rows of a tile, the rows of one wgmma."""

BLOCK_M = 64 * CONSUMERS
"""Queries of a tile."""

BLOCK_N = 128
"""Keys of a block: with two of K and of V beside Q, 208 of the 227 KiB of shared memory."""

STAGES = 2
"""Blocks of K, and of V, in shared memory at a time."""

REGISTER_BUDGET = 504
"""Registers of a lane, summed over the three warpgroups: 65536 of an SM over 384 threads are 168 each, a multiple of 8
(CUDA C++ Programming Guide, technical specifications; PTX ISA, setmaxnreg)."""


def _register_count(_instance: object, field: attrs.Attribute, value: int) -> None:
    if not isinstance(value, int) or value % 8 or not 24 <= value <= 240:
        raise ConfigError(field.name, value, "a multiple of 8 from 24 to 240 (PTX ISA, setmaxnreg)")


@kernel_config
class HopperPrefillConfig(KernelConfig):
    """Config of the Hopper prefill kernel.

    Attributes:
        overlap_tiles: a tile's first scores are computed beside the end of the tile before.
        consumer_registers: 32-bit registers of a lane of the second consumer; the first gets what the others leave.
        producer_registers: those of the producer warp's lanes.
    """

    overlap_tiles: bool = attrs.field(default=False, validator=one_of(True, False))
    consumer_registers: int = attrs.field(default=240, validator=_register_count)
    producer_registers: int = attrs.field(default=24, validator=_register_count)

    def __attrs_post_init__(self) -> None:
        left = REGISTER_BUDGET - self.consumer_registers - self.producer_registers
        if left < self.consumer_registers:
            raise ConfigError(
                "consumer_registers", self.consumer_registers, f"at most the {left} left for the first consumer"
            )
