"""The files of a kernel compiled ahead of time: assembly, binary, and a JSON manifest that says how to launch it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mla_core.compile import CompiledReport, KernelSpec
from mla_core.problem import COPY_BYTES
from mla_core.target import Target
from mla_core.triton_support import version
from mla_testing.aot.catalog import CatalogEntry
from mla_testing.aot.limits import limits_of
from mla_testing.aot.row import CompiledRow, machine_code

TRAILING_ARGUMENTS = ("global_scratch", "profile_scratch")
"""Pointers that Triton's binaries take behind the kernel's own arguments (Triton 3.6 to 3.9, both back ends); null
where the kernel needs no such scratch."""


def manifest(entry: CatalogEntry, spec: KernelSpec, report: CompiledReport, row: CompiledRow) -> dict[str, Any]:
    """How to load and launch the binary: names, arguments in order, launch parameters, and its limits."""
    target = Target.named(entry.target)
    arguments = [
        {"name": name, "type": spec.signature[name], "multiple_of": COPY_BYTES if name in spec.divisible else 1}
        for name in spec.fn.arg_names
        if name not in spec.constexprs
    ]
    found = version()
    return {
        "name": entry.name,
        "entry_point": report.entry,
        "arch": entry.target,
        "operation": entry.operation,
        "solution": entry.solution,
        "sample": entry.sample,
        "triton": ".".join(map(str, found)) if found else None,
        "arguments": arguments,
        "trailing_arguments": list(TRAILING_ARGUMENTS),
        "constants": {name: _plain(value) for name, value in spec.constexprs.items()},
        "launch": {
            "threads": report.num_warps * target.warp_size,
            "num_warps": report.num_warps,
            "warp_size": target.warp_size,
            "shared_bytes": report.shared_bytes,
        },
        "limits": limits_of(entry),
        "resources": {
            "registers": row.registers,
            "scalar_registers": row.scalar_registers,
            "occupancy": row.occupancy,
            "hot_loop": dict(row.loop),
        },
        "files": list(row.files),
    }


def file_names(entry: CatalogEntry) -> dict[str, str]:
    """Names of the files by kind: `assembly`, `binary` and `manifest`."""
    amd = Target.named(entry.target).backend == "hip"
    stem = f"{entry.name}.{entry.target}"
    return {
        "assembly": f"{stem}.{'s' if amd else 'sass'}",
        "binary": f"{stem}.{'hsaco' if amd else 'cubin'}",
        "manifest": f"{stem}.json",
    }


def write(folder: Path, entry: CatalogEntry, spec: KernelSpec, report: CompiledReport, row: CompiledRow) -> None:
    """Writes the kernel's files (`file_names`) into `folder`, which exists."""
    names = file_names(entry)
    (folder / names["assembly"]).write_text(machine_code(report))
    (folder / names["binary"]).write_bytes(report.binary)
    (folder / names["manifest"]).write_text(json.dumps(manifest(entry, spec, report, row), indent=2) + "\n")


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)
