"""Config of the `triton` decode solution: how the kernel is done, none of it varying with the batch."""

from __future__ import annotations

import attrs

from mla_core.config import KernelConfig, between, kernel_config, one_of, power_of_two

MIN_DOT = 16
"""Smallest side of a `tl.dot` operand."""


def _at_least_a_dot(instance: object, field: attrs.Attribute[int], value: int) -> None:
    power_of_two(instance, field, value)
    between(MIN_DOT, 128)(instance, field, value)


@kernel_config
class TritonDecodeConfig(KernelConfig):
    """Tiles and resources of one workgroup.

    Attributes:
        block_m: rows (query tokens x heads) that share one read of KV.
        block_n: KV tokens of a step.
        num_warps, num_stages: Triton's; stages are KV tiles in flight.
        within_2gb: every byte of the pool is within a signed 32-bit offset; False: 64-bit offsets.
        recompute_addresses: address arithmetic stays in the loops, where hoisting it out would spill registers.
        max_splits: most workgroups that share one sequence's KV, 1 to 128.
        interpreted: Triton's interpreter runs the kernel.
    """

    block_m: int = attrs.field(default=64, validator=_at_least_a_dot)
    block_n: int = attrs.field(default=32, validator=_at_least_a_dot)
    num_warps: int = attrs.field(default=8, validator=one_of(1, 2, 4, 8, 16))
    num_stages: int = attrs.field(default=2, validator=between(1, 8))
    within_2gb: bool = attrs.field(default=True, validator=one_of(True, False))
    recompute_addresses: bool = attrs.field(default=False, validator=one_of(True, False))
    max_splits: int = attrs.field(default=128, validator=between(1, 128))
    interpreted: bool = attrs.field(default=False, validator=one_of(True, False))
