"""One picture of a benchmark: where each measurement lies under the measured roofs, and time over length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from mla_testing.bench.measure import Measurement
from mla_testing.bench.roofs import Roofs

MARKERS = "osD^vP*X"
"""Marker of a solution, by its place among the solutions."""

LINE_STYLES = ("-", "--", ":", "-.")
"""Line of a solution over lengths, by its place among the solutions."""

PANEL_INCHES = 3.6
"""Width and height of one panel of times."""


def draw(path: Path, rows: Sequence[Measurement], roofs: Roofs, title: str) -> None:
    """Writes the picture; measurements without a time are left out.

    To the left the roofline; to the right a panel of times for each set of shapes that differ in length and batch only.
    Raises ValueError where there is nothing to draw.
    """
    timed = [row for row in rows if row.us is not None]
    if not timed:
        raise ValueError("no measurement was timed, so there is nothing to draw")
    matplotlib.use("Agg")
    solutions = list(dict.fromkeys(row.solution for row in timed))
    batches = sorted({row.shape.batch for row in timed})
    lengths = sorted({row.shape.seqlen for row in timed})
    families: dict[str, list[Measurement]] = {}
    for row in timed:
        families.setdefault(_family(row), []).append(row)
    columns = -(-len(families) // 2)
    figure = Figure(figsize=(2 * PANEL_INCHES + PANEL_INCHES * columns, 2 * PANEL_INCHES), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=(2, columns))
    left, right = parts
    _roofline(left.subplots(), timed, roofs, solutions)
    panels = right.subplots(2 if len(families) > 1 else 1, columns, squeeze=False, sharex=True, sharey=True)
    for axes, (family, members) in zip(panels.flat, families.items(), strict=False):
        _times(axes, family, members, solutions, batches, lengths)
    for axes in panels.flat[len(families) :]:
        axes.set_visible(False)
    right.legend(
        handles=[
            *(Line2D([], [], color=_colour(place), label=f"batch {batch}") for place, batch in enumerate(batches)),
            *(Line2D([], [], color="black", label=name, **_style(place)) for place, name in enumerate(solutions)),
        ],
        loc="outside lower center",
        ncols=min(len(batches) + len(solutions), 3 * columns),
        fontsize=8,
    )
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=130)


def _roofline(axes: Any, rows: Sequence[Measurement], roofs: Roofs, solutions: Sequence[str]) -> None:
    corner = roofs.matmul / roofs.bandwidth
    intensities = [corner, *(row.shape.flops / row.shape.bytes for row in rows)]
    low, high = min(intensities) / 2, max(intensities) * 2
    axes.plot(
        [low, corner, high],
        [low * roofs.bandwidth / 1e12, roofs.matmul / 1e12, roofs.matmul / 1e12],
        color="black",
        label=f"measured roofs: {roofs.bandwidth / 1e12:.2f} TB/s, {roofs.matmul / 1e12:.0f} TFLOP/s",
    )
    for place, solution in enumerate(solutions):
        mine = [row for row in rows if row.solution == solution]
        axes.scatter(
            [row.shape.flops / row.shape.bytes for row in mine],
            [(row.flops or 0.0) / 1e12 for row in mine],
            marker=MARKERS[place % len(MARKERS)],
            s=30,
            alpha=0.7,
            label=solution,
        )
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte of least traffic", ylabel="TFLOP/s")
    axes.grid(which="both", alpha=0.2)
    axes.legend(loc="lower right", fontsize=9)


def _times(
    axes: Any,
    family: str,
    rows: Sequence[Measurement],
    solutions: Sequence[str],
    batches: Sequence[int],
    lengths: Sequence[int],
) -> None:
    for place, solution in enumerate(solutions):
        for batch in batches:
            mine = [row for row in rows if (row.solution, row.shape.batch) == (solution, batch)]
            mine.sort(key=lambda row: row.shape.seqlen)
            axes.plot(
                [row.shape.seqlen for row in mine],
                [row.us for row in mine],
                color=_colour(batches.index(batch)),
                **_style(place),
            )
    axes.set(xscale="log", yscale="log", title=family)
    axes.title.set_fontsize(9)
    axes.set_xlabel("length, tokens", fontsize=8)
    axes.set_ylabel("time, us", fontsize=8)
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tokens, _: _spell_length(int(tokens))))
    axes.tick_params(labelsize=7, axis="both")
    axes.grid(which="major", alpha=0.25)


def _style(place: int) -> dict[str, Any]:
    return {
        "linestyle": LINE_STYLES[place % len(LINE_STYLES)],
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 4,
    }


def _colour(place: int) -> Any:
    return matplotlib.colormaps["tab10"](place % 10)


def _spell_length(tokens: int) -> str:
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else str(tokens)


def _family(row: Measurement) -> str:
    """What the shape is but for its batch and length."""
    values = row.shape.as_dict()
    parts = [f"{values['heads']} heads"]
    if values["mask"]:
        parts.append(values["mask"])
    elif values["q_len"] > 1:
        parts.append(f"{values['q_len']} query tokens")
    if "-" in str(values["seqlen"]):
        parts.append("spread lengths")
    return ", ".join(parts)
