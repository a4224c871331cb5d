"""Shapes: the published grid, spelling, and the traffic and work that every figure is divided by."""

from __future__ import annotations

import pytest

from mla_core.errors import ArgumentError
from mla_testing.bench.grids import GRIDS, DecodeShape, PrefillShape, parse_shape, shapes


def test_seed_grid_is_the_published_one() -> None:
    decode = GRIDS["seed"]["decode"]
    assert len(decode) == len(set(decode)) == 2 * 3 * 6 + 2 * 2 * 5
    few = [shape for shape in decode if shape.heads in (8, 16)]
    many = [shape for shape in decode if shape.heads in (64, 128)]
    assert {shape.batch for shape in few} == {1, 8, 32}
    assert {shape.seqlen for shape in few} == {512, 1024, 2048, 8192, 16384, 32768}
    assert {shape.batch for shape in many} == {64, 128}
    assert {shape.seqlen for shape in many} == {512, 1024, 2048, 8192, 16384}
    prefill = GRIDS["seed"]["prefill"]
    assert len(prefill) == len(set(prefill)) == 2 * 2 * 5 * 5
    assert {(shape.heads, shape.causal) for shape in prefill} == {(16, True), (16, False), (64, True), (64, False)}
    assert {shape.batch for shape in prefill} == {1, 2, 4, 8, 16}
    assert (min(shape.seqlen for shape in prefill), max(shape.seqlen for shape in prefill)) == (1024, 16384)


@pytest.mark.parametrize("operation", ["decode", "prefill"])
@pytest.mark.parametrize("grid", GRIDS)
def test_labels_spell_their_shapes(operation: str, grid: str) -> None:
    listed = shapes(operation, grid)
    assert shapes(operation, ",".join(shape.label for shape in listed)) == listed


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        ("decode", ""),
        ("decode", "64x4096"),
        ("decode", "64x4096x128xfull"),
        ("decode", "0x4096x128"),
        ("decode", "64x4096x128x0"),
        ("decode", "-1x4096x128"),
        ("decode", "8x4096-1024x16"),
        ("decode", "8x0-1024x16"),
        ("prefill", "8x512-1024x16"),
        ("prefill", "1x1024x16x2"),
        ("prefill", "1x1024x16xcausally"),
        ("prefill", "big"),
    ],
)
def test_other_text_is_refused(operation: str, text: str) -> None:
    with pytest.raises(ArgumentError, match="--grid"):
        parse_shape(operation, text)


def test_decode_work_and_traffic() -> None:
    """64 x 4096 tokens, 128 heads: 1152 bytes a token and 1088 multiply-adds a (row, key) pair."""
    shape = DecodeShape(batch=64, seqlen=4096, heads=128)
    assert shape.flops == 2 * 64 * 4096 * 128 * 1088
    assert shape.bytes == 64 * 4096 * 1152 + 64 * 128 * (1152 + 1024)
    two = DecodeShape(batch=1, seqlen=10, heads=1, q_len=2)
    assert two.pairs == 9 + 10


def test_prefill_work_and_traffic() -> None:
    shape = PrefillShape(batch=2, seqlen=1024, heads=16, causal=False)
    assert shape.flops == 2 * 2 * 1024 * 1024 * 16 * 320
    assert PrefillShape(batch=2, seqlen=1024, heads=16).flops * 2 == shape.flops
    assert shape.bytes == 2 * 1024 * 16 * 2 * (192 + 192 + 128 + 128)


def test_spread_lengths() -> None:
    shape = parse_shape("decode", "4x100-400x16x2")
    assert isinstance(shape, DecodeShape)
    assert shape.lengths == [100, 200, 300, 400]
    assert shape.label == "4x100-400x16x2"
    assert shape.pairs == 16 * (1000 + 996)
    assert shape.inputs("cpu").cache_seqlens.tolist() == shape.lengths
    assert DecodeShape(batch=1, shortest=100, seqlen=400, heads=16).lengths == [100]
