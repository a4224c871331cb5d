"""Layouts of KV tiles in token groups: every element once, legal for direct-to-LDS copies, banks met once."""

from __future__ import annotations

import functools
import itertools

import pytest

triton = pytest.importorskip("triton")

from mla_core.errors import ArgumentError  # noqa: E402
from mla_core.layouts.cdna4 import (  # noqa: E402
    COPY_ELEMENTS,
    LINE_ELEMENTS,
    WARP_SIZE,
    group_exchange_layout,
    group_sum_layout,
    tile_copy_layout,
    tile_offset_bases,
    tile_shared_layout,
)

WAVES = 4
PRIVATE = [(4, 16, 512), (4, 16, 64)]
SHARED = [(1, 64, 512), (1, 64, 64)]
VALUE_COLUMNS = {(4, 16, 512): 16, (1, 64, 512): 32, (4, 16, 64): 0, (1, 64, 64): 0}
BANKS, BANK_BYTES = 64, 4

Shape = tuple[int, int, int]


def place(bases: list[list[int]], number: int) -> tuple[int, ...]:
    """What the bits of `number` move, each by its basis."""
    total = [0] * 3
    for bit, basis in enumerate(bases):
        if number >> bit & 1:
            total = [have ^ step for have, step in zip(total, basis, strict=True)]
    return tuple(total)


def padded(shape: Shape, offset: int) -> int:
    """LDS element that an unpadded offset becomes."""
    pairs = tile_shared_layout(*shape, VALUE_COLUMNS[shape]).interval_padding_pairs
    return offset + sum(offset // interval * padding for interval, padding in pairs)


@functools.cache
def addresses(shape: Shape) -> dict[tuple[int, ...], int]:
    """Byte address of every element of a tile."""
    bases = tile_offset_bases(*shape)
    return {place(bases, offset): 2 * padded(shape, offset) for offset in range(shape[0] * shape[1] * shape[2])}


@pytest.mark.parametrize("shape", PRIVATE + SHARED)
def test_offsets_reach_every_element_once(shape: Shape) -> None:
    found = addresses(shape)
    assert set(found) == set(itertools.product(*map(range, shape)))
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize("columns", [512, 64])
def test_groups_are_a_view_of_the_same_bytes(columns: int) -> None:
    private, shared = tile_offset_bases(4, 16, columns), tile_offset_bases(1, 64, columns)
    for offset in range(64 * columns):
        group, token, column = place(private, offset)
        assert place(shared, offset) == (0, 16 * group + token, column)


@pytest.mark.parametrize("shape", PRIVATE)
def test_each_wave_copies_whole_lines_in_the_order_of_its_lanes(shape: Shape) -> None:
    layout = tile_copy_layout(*shape, WAVES)
    address = addresses(shape)
    copies = set()
    for wave, copy in itertools.product(range(WAVES), range(2 ** len(layout.reg_bases) // COPY_ELEMENTS)):
        found = []
        for lane, element in itertools.product(range(WARP_SIZE), range(COPY_ELEMENTS)):
            parts = (
                place(layout.reg_bases, copy * COPY_ELEMENTS + element),
                place(layout.lane_bases, lane),
                place(layout.warp_bases, wave),
            )
            found.append(address[tuple(a ^ b ^ c for a, b, c in zip(*parts, strict=True))])
        # One address for the wave, then 16 bytes a lane, in order, with no padding between: what the hardware writes.
        assert found == list(range(found[0], found[0] + 2 * LINE_ELEMENTS, 2))
        assert found[0] % 16 == 0
        copies.add(found[0])
    assert len(copies) == shape[0] * shape[1] * shape[2] // LINE_ELEMENTS


def test_a_private_wave_copies_the_rows_that_it_reads() -> None:
    layout = tile_copy_layout(4, 16, 512, WAVES)
    assert layout.warp_bases == [[1, 0, 0], [2, 0, 0]]
    assert all(basis[0] == 0 for basis in layout.reg_bases + layout.lane_bases)


def passes(byte_addresses: list[int], size: int) -> int:
    """How often the busiest bank is asked for different words by one group of lanes."""
    words = {(start + step) // BANK_BYTES for start in byte_addresses for step in range(0, size, BANK_BYTES)}
    load = [0] * BANKS
    for word in words:
        load[word % BANKS] += 1
    return max(load)


@pytest.mark.parametrize("shape", PRIVATE + SHARED)
def test_rows_of_k_meet_no_bank_twice(shape: Shape) -> None:
    """16 lanes read 16 bytes each, of 16 consecutive tokens: 256 bytes, all banks once."""
    address = addresses(shape)
    for group, first, column in itertools.product(range(shape[0]), range(0, shape[1], 16), range(0, shape[2], 8)):
        lanes = [address[group, first + token, column] for token in range(16)]
        assert passes(lanes, 16) == 1


@pytest.mark.parametrize("shape", [(4, 16, 512), (1, 64, 512)])
def test_transposed_reads_of_v_meet_no_bank_twice(shape: Shape) -> None:
    """32 lanes read 8 bytes each: the columns of the matrix instruction, of 4 or 8 consecutive tokens."""
    address, columns = addresses(shape), VALUE_COLUMNS[shape]
    tokens = 128 // columns
    for group, first, column in itertools.product(range(shape[0]), range(0, shape[1], tokens), range(0, 512, columns)):
        lanes = [
            address[group, first + token, column + step] for token in range(tokens) for step in range(0, columns, 4)
        ]
        assert passes(lanes, 8) == 1


def test_token_groups_meet_without_bank_conflicts() -> None:
    """16 lanes store 16 bytes each, of 16 rows, and read 16 bytes each, of one."""
    (interval, padding), *rest = group_exchange_layout(4, 16, 512).interval_padding_pairs
    assert not rest and interval == 512
    assert passes([4 * row * (interval + padding) for row in range(16)], 16) == 1
    columns = group_sum_layout(4, WAVES).size_per_thread[2]
    assert passes([4 * columns * lane for lane in range(16)], 16) == 1


@pytest.mark.parametrize("shape", [(3, 16, 512), (4, 10, 512), (4, 16, 500)])
def test_extents_that_are_no_power_of_two_are_refused(shape: Shape) -> None:
    with pytest.raises(ArgumentError, match="a power of two"):
        tile_offset_bases(*shape)


def test_more_waves_than_lines_are_refused() -> None:
    with pytest.raises(ArgumentError, match="num_warps is 16"):
        tile_copy_layout(4, 16, 64, 16)
