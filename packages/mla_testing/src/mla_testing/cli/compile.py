"""`mla compile`: every kernel for a target, on any machine, with what it costs."""

from __future__ import annotations

import itertools
import json
import operator
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from mla_core import triton_support
from mla_core.errors import ArgumentError
from mla_core.instruction_mix import CDNA_CLASSES, HOPPER_CLASSES
from mla_core.target import KIB, Target
from mla_testing.aot import CatalogEntry, CompiledRow, catalog, compile_all
from mla_testing.console import make_console, make_progress, make_table
from mla_testing.operations import OPERATIONS, check_operation

TARGETS = ("gfx950", "sm_90")
"""What `--target all` means: the architectures that kernels are written for."""


SHORT = {"barrier": "bar", "wait/nop": "wait"}
"""Headings of instruction classes whose names are long."""


def compile_kernels(
    op: Annotated[str | None, typer.Option(help="decode or prefill; both when left out.")] = None,
    target: Annotated[str, typer.Option(help="gfx950, sm_90, or all.")] = "all",
    solution: Annotated[list[str] | None, typer.Option(help="Only this solution; may be repeated.")] = None,
    only: Annotated[str, typer.Option(help="Only kernels whose name contains this text.")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder for assembly, binaries and JSON manifests.")] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one for each core.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Compile every registered kernel, with no GPU needed; exits with 1 on a spill or another limit exceeded."""
    triton_support.require()
    operations = OPERATIONS if op is None else (check_operation(op),)
    archs = TARGETS if target == "all" else (target,)
    if not set(archs) <= set(TARGETS):
        raise ArgumentError("target", repr(target), ", ".join(TARGETS) + " or all")
    if out is not None and out.exists() and not out.is_dir():
        raise ArgumentError("out", str(out), "a folder, or a name that is not taken")
    catalogs = [catalog(Target.named(arch), operations, solution or ()) for arch in archs]
    entries = [entry for listed in catalogs for entry in listed.entries if only in entry.name]
    left_out = [(arch, *line) for arch, listed in zip(archs, catalogs, strict=True) for line in listed.left_out]
    rows = _compile(entries, jobs or os.cpu_count() or 1, out)
    if as_json:
        print(json.dumps({"kernels": [row.as_dict() for row in rows], "left_out": left_out}, indent=2))
    else:
        _print(rows, left_out)
    if not rows:
        make_console(stderr=True).print(f"no kernel of {', '.join(operations)} for {', '.join(archs)}")
    return 0 if rows and all(row.ok for row in rows) else 1


def _compile(entries: list[CatalogEntry], jobs: int, out: Path | None) -> list[CompiledRow]:
    """Rows in the catalogue's order, with a progress bar on stderr."""
    order = {entry: number for number, entry in enumerate(entries)}
    rows = []
    with make_progress(make_console(stderr=True)) as progress:
        task = progress.add_task("compiling", total=len(entries))
        for row in compile_all(entries, jobs=jobs, out=out):
            rows.append(row)
            progress.update(task, advance=1, description=row.entry.name)
    return sorted(rows, key=lambda row: order[row.entry])


def _print(rows: list[CompiledRow], left_out: list[tuple[str, str, str]]) -> None:
    """A table for each target, operation and solution; then what is wrong, and what was left out."""
    console = make_console()
    key = operator.attrgetter("entry.target", "entry.operation", "entry.solution")
    for (arch, operation, solution), group in itertools.groupby(rows, key):
        console.print(_table(f"{arch} {operation} {solution}", list(group)))
    for row in rows:
        for line in (*row.broken, *row.warnings, *([row.error] if row.error else [])):
            console.print(f"{row.entry.target} {row.entry.name}: {line}", markup=False)
    for arch, what, reason in left_out:
        console.print(f"{arch}: {what}: {reason}", markup=False, style="dim")


def _table(title: str, rows: list[CompiledRow]) -> Table:
    """Resources of the kernels, and the instructions of their steady loops, in all and by class."""
    classes = sorted({name for row in rows for name in row.loop}, key=_class_order)
    registers = "VGPRs" if rows[0].entry.target == "gfx950" else "regs"
    numbers = ("warps", registers, "spills", "KiB", "occ", "loop", *(SHORT.get(name, name) for name in classes), "s")
    table = make_table(title, ("sample", "kernel", ""), numbers)
    for row in rows:
        if row.error:
            table.add_row(row.entry.sample, row.entry.kernel, "[red]failed")
            continue
        spills = row.spills + row.scalar_spills
        table.add_row(
            row.entry.sample,
            row.entry.kernel,
            "[red]over" if row.broken else "[green]ok",
            f"{row.num_warps}",
            f"{row.registers}",
            f"[red]{spills}" if spills else "0",
            f"{row.shared_bytes / KIB:.1f}",
            f"{row.occupancy}",
            f"{row.loop_total or '-'}",
            *(f"{row.loop.get(name, 0)}" if row.loop else "-" for name in classes),
            f"{row.seconds:.1f}",
        )
    return table


def _class_order(name: str) -> int:
    return [known for known, _ in (*CDNA_CLASSES, *HOPPER_CLASSES)].index(name)
