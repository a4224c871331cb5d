"""The `mla` command as a user types it: what it prints and what it exits with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mla_core.target import Target
from mla_testing.aot import catalog
from mla_testing.cli import main
from mla_testing.cli.compile import TARGETS

NO_GPU = not torch.cuda.is_available()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["bogus"], "bogus"),
        (["explain", "decode", "--foo"], "--foo"),
        (["explain", "backward"], "'backward'"),
        (["explain", "decode", "--heads", "129"], "129"),
        (["explain", "decode", "--heads", "0"], "0"),
        (["explain", "decode", "--heads", "many"], "--heads"),
        (["explain", "decode", "--batch", "-3"], "--batch"),
        (["explain", "decode", "--q-len", "0"], "q_len"),
        (["explain", "decode", "--dtype", "fp8"], "'fp8'"),
        (["explain", "decode", "--target", "sm_70"], "'sm_70'"),
        (["explain", "decode", "--solution", "best"], "'best'"),
        (["explain", "decode", "--kv-heads", "2"], "--kv-heads"),
        (["explain", "prefill", "--heads", "3", "--kv-heads", "2"], "kv_heads"),
        (["compile", "--target", "cpu"], "'cpu'"),
        (["compile", "--op", "encode"], "'encode'"),
        (["compile", "--jobs", "-1"], "--jobs"),
        (["bench", "decode", "--grid", "3x4"], "'3x4'"),
        (["bench", "prefill", "--grid", "1x128x16x2"], "'1x128x16x2'"),
        (["bench", "decode", "--solutions", "best"], "'best'"),
        (["bench", "decode", "--csv", "no/such/folder/x.csv"], "no/such/folder"),
        (["check", "--target", "gfx9999"], "'gfx9999'"),
        (["check", "--subset", "some"], "'some'"),
        (["check", "--solution", "best"], "'best'"),
    ],
)
def test_nonsense_gives_one_line_and_exit_code_2(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mla: ")
    assert captured.err.count("\n") == 1
    assert named in captured.err


@pytest.mark.skipif(not NO_GPU, reason="needs a machine without a GPU")
def test_bench_without_gpu_offers_the_emulator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decode"]) == 2
    assert "no GPU" in (told := capsys.readouterr().err)
    assert "--emulate" in told


def test_no_arguments_show_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in ("explain", "compile", "bench", "check"))


def test_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mla_testing.cli", "explain", "decode", "--foo"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "mla: No such option: --foo\n")


@pytest.mark.parametrize("operation", ["decode", "prefill"])
@pytest.mark.parametrize("target", Target.names())
def test_explain_names_the_chosen_solution(operation: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", operation, "--target", target, "--no-compile", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    chosen = [row["solution"] for row in told["candidates"] if row["chosen"]]
    assert chosen == [told["solution"]]
    assert all(row["reason"] for row in told["candidates"])
    assert told["config"]["config"].endswith("Config")


def test_explain_of_a_pool_beyond_2_gib(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", "decode", "--target", "gfx950", "--no-compile"]
    assert main(arguments) == 0
    assert "32-bit byte offsets reach all of it" in capsys.readouterr().out
    assert main([*arguments, "--pool-gib", "2.01"]) == 0
    assert "64-bit addresses are needed" in capsys.readouterr().out


@pytest.mark.parametrize("target", TARGETS)
def test_compile_writes_what_the_manifest_names(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The smallest kernel of the portable decode; all of them are the compile session's business, not this test's."""
    out = tmp_path / "kernels"
    merge = next(entry.name for entry in catalog(Target.named(target), ["decode"]).entries if "merge" in entry.kernel)
    status = main(["compile", "--target", target, "--only", merge, "--out", str(out), "--jobs", "1", "--json"])
    rows = json.loads(capsys.readouterr().out)["kernels"]
    assert [row["kernel"] in merge for row in rows] == [True]
    assert status == (0 if all(row["ok"] for row in rows) else 1)
    for row in rows:
        assert not row["error"]
        assert row["registers"] > 0
        manifest = json.loads((out / next(name for name in row["files"] if name.endswith(".json"))).read_text())
        assert manifest["arch"] == target
        assert sum(manifest["resources"]["hot_loop"].values()) == sum(row["loop"].values())
        for name in manifest["files"]:
            assert (out / name).stat().st_size > 0
        binary = next(out / name for name in manifest["files"] if name.endswith((".hsaco", ".cubin")))
        assert binary.read_bytes().startswith(b"\x7fELF")
        assert manifest["entry_point"].encode() in binary.read_bytes()
