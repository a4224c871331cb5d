"""Timing and roofs on a real GPU: plausible against what the machine's data sheet says, and stable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mla_core.target import Target
from mla_testing.cli import main

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_median_follows_the_work() -> None:
    from mla_testing.bench.timing import GraphTimer

    timer = GraphTimer(budget_ms=30)
    small, large = (torch.zeros(n * 2**20, dtype=torch.int32, device="cuda") for n in (64, 256))
    ratio = timer.median_us(lambda: large.add_(1)) / timer.median_us(lambda: small.add_(1))
    assert 3 < ratio < 5


def test_roofs_lie_below_the_data_sheet() -> None:
    from mla_testing.bench.roofs import measure
    from mla_testing.bench.timing import GraphTimer

    roofs = measure(GraphTimer(budget_ms=30))
    target = Target.current("cuda")
    if target.memory_bandwidth:
        assert 0.7 < roofs.bandwidth / target.memory_bandwidth < 1.02
    if target.bf16_flops:
        assert 0.5 < roofs.matmul / target.bf16_flops < 1.02


@pytest.mark.parametrize(("operation", "shape"), [("decode", "8x1024x16"), ("prefill", "1x512x4")])
def test_bench_writes_everything(
    operation: str, shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv, plot = tmp_path / "times.csv", tmp_path / "times.png"
    arguments = ["bench", operation, "--grid", shape, "--csv", str(csv), "--plot", str(plot), "--budget-ms", "10"]
    assert main(arguments) == 0
    assert "measured roofs" in capsys.readouterr().out
    assert csv.read_text().count("\n") >= 3
    assert plot.stat().st_size > 10_000


def test_explain_reads_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "decode", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == Target.current("cuda").arch
