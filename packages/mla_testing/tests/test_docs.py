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


def test_tables_of_measurements_are_written_in_place(tmp_path: Path) -> None:
    """Twice gives the same page, and each shape is one row with the chosen solution's figures."""
    columns = "batch,seqlen,heads,q_len,mask,solution,chosen,us,tb_per_s,tflop_per_s,of_measured_roof,speedup_over_triton,failure"
    rows = (
        "64,4096,128,1,,triton,False,250.0,1.2,290.0,0.37,1.0,",
        "64,4096,128,1,,hopper,True,125.0,2.4,580.0,0.74,2.0,",
        "1,64,8,2,,hopper,True,,,,,,wrong",
    )
    (tmp_path / "times.csv").write_text("\n".join(("# some GPU", columns, *rows)) + "\n")
    page = tmp_path / "page.md"
    page.write_text("# Times\n\n<!-- table: times.csv -->\n\nAnd on.\n")
    for _ in range(2):
        subprocess.run([sys.executable, DOCS / "refresh.py", "--tables", page], check=True)
        lines = page.read_text().splitlines()
        assert lines.count("| 64 x 4096 x 128 | 250.0 | 125.0 | 2.4 | 580.0 | 74 % | 2.0 |") == 1
        assert lines.count("| 1 x 64 x 8 x 2 |  | wrong |  |  |  |  |") == 1
        assert (lines[0], lines[-1]) == ("# Times", "And on.")
        assert lines.count("some GPU") == 1
