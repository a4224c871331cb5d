"""How the Hopper prefill kernel is done. No Triton is imported here."""

from __future__ import annotations

import attrs

from mla_core.config import KernelConfig, kernel_config, one_of
from mla_core.errors import ConfigError

CONSUMERS = 2
"""Warpgroups that compute; each has 64 rows of a tile, the rows of one wgmma."""

BLOCK_M = 64 * CONSUMERS
"""Queries of a tile."""


def _register_count(_instance: object, field: attrs.Attribute, value: int) -> None:
    if not isinstance(value, int) or value % 8 or not 24 <= value <= 240:
        raise ConfigError(field.name, value, "a multiple of 8 from 24 to 240 (PTX ISA, setmaxnreg)")


@kernel_config
class HopperPrefillConfig(KernelConfig):
    """Config of the Hopper prefill kernel.

    Attributes:
        block_n: keys of a block.
        kv_stages: blocks of K, and of V, in shared memory at a time.
        consumer_registers: 32-bit registers of a lane of the second consumer; the first gets what is left.
        producer_registers: those of the producer warp's lanes.
    """

    block_n: int = attrs.field(default=128, validator=one_of(64, 128))
    kv_stages: int = attrs.field(default=2, validator=one_of(2, 4))
    consumer_registers: int = attrs.field(default=240, validator=_register_count)
    producer_registers: int = attrs.field(default=24, validator=_register_count)

    @property
    def block_m(self) -> int:
        """Queries of a tile."""
        return BLOCK_M
