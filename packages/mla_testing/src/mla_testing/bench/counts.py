"""What the gfx950 kernels execute, counted by the emulator: instructions and bytes, no time."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from rich.table import Table

from mla_core.dispatch import registry
from mla_core.errors import UnsupportedError
from mla_core.target import KIB, Target
from mla_testing.bench.grids import Shape
from mla_testing.bench.sampling import compare_sample
from mla_testing.console import make_table
from mla_testing.emulation import EMULATED
from mla_testing.gfx950.errors import EmulationError
from mla_testing.gfx950.session import LaunchRecord
from mla_testing.machine import Machine
from mla_testing.operations import call, problem_of

CLASSES = ("mfma", "valu", "transcendental", "salu", "smem", "lds", "vmem", "wait", "barrier")
"""Instruction classes in the table, as the emulator names them."""


SHORT = {"transcendental": "trans", "barrier": "bar"}
"""Headings of classes whose names are long."""

TRAFFIC = ("read KiB", "written KiB", "LDS KiB")


@attrs.frozen(kw_only=True)
class Count:
    """One launch of one solution on one shape.

    Attributes:
        launch: what the emulator recorded; None where it stopped at a fault.
        failure: the fault, or what is wrong with the result; empty where it is right.
    """

    shape: Shape
    solution: str
    launch: LaunchRecord | None = None
    failure: str = ""


def count_shape(shape: Shape, solutions: Sequence[str], machine: Machine) -> list[Count]:
    """Runs each solution on a shape in the emulator, compares it with float64, and returns its launches.

    Args:
        solutions: names; empty stands for what dispatch chooses.
    """
    counts: list[Count] = []
    inputs = shape.inputs(machine.device)
    for name in solutions or [""]:
        with torch.no_grad(), machine.session() as session:
            chosen = name or registry.select(problem_of(inputs), Target.current()).name
            try:
                out, lse = call(inputs, return_lse=True, solution=chosen)
            except UnsupportedError:
                continue
            except EmulationError as error:
                counts.append(Count(shape=shape, solution=chosen, failure=f"{type(error).__name__}: {error}"))
                continue
        accuracy = compare_sample(inputs, out, lse)
        failure = "" if accuracy.ok else str(accuracy)
        counts += [Count(shape=shape, solution=chosen, launch=launch, failure=failure) for launch in session.launches]
    return counts


def table_of(operation: str, counts: Sequence[Count]) -> Table:
    """Executed wave instructions by class, and global memory traffic."""
    title = f"{operation} on gfx950: wave instructions executed in the emulator"
    numbers = ("groups", *(SHORT.get(name, name) for name in CLASSES), "total", "slots/pair", *TRAFFIC)
    table = make_table(title, ("shape", "solution", "kernel"), numbers)
    for row in counts:
        if row.launch is None:
            table.add_row(row.shape.label, row.solution, "[red]stopped")
            continue
        execution, executed = row.launch.execution, row.launch.instructions
        x, y, z = row.launch.grid
        slots = execution.total * Target.named(EMULATED[0]).warp_size
        table.add_row(
            row.shape.label,
            row.solution,
            row.launch.name,
            str(x * y * z),
            *(str(executed.get(name, 0)) for name in CLASSES),
            str(execution.total),
            f"{slots / row.shape.pairs:.1f}",
            f"{execution.bytes_read / KIB:.0f}",
            f"{execution.bytes_written / KIB:.0f}",
            f"{execution.bytes_lds / KIB:.0f}",
        )
    return table
