"""Compiling a catalogue in parallel processes."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from mla_core.compile import compile_kernel
from mla_core.errors import MLAError
from mla_core.target import Target
from mla_testing.aot import manifest
from mla_testing.aot.catalog import CatalogEntry
from mla_testing.aot.row import CompiledRow, row_of
from mla_testing.quiet_exit import silence_leak_report


def compile_all(entries: Sequence[CatalogEntry], *, jobs: int = 1, out: Path | None = None) -> Iterator[CompiledRow]:
    """Compiles every entry and yields its row as it is done, in any order.

    Args:
        jobs: processes; 1 compiles in this one.
        out: folder for assembly, binaries and manifests; None writes nothing.
    """
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    if jobs <= 1 or len(entries) <= 1:
        for entry in entries:
            yield compile_entry(entry, out)
        return
    # Fork would copy the threads of torch and of the compiler in an unknown state.
    context = multiprocessing.get_context("spawn")
    workers = min(jobs, len(entries))
    with concurrent.futures.ProcessPoolExecutor(workers, context, initializer=silence_leak_report) as pool:
        futures = [pool.submit(compile_entry, entry, out) for entry in entries]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()


def compile_entry(entry: CatalogEntry, out: Path | None = None) -> CompiledRow:
    """Compiles one kernel, reads what it costs, and writes its files; a refusal becomes the row's error."""
    try:
        spec = entry.spec()
        report = compile_kernel(spec, Target.named(entry.target))
        row = row_of(entry, report)
        if out is not None:
            row = attrs.evolve(row, files=tuple(manifest.file_names(entry).values()))
            manifest.write(out, entry, spec, report, row)
    except MLAError as error:
        return CompiledRow(entry=entry, error=str(error))
    except Exception as error:  # a fault of the kernel's own Python is the row's result as well
        return CompiledRow(entry=entry, error=f"{type(error).__name__}: {error}")
    return row
