"""The commands of `mla` and what they exit with.

0: done; 1: what was asked about is not in order (a kernel exceeds a limit, a result is wrong); 2: the request makes no
sense (a wrong flag, an impossible shape, no GPU), told in one line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from mla_core.errors import MLAError
from mla_testing.cli import bench, check, compile, explain
from mla_testing.quiet_exit import silence_leak_report

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # of click, or of the copy that newer typers carry

app = typer.Typer(
    name="mla",
    help="MLA attention kernels: what they are, which one runs, how fast, how far from the roof.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("explain")(explain.explain)
app.command("compile")(compile.compile_kernels)
app.command("bench")(bench.bench)
app.command("check")(check.check)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `mla` with `arguments` (default: the process's own) and returns its exit status."""
    if arguments is None:
        silence_leak_report()
    command = typer.main.get_command(app)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = command.main(args=given or ["--help"], prog_name="mla", standalone_mode=False)
    except _UsageError as error:
        return _refuse(error.format_message())  # type: ignore[attr-defined]
    except MLAError as error:
        return _refuse(str(error))
    except typer.Abort:
        return 130
    return status if isinstance(status, int) else 0


def _refuse(message: str) -> int:
    print(f"mla: {' '.join(message.split())}", file=sys.stderr)
    return 2
