"""Keeps the leak report of Triton's bindings off a command's last lines.

Triton's nanobind bindings print what they did not free when the interpreter ends, on every run that compiled. It is
written straight to file descriptor 2 after Python's own exit handlers, so the last of these closes that door.
"""

from __future__ import annotations

import atexit
import os
import sys


def silence_leak_report() -> None:
    """Sends whatever is written to standard error after Python's exit handlers to the null device."""
    atexit.register(_close_stderr)


def _close_stderr() -> None:
    sys.stderr.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
