"""The documentation's programs run: the Python blocks of a page, in order, are one program that must end well."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mla_core import triton_support

DOCS = Path(__file__).parents[3] / "docs"

PROGRAMS = ("compose.md", "getting-started.md")
"""Pages whose `python` blocks need no GPU."""


def program_of(page: str) -> str:
    """The Python blocks of a page, one behind the other; at the same line numbers, so that a traceback fits the page."""
    lines = []
    inside = False
    for line in (DOCS / page).read_text().splitlines():
        starts = line == "```python"
        inside = (inside or starts) and line != "```"
        lines.append(line if inside and not starts else "")
    return "\n".join(lines)


@pytest.mark.skipif(bool(triton_support.missing()), reason=triton_support.missing())
@pytest.mark.parametrize("page", PROGRAMS)
def test_page_runs(page: str, tmp_path: Path) -> None:
    source = program_of(page)
    assert len(re.findall(r"^import|^from", source, re.M)) > 1
    path = tmp_path / (page.replace("-", "_").removesuffix(".md") + ".py")
    path.write_text(source)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
