"""Places: which solutions run where, the interpreting process, and the command line."""

import os
import sys

import pytest

from mla_core import ArgumentError
from mla_core.triton_support import missing
from mla_testing.suites import OPERATIONS, cases
from mla_testing.suites.__main__ import main
from mla_testing.suites.runners import InterpretedRunner, matrix, runners_for

needs_triton = pytest.mark.skipif(bool(missing()), reason="needs Triton")


def test_on_a_cpu_torch_runs_natively_and_triton_interpreted():
    native, interpreted = runners_for("cpu")
    for operation in ("decode", "prefill"):
        assert native.solutions(operation) == ("torch",)
        assert "torch" not in interpreted.solutions(operation)
    assert os.environ.get("TRITON_INTERPRET") in (None, "0")


def test_native_cases_are_all_of_them():
    native = runners_for("cpu")[0]
    ran = {case for _, case in matrix(native, "decode")}
    assert ran == set(cases("decode", "full")) | set(cases("decode", "large"))


def test_a_target_that_is_not_here_is_refused():
    with pytest.raises(ArgumentError, match="target is 'sm_10'; allowed: one of auto, cpu"):
        runners_for("sm_10")


@needs_triton
def test_a_process_that_dies_is_a_failure_with_its_last_words(tmp_path, monkeypatch):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho last words >&2\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    runner = InterpretedRunner()
    report = runner.run(cases("decode", "smoke")[0], "triton")
    runner.close()
    assert report.failures == ("the interpreting process ended with status 3\nlast words",)


def test_command_line_runs_a_case(capsys):
    case = cases("prefill", "smoke")[0]
    assert main(["--case", case.id, "--solution", "torch"]) == 0
    assert capsys.readouterr().out == f"passed   {case.id} torch\n1 ran, 0 failed\n"


def test_command_line_fails_where_nothing_ran(capsys):
    assert main(["--case", cases("decode", "smoke")[0].id, "--solution", "triton"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("skipped") and said.endswith("0 ran, 0 failed\n")


def test_command_line_refuses_an_unknown_case(capsys):
    with pytest.raises(SystemExit):
        main(["--case", "decode-nothing"])
    assert "case is 'decode-nothing'" in capsys.readouterr().err


def test_command_line_lists_ids(capsys):
    assert main(["--list", "--subset", "full"]) == 0
    listed = capsys.readouterr().out.split()
    assert listed == [case.id for operation in OPERATIONS for case in cases(operation, "full")]
