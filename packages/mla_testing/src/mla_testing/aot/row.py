"""What is kept of one compiled kernel: plain values that a process can hand to another and a table can show."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from mla_core.compile import CompiledReport, nvidia_tool
from mla_core.errors import CompileError
from mla_core.instruction_mix import hot_loop
from mla_core.target import Target
from mla_testing.aot.catalog import CatalogEntry
from mla_testing.aot.limits import FIELDS, limits_of


@attrs.frozen(kw_only=True)
class CompiledRow:
    """Resources and steady loop of one kernel, or why there are none.

    Attributes:
        entry: which kernel.
        error: what the compiler said; empty when it succeeded, and then the figures below are the report's.
        broken: limits that the kernel exceeds.
        loop: instructions of one trip through the steady loop, by class; empty where no loop has a matrix instruction.
        files: names of the files written, relative to the output folder.
    """

    entry: CatalogEntry
    error: str = ""
    broken: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    registers: int = 0
    scalar_registers: int = 0
    spills: int = 0
    scalar_spills: int = 0
    shared_bytes: int = 0
    occupancy: int = 0
    num_warps: int = 0
    seconds: float = 0.0
    loop: Mapping[str, int] = attrs.field(factory=dict)
    files: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the kernel compiled and keeps its limits."""
        return not self.error and not self.broken

    @property
    def loop_total(self) -> int:
        """Instructions of one trip through the steady loop."""
        return sum(self.loop.values())

    def as_dict(self) -> dict[str, Any]:
        """The row as plain values, for JSON."""
        values = attrs.asdict(self, recurse=False)
        del values["entry"]
        return {**attrs.asdict(self.entry), **values, "loop": dict(self.loop), "ok": self.ok}


def row_of(entry: CatalogEntry, report: CompiledReport) -> CompiledRow:
    """The row of a kernel that compiled; `broken` holds the target's limits and those of `limits.toml`."""
    loop = hot_loop(machine_code(report))
    figures: dict[str, float] = {"registers": report.registers, "shared_bytes": report.shared_bytes}
    if loop is not None:
        figures |= {"loop": loop.total, "loop_per_matrix": loop.total / loop.matrix}
    limits = limits_of(entry)
    broken = report.broken_limits(Target.named(entry.target), limits["spills"])
    for name, ceiling in limits.items():
        if name in FIELDS and name not in ("shared_bytes", "spills") and figures.get(name, 0) > ceiling:
            broken.append(f"{name} {figures[name]:.4g} exceeds the ceiling {ceiling:g}")
    return CompiledRow(
        entry=entry,
        broken=tuple(broken),
        warnings=tuple(report.warnings),
        registers=report.registers,
        scalar_registers=report.scalar_registers,
        spills=report.spills,
        scalar_spills=report.scalar_spills,
        shared_bytes=report.shared_bytes,
        occupancy=report.occupancy,
        num_warps=report.num_warps,
        seconds=report.seconds,
        loop={} if loop is None else dict(loop.mix),
    )


def machine_code(report: CompiledReport) -> str:
    """The text that the processor's own instructions are read from: amdgcn, or SASS disassembled from the cubin.

    Raises CompileError where the disassembler refuses.
    """
    if "amdgcn" in report.asm:
        return report.assembly
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(report.binary)
        done = subprocess.run([nvidia_tool("nvdisasm"), "-c", cubin], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"nvdisasm: {done.stderr.strip()[-2000:]}")
    return done.stdout
