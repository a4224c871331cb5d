"""`mla check`: the contract suite as a self-test of someone's machine, with a report to paste."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from mla_core.dispatch import registry
from mla_core.errors import ArgumentError
from mla_testing.console import make_console, make_progress, make_table
from mla_testing.machine import Machine
from mla_testing.operations import OPERATIONS, check_operation
from mla_testing.suites import SUBSETS, Case, Report, cases, run_case


def check(
    op: Annotated[str | None, typer.Option(help="decode or prefill; both when left out.")] = None,
    target: Annotated[
        str | None, typer.Option(help="gfx950 emulates one where there is none; cpu; default: the best.")
    ] = None,
    solution: Annotated[list[str] | None, typer.Option(help="Only this solution; may be repeated.")] = None,
    subset: Annotated[str, typer.Option(help="smoke (2 minutes), full, or large (pools beyond 4 GiB).")] = "smoke",
    seconds: Annotated[float, typer.Option(min=0, help="Stop starting cases after this time; 0: never.")] = 120.0,
) -> int:
    """Check the kernels on this machine against float64; exits with 1 where any case fails."""
    operations = OPERATIONS if op is None else (check_operation(op),)
    if subset not in SUBSETS:
        raise ArgumentError("subset", repr(subset), ", ".join(SUBSETS))
    for name in solution or ():
        if not any(entry.name == name for operation in operations for entry in registry.solutions(operation)):
            raise ArgumentError("solution", repr(name), "one that `mla explain` lists")
    machine = machine_for(target)
    work = plan(operations, subset, solution or ())
    reports: list[Report] = []
    start = time.perf_counter()
    with machine.session(), make_progress(make_console(stderr=True)) as progress:
        task = progress.add_task("", total=len(work))
        for case, name in work:
            if seconds and time.perf_counter() - start > seconds:
                break
            progress.update(task, description=f"{case.id} {name}")
            reports.append(run_case(case, name, machine.device))
            progress.advance(task)
    _print(machine, reports, len(work))
    ran = [report for report in reports if not report.skipped]
    return 0 if ran and all(report.ok for report in ran) else 1


def plan(operations: Sequence[str], subset: str, solutions: Sequence[str]) -> list[tuple[Case, str]]:
    """(case, solution) in the order to run: the highest priority first, the operations in turn, so that a run that is
    cut short has seen both operations with the kernels that dispatch prefers."""
    columns = []
    for operation in operations:
        chosen = [entry.name for entry in registry.solutions(operation) if not solutions or entry.name in solutions]
        columns.append([(case, name) for name in chosen for case in cases(operation, subset)])
    turns = itertools.zip_longest(*columns)
    return [pair for turn in turns for pair in turn if pair is not None]


def machine_for(name: str | None) -> Machine:
    """The machine that `--target` names. Raises ArgumentError where this one cannot be or emulate it."""
    if name is None:
        return Machine.best()
    if name == "cpu":
        return Machine.cpu()
    for machine in (Machine.gpu(), Machine.emulator()):
        if machine is not None and machine.target.arch == name:
            return machine
    have = [machine.target.arch for machine in (Machine.gpu(), Machine.emulator(), Machine.cpu()) if machine]
    raise ArgumentError("target", repr(name), "on this machine " + ", ".join(dict.fromkeys(have)))


def _print(machine: Machine, reports: list[Report], planned: int) -> None:
    out = make_console()
    out.print(f"mla check: {machine.versions()}", markup=False)
    table = make_table("", ("operation", "solution"), ("passed", "failed", "skipped"))
    groups: dict[tuple[str, str], list[Report]] = {}
    for report in reports:
        groups.setdefault((report.case.split("-")[0], report.solution), []).append(report)
    for (operation, name), mine in groups.items():
        skipped = sum(bool(report.skipped) for report in mine)
        failed = sum(not report.ok for report in mine)
        table.add_row(operation, name, str(len(mine) - skipped - failed), str(failed), str(skipped))
    out.print(table)
    if len(reports) < planned:
        out.print(f"{planned - len(reports)} of {planned} cases not run: out of time (--seconds)")
    for report in reports:
        if not report.ok:
            out.print(str(report), markup=False, soft_wrap=True)
