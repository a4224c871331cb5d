"""The Hopper decode kernels on the machine they are for: random problems, plans, graph replay, every regime."""

from __future__ import annotations

import random

import pytest
import torch

from mla_core import triton_support
from mla_core.errors import ArgumentError
from mla_core.target import Target
from mla_decode import mla_decode_plan, mla_decode_with_kvcache
from mla_decode.hopper.config import HopperDecodeConfig
from mla_testing.accuracy import compare
from mla_testing.paged_cache import DecodeInputs, paged_cache

HERE = torch.cuda.is_available() and Target.current("cuda").arch == "sm_90" and not triton_support.missing()
pytestmark = pytest.mark.skipif(not HERE, reason="needs an sm_90 GPU and Triton")

SHAPES = ((1, 1), (8, 1), (16, 1), (5, 3), (16, 2), (40, 1), (64, 1), (128, 1), (128, 2), (96, 3))
"""(heads, q_len) that reach each tile, with rows that fill it and rows that do not."""

PROBLEMS = 100
"""Random problems of each shape."""


def decode(inputs: DecodeInputs, **options) -> tuple[torch.Tensor, torch.Tensor]:
    options = {"solution": "hopper", "return_lse": True, **options}
    return mla_decode_with_kvcache(*inputs.tensors, **inputs.options, **options)


def check(inputs: DecodeInputs, result: tuple[torch.Tensor, torch.Tensor]) -> str:
    accuracy = compare(result[0], inputs.expected[0], result[1], inputs.expected[1])
    return "" if accuracy.ok else str(accuracy)


def random_lengths(draw: random.Random) -> list[int]:
    """Batches of all kinds: empty and full requests, one long one, many of a few blocks, block boundaries."""
    batch = draw.choice((1, 1, 2, 3, 5, 8, 17, 40))
    top = draw.choice((64, 200, 1000, 3000)) if batch > 2 else draw.choice((64, 1000, 9000))
    lengths = [draw.randrange(0, top + 1) for _ in range(batch)]
    if draw.random() < 0.3:
        lengths = [length // 64 * 64 for length in lengths]
    if draw.random() < 0.2:
        lengths = [top] * batch
    if draw.random() < 0.2:
        lengths[draw.randrange(batch)] = 6000
    return lengths


@pytest.mark.parametrize("heads,q_len", SHAPES)
def test_random_problems(heads: int, q_len: int) -> None:
    draw = random.Random(heads * 1000 + q_len)
    failures = []
    for seed in range(PROBLEMS):
        lengths = random_lengths(draw)
        inputs = paged_cache(seqlens=lengths, heads=heads, q_len=q_len, seed=seed, device="cuda")
        fault = check(inputs, decode(inputs))
        if fault:
            failures.append(f"seed {seed}, lengths {lengths}: {fault}")
    assert not failures, f"{len(failures)} of {PROBLEMS}: " + "; ".join(failures[:3])


@pytest.mark.parametrize("heads,q_len", [(16, 1), (128, 1), (128, 2)])
def test_one_plan_serves_many_calls(heads: int, q_len: int) -> None:
    inputs = paged_cache(seqlens=[3000, 1, 0, 700, 5000], heads=heads, q_len=q_len, device="cuda")
    plan = mla_decode_plan(*inputs.tensors, return_lse=True, solution="hopper")
    first = decode(inputs)
    for _ in range(20):
        again = decode(inputs, plan=plan)
        assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not check(inputs, first)


def test_a_plan_of_other_shapes_is_refused() -> None:
    one = paged_cache(seqlens=[300, 200], heads=16, device="cuda")
    other = paged_cache(seqlens=[300, 200, 100], heads=16, device="cuda")
    plan = mla_decode_plan(*one.tensors, return_lse=True, solution="hopper")
    with pytest.raises(ArgumentError, match="plan"):
        decode(other, plan=plan)


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("heads,q_len", [(16, 1), (128, 2)])
def test_a_graph_replays_with_other_lengths_and_pages(heads: int, q_len: int, planned: bool) -> None:
    """Including lengths of 0; the plan is made inside the graph, or outside it and filled again in place."""
    batches = ([4000, 10, 640, 64, 2000], [1, 6000, 0, 63, 65], [0, 0, 0, 0, 0], [100, 100, 100, 100, 100])
    cases = [
        paged_cache(seqlens=lengths, heads=heads, q_len=q_len, seed=seed, max_pages=96, spare_pages=200, device="cuda")
        for seed, lengths in enumerate(batches)
    ]
    pages = max(case.kv_cache.shape[0] for case in cases)
    pool = torch.full((pages, *cases[0].kv_cache.shape[1:]), float("nan"), dtype=torch.bfloat16, device="cuda")
    static = [cases[0].q.clone(), pool, cases[0].page_table.clone(), cases[0].cache_seqlens.clone()]

    def load(case: DecodeInputs) -> None:
        for old, new in zip(static, case.tensors, strict=True):
            old[: new.shape[0]].copy_(new)

    load(cases[0])
    plan = mla_decode_plan(*static, return_lse=True, solution="hopper") if planned else None

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        return mla_decode_with_kvcache(*static, **cases[0].options, return_lse=True, solution="hopper", plan=plan)

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = call()
    for case in (*cases, *reversed(cases)):
        load(case)
        if planned:
            mla_decode_plan(*static, return_lse=True, solution="hopper", plan=plan)
        out.fill_(7.0)
        graph.replay()
        graph.replay()
        assert not check(case, (out, lse))


@pytest.mark.parametrize("regime,block_m", [("narrow", 16), ("narrow", 32), ("wide", 64)])
@pytest.mark.parametrize("heads", [16, 128])
def test_every_config_serves_every_number_of_rows(regime: str, block_m: int, heads: int) -> None:
    inputs = paged_cache(seqlens=[3000, 1, 0, 700, 128], heads=heads, device="cuda")
    config = HopperDecodeConfig(regime=regime, block_m=block_m, min_blocks=1)
    assert not check(inputs, decode(inputs, solution=None, config=config))
