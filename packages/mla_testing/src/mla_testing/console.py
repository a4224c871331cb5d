"""The look of what the tools print: one console, one kind of table, one kind of progress bar."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

PLAIN_WIDTH = 200
"""Columns of output that goes to a file or a pipe, which has no width of its own."""


NAMES = ("sample", "kernel", "solution", "shape")
"""Columns of names that are not broken over lines."""


def make_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal (or COLUMNS), or PLAIN_WIDTH where there is none."""
    console = Console(stderr=stderr, highlight=False)
    known = console.is_terminal or "COLUMNS" in os.environ
    return console if known else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH)


def make_table(title: str, text: Sequence[str], numbers: Sequence[str]) -> Table:
    """An empty table: `text` columns to the left, then `numbers` columns to the right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in text:
        table.add_column(name, overflow="fold", no_wrap=name in NAMES)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def make_progress(console: Console) -> Progress:
    """A progress bar that counts, names what it is at, and vanishes when done."""
    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=console, transient=True)
