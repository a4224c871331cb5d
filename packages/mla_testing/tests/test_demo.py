"""The demo: passes on a machine without a GPU, and fails loudly where a result is wrong or a kernel raises."""

from __future__ import annotations

import pytest

from mla_testing import demo


def test_cpu_demo_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--cpu"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("torch ") >= 5
    assert "failed" not in printed


def test_wrong_result_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right = demo.call

    def off_by_one_percent(*args: object, **options: object) -> object:
        out, lse = right(*args, **options)  # type: ignore[arg-type]
        return out * 1.01, lse

    monkeypatch.setattr(demo, "call", off_by_one_percent)
    assert demo.main(["--cpu"]) == 1
    assert "relative_rms 1." in capsys.readouterr().out


def test_raising_kernel_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_args: object, **_options: object) -> object:
        raise RuntimeError("out of [shared] memory")

    monkeypatch.setattr(demo, "call", broken)
    assert demo.main(["--cpu"]) == 1
    assert "RuntimeError: out of [shared] memory" in capsys.readouterr().out


@pytest.mark.parametrize(("seconds", "text"), [(3.14e-6, "3.1 us"), (0.0123, "12.3 ms"), (61.0, "61.0 s")])
def test_spell_time(seconds: float, text: str) -> None:
    assert demo.spell_time(seconds) == text
