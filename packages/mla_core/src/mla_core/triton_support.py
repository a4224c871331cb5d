"""Which Triton is installed, and whether it is enough. Importing this module never imports Triton itself.

Triton comes with torch on Linux (torch 2.11: 3.6.0, 2.12 and 2.13: 3.7.1, 2.14: 3.8, 2.15: 3.9); CPU builds of
torch bring none, and ROCm builds bring theirs under another distribution name, so the module is asked, not the
distribution.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re

from mla_core.errors import TritonUnavailableError

MINIMUM = (3, 6)
"""Oldest release that the kernels are tested with; the newest is 3.9."""


@functools.cache
def version() -> tuple[int, int] | None:
    """(major, minor) of the installed Triton, or None where none can be imported."""
    if importlib.util.find_spec("triton") is None:
        return None
    try:
        import triton
    except ImportError:
        return None
    found = re.match(r"(\d+)\.(\d+)", getattr(triton, "__version__", ""))
    return (int(found[1]), int(found[2])) if found else None


def missing(minimum: tuple[int, int] = MINIMUM) -> str:
    """Why the installed Triton is not enough, as one sentence; empty where it is."""
    found = version()
    wanted = ".".join(map(str, minimum))
    if found is None:
        return f"needs Triton {wanted} or newer, and none is installed (pip install 'mla-core[triton]')"
    if found < minimum:
        return f"needs Triton {wanted} or newer, and {'.'.join(map(str, found))} is installed"
    return ""


def interpreter_missing() -> str:
    """Why Triton's interpreter cannot run loops with bounds read from tensors; empty where it can.

    Triton 3.6 converts one-element arrays to integers in a way that NumPy 2.4 forbids; 3.9 does not.
    """
    try:
        numpy = importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        return "Triton's interpreter needs NumPy, and none is installed"
    found = re.match(r"(\d+)\.(\d+)", numpy)
    if found and (int(found[1]), int(found[2])) >= (2, 4) and (version() or MINIMUM) < (3, 9):
        return f"Triton's interpreter needs Triton 3.9 or newer with NumPy {numpy}, or a NumPy older than 2.4"
    return ""


def require(minimum: tuple[int, int] = MINIMUM) -> None:
    """Raises TritonUnavailableError, saying what is installed and what is needed, where Triton is not enough."""
    reason = missing(minimum)
    if reason:
        raise TritonUnavailableError(reason)
