"""Measurements as a table and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from mla_testing.bench.measure import Measurement
from mla_testing.bench.roofs import Roofs
from mla_testing.console import make_table


def table_of(title: str, rows: Sequence[Measurement], roofs: Roofs) -> Table:
    """A table of measurements: dispatch's own choice is marked, the share is that of the measured roofs."""
    numbers = ("us", "TB/s", "TFLOP/s", "% of roof", "vs triton", "relative RMS")
    table = make_table(title, ("shape", "solution", ""), numbers)
    for row in rows:
        mark = "chosen" if row.chosen else ""
        if row.us is None:
            table.add_row(row.shape.label, row.solution, "refused" if row.refused else "[red]WRONG")
            continue
        table.add_row(
            row.shape.label,
            row.solution,
            mark,
            f"{row.us:.1f}",
            _spell(row.bandwidth, 1e-12, ".2f"),
            _spell(row.flops, 1e-12, ".0f"),
            _spell(row.of_roof(roofs), 100, ".0f"),
            _spell(row.speedup, 1, ".2f"),
            _spell(row.relative_rms, 1, ".1e"),
        )
    return table


def _spell(value: float | None, factor: float, form: str) -> str:
    return "" if value is None else format(value * factor, form)


def write_csv(path: Path, rows: Sequence[Measurement], roofs: Roofs, versions: str) -> None:
    """Writes the measurements with a comment line in front that states the machine, the versions and the roofs."""
    with path.open("w", newline="") as file:
        file.write(f"# {versions}; measured roofs: {roofs}\n")
        records = [row.as_dict(roofs) for row in rows]
        writer = csv.DictWriter(file, fieldnames=list(records[0]) if records else [])
        writer.writeheader()
        writer.writerows(records)
