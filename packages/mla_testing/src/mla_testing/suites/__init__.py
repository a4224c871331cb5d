"""Contract cases of both operations: the same for every solution and target, from pytest and from a command line.

    report = run_case(find("decode-h16-..."), solution="triton", device="cuda")

`python -m mla_testing.suites --help` runs subsets and single cases.
"""

from __future__ import annotations

import traceback

import attrs
import torch

from mla_core.errors import ArgumentError, UnsupportedError
from mla_testing.suites import decode, prefill
from mla_testing.suites.checks import CHECKS, Run, checks_for

OPERATIONS = {"decode": decode, "prefill": prefill}

SUBSETS = ("smoke", "full", "large", "huge")

Case = decode.DecodeCase | prefill.PrefillCase


@attrs.frozen(kw_only=True)
class Report:
    """Outcome of one case.

    Attributes:
        case, solution, device: what ran, by id and name.
        failures: one sentence each; empty when all checks passed.
        skipped: why the solution does not serve the case; empty when it ran.
        checks: names of the checks that ran.
        environment: variables that the reproducer needs, as a shell takes them.
    """

    case: str
    solution: str
    device: str
    failures: tuple[str, ...] = ()
    skipped: str = ""
    checks: tuple[str, ...] = ()
    environment: str = ""

    @property
    def ok(self) -> bool:
        """Whether no check failed (a skipped case counts as well)."""
        return not self.failures

    @property
    def reproducer(self) -> str:
        """A command that runs this case alone."""
        command = f"python -m mla_testing.suites --case {self.case} --solution {self.solution} --device {self.device}"
        return f"{self.environment} {command}".lstrip()

    def __str__(self) -> str:
        if self.skipped:
            return f"skipped  {self.case} {self.solution}: {self.skipped}"
        if self.ok:
            return f"passed   {self.case} {self.solution}"
        return "\n".join((f"FAILED   {self.case} {self.solution}", *self.failures, self.reproducer))


def cases(operation: str, subset: str = "full") -> tuple[Case, ...]:
    """The cases of an operation.

    Args:
        operation: `decode` or `prefill`.
        subset: `smoke` (few and small), `full` (all pairs of options), `large` (tensors beyond 4 GiB) or `huge`
            (batches and contexts for a GPU).
    """
    if subset not in SUBSETS:
        raise ArgumentError("subset", repr(subset), "one of " + ", ".join(SUBSETS))
    return tuple({case.id: case for case in getattr(OPERATIONS[operation], subset)()}.values())


def find(case_id: str) -> Case:
    """The case of that id. Raises ArgumentError where there is none."""
    for operation in OPERATIONS:
        for subset in SUBSETS:
            for case in cases(operation, subset):
                if case.id == case_id:
                    return case
    raise ArgumentError("case", repr(case_id), "an id that `python -m mla_testing.suites --list` prints")


def run_case(
    case: Case,
    solution: str,
    device: torch.device | str = "cpu",
    checks: tuple[str, ...] | None = None,
) -> Report:
    """Runs the checks (default: all that apply) of one case. Never raises for a fault of the solution.

    On CPU tensors the solution runs as it does for any caller: natively, under Triton's interpreter where
    TRITON_INTERPRET is set, or in the emulator inside `mla_testing.emulate`.
    """
    run = Run(case, solution, torch.device(device))
    names = checks_for(run) if checks is None else checks
    failures: list[str] = []
    for name in names:
        try:
            failures += [f"{name}: {fault}" for fault in CHECKS[name](run)]
        except UnsupportedError as error:
            return Report(case=case.id, solution=solution, device=str(device), skipped=str(error))
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            failures.append(f"{name}: {type(error).__name__} at {place.name} line {place.lineno}: {error}")
            break  # the checks share their inputs and the plain call: those behind would only repeat it
    return Report(case=case.id, solution=solution, device=str(device), failures=tuple(failures), checks=names)


__all__ = ["CHECKS", "OPERATIONS", "SUBSETS", "Case", "Report", "cases", "find", "run_case"]
