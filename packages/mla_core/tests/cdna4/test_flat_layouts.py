"""Layouts of tiles that all waves share: lines, padding, and who copies what."""

from __future__ import annotations

import itertools

import pytest

triton = pytest.importorskip("triton")

from triton.experimental.gluon import language as gl  # noqa: E402

from mla_core.errors import ArgumentError  # noqa: E402
from mla_core.layouts.cdna4 import LINE_ELEMENTS  # noqa: E402
from mla_core.layouts.cdna4_flat import (  # noqa: E402
    KEY_PADDING,
    VALUE_PADDING,
    flat_copy_layout,
    flat_offset_bases,
    flat_shared_layout,
)

TILES = [(64, 64), (64, 128), (128, 64), (128, 128), (32, 128)]


def place(bases: list[list[int]], number: int) -> tuple[int, ...]:
    """What the bits of `number` add up to (exclusive or), each moving by its basis."""
    result = [0] * len(bases[0])
    for bit, basis in enumerate(bases):
        if number >> bit & 1:
            result = [have ^ step for have, step in zip(result, basis, strict=True)]
    return tuple(result)


@pytest.mark.parametrize(("tokens", "columns"), TILES)
def test_offsets_reach_every_element_once(tokens: int, columns: int) -> None:
    bases = flat_offset_bases(tokens, columns)
    reached = {place(bases, offset) for offset in range(tokens * columns)}
    assert reached == set(itertools.product(range(tokens), range(columns)))


@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize(("tokens", "columns"), TILES)
def test_each_wave_copies_whole_lines_in_the_order_of_its_lanes(tokens: int, columns: int, num_warps: int) -> None:
    if tokens * columns < LINE_ELEMENTS * num_warps:
        with pytest.raises(ArgumentError, match="num_warps"):
            flat_copy_layout(tokens, columns, num_warps)
        return
    linear = flat_copy_layout(tokens, columns, num_warps).parent
    offset_of = {place(flat_offset_bases(tokens, columns), n): n for n in range(tokens * columns)}
    seen = set()
    registers, lanes = 1 << len(linear.reg_bases), 1 << len(linear.lane_bases)
    for wave, copy in itertools.product(range(num_warps), range(registers // 8)):
        offsets = []
        for lane, element in itertools.product(range(lanes), range(8)):
            parts = (
                place(linear.reg_bases, copy * 8 + element),
                place(linear.lane_bases, lane),
                place(linear.warp_bases, wave),
            )
            token, column = (a ^ b ^ c for a, b, c in list(zip(*parts, strict=True))[:2])
            offsets.append(offset_of[token, column])
        assert offsets == list(range(offsets[0], offsets[0] + LINE_ELEMENTS))
        assert offsets[0] % LINE_ELEMENTS == 0
        seen.add(offsets[0])
    assert len(seen) == tokens * columns // LINE_ELEMENTS


@pytest.mark.skipif(
    not hasattr(gl.amd.cdna4, "compute_efficient_padded_shared_layout"), reason="Triton computes layouts since 3.9"
)
@pytest.mark.parametrize(("tokens", "columns"), [(64, 64), (64, 128)])
def test_layouts_are_those_that_triton_computes(tokens: int, columns: int) -> None:
    mma = gl.amd.AMDMFMALayout(version=4, instr_shape=[32, 32, 16], transposed=True, warps_per_cta=[4, 1])
    compute = gl.amd.cdna4.compute_efficient_padded_shared_layout
    keys = compute(gl.DotOperandLayout(1, mma, k_width=8), [columns, tokens], gl.bfloat16, True)
    ours = flat_shared_layout(tokens, columns, KEY_PADDING)
    assert [list(basis)[::-1] for basis in keys.offset_bases] == ours.offset_bases  # theirs is that of K transposed
    assert [list(pair) for pair in keys.interval_padding_pairs] == ours.interval_padding_pairs
    if columns == 128:
        values = compute(gl.DotOperandLayout(1, mma, k_width=4), [tokens, columns], gl.bfloat16, False)
        ours = flat_shared_layout(tokens, columns, VALUE_PADDING)
        assert [list(basis) for basis in values.offset_bases] == ours.offset_bases
        assert [list(pair) for pair in values.interval_padding_pairs] == ours.interval_padding_pairs
