"""`mla bench`: times of both operations on this machine's GPU, against its measured roofs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mla_core.dispatch import registry
from mla_core.errors import ArgumentError, UnsupportedError
from mla_testing.bench.grids import GRIDS, Shape, shapes
from mla_testing.console import make_console, make_progress
from mla_testing.machine import Machine
from mla_testing.operations import check_operation

EMULATED_GRIDS = {"decode": "1x512x16,1x512x128", "prefill": "1x256x1,1x256x1xfull"}
"""Shapes that an emulator runs in seconds."""


def bench(
    operation: Annotated[str, typer.Argument(help="decode or prefill.")],
    grid: Annotated[
        str | None, typer.Option(help=f"{', '.join(GRIDS)}, or shapes: 64x4096x128 is batch x length x heads.")
    ] = None,
    solutions: Annotated[
        str | None, typer.Option(help="Comma-separated names, or all; default: dispatch's choice and triton.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write the measurements to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw them: roofline, and time over length (PNG).")] = None,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="Count the instructions of the gfx950 kernels in the emulator instead.")
    ] = False,
    budget_ms: Annotated[float, typer.Option(min=1, help="Measuring time for each solution and shape.")] = 60.0,
) -> int:
    """Measure time, TB/s, TFLOP/s and share of the machine's measured roofs; results are checked first."""
    check_operation(operation)
    names = _solution_names(operation, solutions)
    if emulate:
        if csv or plot:
            raise ArgumentError("--emulate", "given with --csv or --plot", "alone: it counts instructions, not time")
        return _count(operation, shapes(operation, grid or EMULATED_GRIDS[operation]), names)
    chosen = shapes(operation, grid or "small")
    for path in (csv, plot):
        if path is not None and not path.absolute().parent.is_dir():
            raise ArgumentError("--csv" if path is csv else "--plot", str(path), "a file in a folder that exists")
    machine = Machine.gpu()
    if machine is None:
        raise UnsupportedError(
            f"no GPU on this machine, so there is no time to measure; `mla bench {operation} --emulate` counts the "
            "instructions of the gfx950 kernels in the emulator instead"
        )
    return _measure(operation, chosen, names, csv, plot, budget_ms, machine)


def _solution_names(operation: str, text: str | None) -> list[str]:
    known = [entry.name for entry in registry.solutions(operation)]
    if text is None:
        return []
    names = known if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise ArgumentError("--solutions", repr(name), ", ".join(known) + " or all")
    return names


def _measure(
    operation: str,
    chosen: list[Shape],
    names: list[str],
    csv: Path | None,
    plot: Path | None,
    budget_ms: float,
    machine: Machine,
) -> int:
    from mla_testing.bench.measure import Measurement, measure_shape
    from mla_testing.bench.plots import draw
    from mla_testing.bench.report import table_of, write_csv
    from mla_testing.bench.roofs import measure
    from mla_testing.bench.timing import GraphTimer

    console = make_console()
    timer = GraphTimer(budget_ms=budget_ms)
    rows: list[Measurement] = []
    with make_progress(make_console(stderr=True)) as progress:
        task = progress.add_task("measuring the machine's roofs", total=len(chosen))
        roofs = measure(timer)
        for shape in chosen:
            progress.update(task, description=shape.label)
            rows += measure_shape(shape, names, timer)
            progress.advance(task)
            if csv is not None:  # after each shape: a run that is cut short keeps what it has
                write_csv(csv, rows, roofs, machine.versions())
    console.print(machine.versions(), markup=False)
    console.print(f"measured roofs: {roofs}", markup=False)
    title = f"{operation}, bf16: median of graph replays with cold caches"
    console.print(table_of(title, rows, roofs))
    for row in rows:
        if row.failure:
            console.print(f"{row.shape.label} {row.solution}: {row.failure}", markup=False)
    if plot is not None and any(row.us is not None for row in rows):
        draw(plot, rows, roofs, f"MLA {operation}, {machine.versions()}")
    return 1 if any(row.failure and not row.refused for row in rows) else 0


def _count(operation: str, chosen: list[Shape], names: list[str]) -> int:
    from mla_testing.bench.counts import count_shape, table_of

    machine = Machine.emulator()
    if machine is None:
        raise UnsupportedError(
            "no Triton is installed to compile the gfx950 kernels with, so there is nothing to emulate"
        )
    rows = []
    with make_progress(make_console(stderr=True)) as progress:
        task = progress.add_task("", total=len(chosen))
        for shape in chosen:
            progress.update(task, description=shape.label)
            rows += count_shape(shape, names, machine)
            progress.advance(task)
    console = make_console()
    console.print(table_of(operation, rows))
    wrong = [row for row in rows if row.failure]
    for row in wrong:
        console.print(f"{row.shape.label} {row.solution}: {row.failure}", markup=False)
    return 1 if wrong or not rows else 0
