"""Where the contract cases run: natively, on an emulated GPU, or under Triton's interpreter in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Protocol

import attrs

from mla_core import Target, registry
from mla_core.dispatch import Solution
from mla_core.errors import ArgumentError
from mla_decode import DecodeProblem
from mla_prefill import PrefillProblem
from mla_testing.machine import Machine
from mla_testing.suites import CHECKS, Case, Report, cases, run_case
from mla_testing.suites.decode import DecodeCase

TYPICAL = {
    "decode": DecodeProblem.make(batch=8, heads=16),
    "prefill": PrefillProblem.make(batch=2, seqlen=128, heads=4),
}
"""A plain problem of each operation: a solution that refuses it on a target does not run there."""


EMULATED_COMPUTE_UNITS = 8
"""Of the emulated GPU, one for each of its dies: persistent grids and numbers of splits stay small."""


class Runner(Protocol):
    """A place where solutions run."""

    @property
    def name(self) -> str:
        """Short, for test ids."""

    @property
    def subsets(self) -> tuple[str, ...]:
        """The subsets of cases that are quick enough here."""

    def solutions(self, operation: str) -> tuple[str, ...]:
        """Names of the registered solutions that run here."""

    def run(self, case: Case, solution: str) -> Report:
        """One case; never raises for a fault of the solution."""

    def close(self) -> None:
        """Ends what the runner started."""


@attrs.define
class NativeRunner:
    """This process, on a real machine."""

    name: str
    machine: Machine
    subsets: tuple[str, ...] = ("full", "large")

    def solutions(self, operation: str) -> tuple[str, ...]:
        """Those that support a typical problem on the machine's target."""
        return _supporting(operation, self.machine.target)

    def run(self, case: Case, solution: str) -> Report:
        """Runs the case on the machine."""
        oversized = isinstance(case, DecodeCase) and case.table_tokens > 0
        if oversized and solution == "torch" and self.machine.target.is_gpu:
            # Lengths stay on the device, so it gathers whatever the table could name.
            why = "on a GPU the torch solution gathers as many keys as page_table can name, here more than memory holds"
            return Report(case=case.id, solution=solution, device=self.machine.device, skipped=why)
        return run_case(case, solution, self.machine.device)

    def close(self) -> None:
        """Nothing was started."""


@attrs.define
class EmulatedRunner:
    """This process, on an emulated GPU: seconds for each call, so few cases and few checks."""

    machine: Machine
    checks: tuple[str, ...] = ("accuracy",)
    subsets: tuple[str, ...] = ("smoke", "large")

    @property
    def name(self) -> str:
        """The architecture, said to be emulated."""
        return f"{self.machine.target.arch}-emulated"

    def solutions(self, operation: str) -> tuple[str, ...]:
        """Those that support a typical problem on the emulated target, without those that need no GPU."""
        return _supporting(operation, self.machine.target, without=_supporting(operation, Target.named("cpu")))

    def run(self, case: Case, solution: str) -> Report:
        """Runs the case in the emulator."""
        with self.machine.session(compute_units=EMULATED_COMPUTE_UNITS):
            report = run_case(case, solution, self.machine.device, self.checks)
        return attrs.evolve(report, device=self.machine.target.arch)

    def close(self) -> None:
        """Nothing was started."""


@attrs.define
class InterpretedRunner:
    """A process of its own with TRITON_INTERPRET=1, which has to be set before any kernel is defined.

    The process starts with the first case and serves all of them.
    """

    name: str = "interpreted"
    subsets: tuple[str, ...] = ("smoke", "large")
    _process: subprocess.Popen[str] | None = attrs.field(default=None, init=False)
    _errors: IO[bytes] | None = attrs.field(default=None, init=False)

    def solutions(self, operation: str) -> tuple[str, ...]:
        """Those that the interpreter makes available on a CPU, beside the native ones."""
        cpu = Target.named("cpu")
        native = _supporting(operation, cpu)
        with _environment("TRITON_INTERPRET", "1"):
            return _supporting(operation, cpu, without=native)

    def run(self, case: Case, solution: str) -> Report:
        """Sends the case to the process and waits for its report."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # a process that has ended already gives no answer, as below
            process.stdin.write(json.dumps({"case": case.id, "solution": solution, "device": "cpu"}) + "\n")
            process.stdin.flush()
        answer = process.stdout.readline()
        if answer:
            return attrs.evolve(Report(**json.loads(answer)), environment="TRITON_INTERPRET=1")
        code, self._process = process.wait(), None
        assert self._errors is not None
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()[-10:]
        failure = "\n".join((f"the interpreting process ended with status {code}", *said))
        return Report(case=case.id, solution=solution, device="cpu", failures=(failure,))

    def close(self) -> None:
        """Ends the process by closing its input."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(timeout=60)
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mla_testing.suites", "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env={**os.environ, "TRITON_INTERPRET": "1"},
            )
        return self._process


def runners_for(target: str) -> tuple[Runner, ...]:
    """The runners of a `--target` option.

    `auto`: this machine's GPU; without one, all that a CPU can do: native, interpreted and emulated. `cpu`: native and
    interpreted. `cuda` (HIP too): this machine's GPU. Else an architecture: this machine's GPU where it is that, or
    the emulator where it emulates that.

    Raises ArgumentError for a target that is neither here nor emulated.
    """
    gpu, emulator = Machine.gpu(), Machine.emulator()
    native = NativeRunner("cpu", Machine.cpu())
    real = () if gpu is None else (NativeRunner(gpu.target.arch, gpu, ("full", "large", "huge")),)
    if target == "cpu":
        return (native, InterpretedRunner())
    if target == "auto":
        return real or (native, InterpretedRunner(), *([EmulatedRunner(emulator)] if emulator is not None else ()))
    if gpu is not None and target in ("cuda", gpu.target.arch):
        return real
    if emulator is not None and target == emulator.target.arch:
        return (EmulatedRunner(emulator, checks=tuple(CHECKS)),)
    here = ["auto", "cpu", *(machine.target.arch for machine in (gpu, emulator) if machine is not None)]
    raise ArgumentError("target", repr(target), "one of " + ", ".join(here) + " on this machine")


def matrix(runner: Runner, operation: str) -> Iterator[tuple[str, Case]]:
    """Every (solution, case) that the runner runs for an operation."""
    for solution in runner.solutions(operation):
        for subset in runner.subsets:
            for case in cases(operation, subset):
                yield solution, case


def _supporting(operation: str, target: Target, without: tuple[str, ...] = ()) -> tuple[str, ...]:
    def supports(solution: Solution) -> bool:
        return solution.name not in without and bool(solution.supports(TYPICAL[operation], target))

    return tuple(solution.name for solution in registry.solutions(operation) if supports(solution))


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
