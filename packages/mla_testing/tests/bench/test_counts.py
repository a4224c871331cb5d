"""Counting executed instructions in the emulator: exact, repeatable, and silent about nothing."""

from __future__ import annotations

import pytest

from mla_core import triton_support
from mla_testing.bench import counts
from mla_testing.bench.counts import count_shape, table_of
from mla_testing.bench.grids import DecodeShape
from mla_testing.cli import main
from mla_testing.gfx950.errors import EmulationError
from mla_testing.machine import Machine

pytestmark = pytest.mark.skipif(bool(triton_support.missing()), reason=triton_support.missing())

SHAPE = DecodeShape(batch=1, seqlen=64, heads=16)


def test_counts_repeat_and_are_of_right_results() -> None:
    machine = Machine.emulator()
    assert machine is not None
    first, second = (count_shape(SHAPE, ["triton"], machine) for _ in range(2))
    assert [row.failure for row in first] == [""] * len(first)
    assert first[0].launch is not None
    assert second[0].launch is not None
    assert first[0].launch.instructions == second[0].launch.instructions
    assert first[0].launch.instructions["mfma"] > 0
    assert table_of("decode", first).row_count == len(first)


def test_fault_in_the_emulator_is_a_row_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def faulty(*_args: object, **_options: object) -> None:
        raise EmulationError("wave 0 reads LDS that wave 2 has written")

    monkeypatch.setattr(counts, "call", faulty)
    monkeypatch.setenv("COLUMNS", "200")  # a table cut to a narrow terminal drops cells
    assert main(["bench", "decode", "--emulate", "--grid", "1x64x16"]) == 1
    printed = capsys.readouterr().out
    assert "stopped" in printed
    assert "EmulationError: wave 0 reads LDS" in printed


def test_time_and_counts_are_not_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decode", "--emulate", "--csv", "x.csv"]) == 2
    assert "--emulate" in capsys.readouterr().err
