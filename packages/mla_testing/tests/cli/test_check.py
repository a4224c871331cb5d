"""`mla check`: runs the contract cases, passes where the kernels are right, and reports a reproducer where not."""

from __future__ import annotations

import pytest
import torch

from mla_core.dispatch import registry
from mla_testing.cli import check, main


def test_cpu_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--target", "cpu", "--solution", "torch"]) == 0
    printed = capsys.readouterr().out
    assert "torch 2" in printed
    assert "FAILED" not in printed
    assert "not run" not in printed


def test_wrong_kernel_fails_with_a_reproducer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], clean_program_cache: None
) -> None:
    from mla_decode.portable.torch_solution import TorchDecodeProgram

    right = TorchDecodeProgram.launch

    def scaled(self: TorchDecodeProgram, *tensors: torch.Tensor) -> None:
        right(self, *tensors)
        tensors[4].mul_(1.02)

    monkeypatch.setattr(TorchDecodeProgram, "launch", scaled)
    assert main(["check", "--op", "decode", "--target", "cpu", "--solution", "torch"]) == 1
    printed = capsys.readouterr().out
    assert "python -m mla_testing.suites --case decode-" in printed


def test_nothing_run_is_no_success() -> None:
    assert main(["check", "--op", "decode", "--target", "cpu", "--solution", "hopper"]) == 1


def test_out_of_time_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--op", "prefill", "--target", "cpu", "--seconds", "1e-9"])
    assert "not run: out of time" in capsys.readouterr().out


def test_plan_alternates_operations_and_starts_with_the_preferred_kernels() -> None:
    work = check.plan(["decode", "prefill"], "smoke", ())
    assert [case.operation for case, _ in work[:6]] == ["decode", "prefill"] * 3
    assert work[0][1] == registry.solutions("decode")[0].name
    assert len(work) == len({(case.id, name) for case, name in work})
    assert {name for _, name in work} == {
        entry.name for operation in ("decode", "prefill") for entry in registry.solutions(operation)
    }
