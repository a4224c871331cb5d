"""Measurements: wrong results are never timed, figures follow from time, and the outputs are what they say."""

from __future__ import annotations

import csv
from pathlib import Path

import attrs
import pytest
import torch

from mla_testing.bench import measure, sampling
from mla_testing.bench.grids import DecodeShape, PrefillShape, Shape
from mla_testing.bench.measure import Measurement, measure_solution
from mla_testing.bench.plots import draw
from mla_testing.bench.report import write_csv
from mla_testing.bench.roofs import Roofs
from mla_testing.operations import call

ROOFS = Roofs(read=4.5e12, copy=4.2e12, matmul=780e12)
SMALL: tuple[Shape, ...] = (
    DecodeShape(batch=3, seqlen=130, heads=16),
    DecodeShape(batch=1, seqlen=65, heads=8, q_len=2),
    PrefillShape(batch=2, seqlen=40, heads=3),
    PrefillShape(batch=4, seqlen=33, heads=2, causal=False),
)


class FixedTimer:
    """A timer that counts and calls what it is given, and says 10 us."""

    def __init__(self) -> None:
        self.timed = 0

    def median_us(self, work: object) -> float:
        self.timed += 1
        work()  # type: ignore[operator]
        return 10.0


@pytest.mark.parametrize("shape", SMALL, ids=lambda shape: f"{shape.operation}-{shape.label}")
def test_right_result_is_timed(shape: Shape) -> None:
    timer = FixedTimer()
    row = measure_solution(shape, shape.inputs("cpu"), "torch", timer)  # type: ignore[arg-type]
    assert (row.us, row.failure, timer.timed) == (10.0, "", 1)
    assert row.relative_rms is not None
    assert 0 < row.relative_rms < 5e-3


@pytest.mark.parametrize("shape", SMALL, ids=lambda shape: f"{shape.operation}-{shape.label}")
def test_wrong_result_is_not_timed(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong_in_the_last_row(*args: object, **options: object) -> object:
        out, lse = call(*args, **options)  # type: ignore[arg-type]
        shifted = out.clone()
        shifted[-8 if out.dim() == 3 else -1, ..., -1, :] *= 1.02  # a prefill has 7 rows behind its last sequence
        return shifted, lse

    monkeypatch.setattr(measure, "call", wrong_in_the_last_row)
    timer = FixedTimer()
    row = measure_solution(shape, shape.inputs("cpu"), "torch", timer)  # type: ignore[arg-type]
    assert (row.us, timer.timed) == (None, 0)
    assert "exceeds" in row.failure
    assert not row.refused


def test_refusal_is_no_fault() -> None:
    shape = SMALL[0]
    row = measure_solution(shape, shape.inputs("cpu"), "triton", FixedTimer())  # type: ignore[arg-type]
    assert row.refused
    assert row.us is None


def test_sample_of_prefill_keeps_sequences_and_heads_together() -> None:
    inputs = PrefillShape(batch=4, seqlen=33, heads=5).inputs("cpu")
    with torch.no_grad():
        out, lse = call(inputs, return_lse=True)
    accuracy = sampling.compare_sample(inputs, out, lse)
    assert accuracy.ok, str(accuracy)


def measurements() -> list[Measurement]:
    rows = []
    for heads, batch in ((16, 1), (128, 8)):
        for seqlen in (512, 2048, 8192):
            shape = DecodeShape(batch=batch, seqlen=seqlen, heads=heads)
            slow = 20 + shape.flops / 300e6
            rows.append(Measurement(shape=shape, solution="triton", chosen=False, us=slow, reference_us=slow))
            rows.append(
                Measurement(
                    shape=shape, solution="hopper", chosen=True, us=slow / 2.5, reference_us=slow, relative_rms=1e-3
                )
            )
    rows.append(attrs.evolve(rows[0], us=None, failure="wrong"))
    return rows


def test_figures_follow_from_time() -> None:
    row = Measurement(
        shape=DecodeShape(batch=64, seqlen=4096, heads=128),
        solution="hopper",
        chosen=True,
        us=125.0,
        reference_us=1250.0,
    )
    assert row.speedup == 10
    assert row.flops == pytest.approx(73.0e9 / 125e-6, rel=1e-3)
    assert row.bandwidth == pytest.approx(319.8e6 / 125e-6, rel=1e-3)
    # Compute-bound: 73.0 GFLOP at 780 TFLOP/s take 93.6 us, its bytes at 4.5 TB/s 71 us.
    assert row.of_roof(ROOFS) == pytest.approx(93.6 / 125, rel=1e-3)


def test_csv_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    write_csv(path, measurements(), ROOFS, "some GPU")
    text = path.read_text().splitlines()
    assert text[0].startswith("# some GPU; measured roofs: read 4.50 TB/s")
    rows = list(csv.DictReader(text[1:]))
    assert len(rows) == 13
    assert rows[1]["solution"] == "hopper"
    assert float(rows[1]["speedup_over_triton"]) == 2.5
    assert rows[-1]["us"] == ""
    assert rows[-1]["failure"] == "wrong"


def test_plot_is_drawn_and_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "times.png"
    draw(path, measurements(), ROOFS, "MLA decode, made-up times")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="nothing to draw"):
        draw(path, measurements()[-1:], ROOFS, "")
