"""Runs the commands that pages quote and writes their output below: `python docs/refresh.py docs/*.md`.

A quoted command is a comment line `<!-- output: COMMAND -->`; the fenced block behind it is replaced. `python` and
`mla` run with this interpreter.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

COLUMNS = "150"
"""Width of the output, characters."""

QUOTED = re.compile(r"<!-- output: (.+?) -->\n(?:```text\n.*?\n```\n)?", re.S)


def output_of(command: str) -> str:
    """What the command prints on both streams."""
    words = shlex.split(command)
    if words[0] == "mla":
        words = ["python", "-m", "mla_testing.cli", *words[1:]]
    if words[0] == "python":
        words[0] = sys.executable
    environment = {**os.environ, "COLUMNS": COLUMNS, "TRITON_DEFAULT_FP_FUSION": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    lines = (done.stdout + done.stderr).rstrip().splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def refresh(page: Path) -> None:
    """Rewrites the page's quoted outputs."""
    text = page.read_text()
    page.write_text(
        QUOTED.sub(lambda found: f"<!-- output: {found[1]} -->\n```text\n{output_of(found[1])}\n```\n", text)
    )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        refresh(Path(name))
