"""Two plots in one picture: where each measurement lies under the measured roofs, and time over length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from mla_testing.bench.measure import Measurement
from mla_testing.bench.roofs import Roofs

MARKERS = "osD^vP*X"
"""Marker of a solution, by its place among the solutions."""

LINE_STYLES = ("-", "--", ":", "-.")
"""Line of a solution in the length plot, by its place among the solutions."""


def draw(path: Path, rows: Sequence[Measurement], roofs: Roofs, title: str) -> None:
    """Writes the picture; measurements without a time are left out.

    Raises ValueError where there is nothing to draw.
    """
    timed = [row for row in rows if row.us is not None]
    if not timed:
        raise ValueError("no measurement was timed, so there is nothing to draw")
    matplotlib.use("Agg")
    figure = Figure(figsize=(14, 6.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    solutions = list(dict.fromkeys(row.solution for row in timed))
    _roofline(left, timed, roofs, solutions)
    _latency(right, timed, solutions)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=130)


def _roofline(axes: Any, rows: Sequence[Measurement], roofs: Roofs, solutions: Sequence[str]) -> None:
    intensities = [row.shape.flops / row.shape.bytes for row in rows]
    low, high = (
        min(*intensities, roofs.matmul / roofs.bandwidth) / 2,
        max(*intensities, roofs.matmul / roofs.bandwidth) * 2,
    )
    corner = roofs.matmul / roofs.bandwidth
    axes.plot(
        [low, corner, high],
        [low * roofs.bandwidth / 1e12, roofs.matmul / 1e12, roofs.matmul / 1e12],
        color="black",
        label=f"measured: {roofs.bandwidth / 1e12:.2f} TB/s, {roofs.matmul / 1e12:.0f} TFLOP/s",
    )
    for number, solution in enumerate(solutions):
        mine = [row for row in rows if row.solution == solution]
        axes.scatter(
            [row.shape.flops / row.shape.bytes for row in mine],
            [(row.flops or 0.0) / 1e12 for row in mine],
            marker=MARKERS[number % len(MARKERS)],
            s=36,
            alpha=0.75,
            label=solution,
        )
    axes.set(
        xscale="log", yscale="log", xlabel="FLOP per byte of least traffic", ylabel="TFLOP/s", title="under the roofs"
    )
    axes.grid(which="both", alpha=0.25)
    axes.legend(loc="lower right")


def _latency(axes: Any, rows: Sequence[Measurement], solutions: Sequence[str]) -> None:
    """A line for each solution and family of shapes that differ in length only; a colour for each family."""
    families: dict[str, list[Measurement]] = {}
    for row in rows:
        families.setdefault(_family(row), []).append(row)
    colours = matplotlib.colormaps["tab20"]
    for number, (family, members) in enumerate(families.items()):
        for place, solution in enumerate(solutions):
            mine = sorted((row for row in members if row.solution == solution), key=lambda row: row.shape.seqlen)
            if not mine:
                continue
            axes.plot(
                [row.shape.seqlen for row in mine],
                [row.us for row in mine],
                color=colours(number % 20),
                linestyle=LINE_STYLES[place % len(LINE_STYLES)],
                marker=MARKERS[place % len(MARKERS)],
                markersize=4,
                label=f"{family} {solution}",
            )
    axes.set(xscale="log", yscale="log", xlabel="length, tokens", ylabel="time, us", title="time over length")
    axes.set_xscale("log", base=2)
    axes.grid(which="both", alpha=0.25)
    axes.legend(fontsize=7, ncols=1 + len(axes.get_lines()) // 16, loc="upper left")


def _family(row: Measurement) -> str:
    """What the shape is but for its length."""
    batch, _, *rest = row.shape.label.split("x")
    return (
        "x".join((f"batch {batch}, heads {rest[0]}", *rest[1:]))
        if len(rest) == 1
        else (f"batch {batch}, heads {rest[0]}, " + ("q_len " if rest[1].isdigit() else "") + rest[1])
    )
