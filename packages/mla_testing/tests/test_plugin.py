"""The pytest plugin: a solution joins by registering, a failure fails, and --target is checked."""

import os
import subprocess
import sys

SUITE = """
import attrs
import pytest
from mla_core import registry
from mla_core.dispatch import no
from mla_decode.portable.torch_solution import SOLUTION, TorchDecodeProgram


class Newcomer(TorchDecodeProgram):
    bias = 0.0

    def launch(self, *arguments):
        super().launch(*arguments)
        arguments[4].add_(self.bias)


class Spoiled(Newcomer):
    bias = 0.5


def supports(problem, target):
    return no("odd heads") if problem.heads % 2 else SOLUTION.supports(problem, target)


for name, build in (("newcomer", Newcomer), ("spoiled", Spoiled)):
    registry.register(attrs.evolve(SOLUTION, name=name, priority=-1, build=build, supports=supports))


@pytest.mark.contract("decode")
def test_contract(contract_report):
    assert contract_report.ok, str(contract_report)
"""


def run_pytest(folder, *arguments):
    (folder / "test_joining.py").write_text(SUITE)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "mla_testing.plugin", "-q", "-rs", "--rootdir", str(folder), *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
    )


def test_registered_solutions_join(tmp_path):
    """A good one passes, what it refuses is skipped with the reason, and a bad one fails with a reproducer."""
    choice = "(newcomer or spoiled) and (h16-q1-b8 or h5-q2-b3-p16)"
    done = run_pytest(tmp_path, "--target", "cpu", "-k", choice)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed, 2 skipped" in done.stdout
    assert "odd heads" in done.stdout
    assert "relative_rms" in done.stdout
    assert "python -m mla_testing.suites --case decode-h16-q1-b8" in done.stdout


def test_an_unknown_target_is_a_usage_error(tmp_path):
    done = run_pytest(tmp_path, "--target", "sm_10")
    assert done.returncode == 4
    assert "target is 'sm_10'; allowed: one of auto, cpu" in done.stderr
