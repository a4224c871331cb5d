"""Writes the generated parts of pages anew: `python docs/refresh.py docs/*.md`.

`<!-- output: COMMAND -->` is followed by what the command prints; `python` and `mla` run with this interpreter.
`<!-- table: FILE.csv -->` is followed by a table of a file that `mla bench --csv` wrote, its path relative to the page:
one row a shape, a column of times for each solution, and the figures of the solution that dispatch chooses.
`--tables` refreshes tables only, and runs nothing.
"""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

COLUMNS = "150"
"""Width of the output, characters."""

QUOTED = re.compile(r"<!-- output: (.+?) -->\n(?:```text\n.*?\n```\n)?", re.S)

TABLE = re.compile(r"<!-- table: (\S+) -->\n(?:.*?<!-- end -->\n)?", re.S)


def output_of(command: str) -> str:
    """What the command prints on both streams. Nothing is compiled already, so that compile times are what they say."""
    words = shlex.split(command)
    if words[0] == "mla":
        words = ["python", "-m", "mla_testing.cli", *words[1:]]
    if words[0] == "python":
        words[0] = sys.executable
    with tempfile.TemporaryDirectory() as cache:
        settings = {"COLUMNS": COLUMNS, "TRITON_CACHE_DIR": cache, "TRITON_DEFAULT_FP_FUSION": "1"}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **settings})
    lines = (done.stdout + done.stderr).rstrip().splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def table_of(path: Path) -> str:
    """A Markdown table of measurements, below the line that states machine, versions and roofs."""
    first, *lines = path.read_text().splitlines()
    shapes: dict[str, dict[str, dict[str, str]]] = {}
    for row in csv.DictReader(lines):
        parts = [row["batch"], row["seqlen"], row["heads"], "" if row["q_len"] == "1" else row["q_len"], row["mask"]]
        shapes.setdefault(" x ".join(filter(None, parts)), {})[row["solution"]] = row
    names = list(dict.fromkeys(name for rows in shapes.values() for name in rows))
    head = ["shape", *(f"{name}, us" for name in names), "TB/s", "TFLOP/s", "of roof", "vs triton"]
    table = [head, ["---"] * len(head)]
    for shape, rows in shapes.items():
        best = next((row for row in rows.values() if row["chosen"] == "True"), next(iter(rows.values())))
        share = f"{100 * float(best['of_measured_roof']):.0f} %" if best["of_measured_roof"] else ""
        times = [rows[name]["us"] or rows[name]["failure"] if name in rows else "" for name in names]
        table.append([shape, *times, best["tb_per_s"], best["tflop_per_s"], share, best["speedup_over_triton"]])
    return "\n".join([first.removeprefix("# "), "", *(f"| {' | '.join(cells)} |" for cells in table)])


def refresh(page: Path, *, tables_only: bool) -> None:
    """Rewrites the page's generated parts."""
    text = page.read_text()
    if not tables_only:
        text = QUOTED.sub(lambda found: f"<!-- output: {found[1]} -->\n```text\n{output_of(found[1])}\n```\n", text)
    text = TABLE.sub(
        lambda found: f"<!-- table: {found[1]} -->\n\n{table_of(page.parent / found[1])}\n\n<!-- end -->\n", text
    )
    page.write_text(text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if name != "--tables":
            refresh(Path(name), tables_only="--tables" in sys.argv)
