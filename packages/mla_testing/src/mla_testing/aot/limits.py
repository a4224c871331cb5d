"""Ceilings that kernels promise to keep, from `limits.toml`: a longer steady loop does not go unseen."""

from __future__ import annotations

import fnmatch
import functools
import importlib.resources
import tomllib
from typing import Any

from mla_core.errors import ArgumentError
from mla_core.target import Target
from mla_testing.aot.catalog import CatalogEntry

FIELDS = ("registers", "shared_bytes", "loop", "loop_per_matrix", "spills")
"""What a limit may bound; `loop` counts the instructions of the steady loop, `loop_per_matrix` those for each matrix
instruction in it. `spills` alone raises a ceiling, which is 0: an exception, whose reason stands beside it."""


@functools.cache
def all_limits() -> tuple[dict[str, Any], ...]:
    """The entries of `limits.toml`. Raises ArgumentError for one that bounds an unknown figure."""
    text = importlib.resources.files("mla_testing.aot").joinpath("limits.toml").read_text()
    entries = tuple(tomllib.loads(text)["limit"])
    for entry in entries:
        for name in entry.keys() - {"target", "kernel"}:
            if name not in FIELDS:
                raise ArgumentError("limits.toml", name, ", ".join(FIELDS))
    return entries


def limits_of(entry: CatalogEntry) -> dict[str, float]:
    """Ceilings of one kernel: its target's, and those of every entry whose pattern its name matches, the lowest."""
    limits: dict[str, float] = {
        "spills": 0,
        "scalar_spills": 0,
        "shared_bytes": Target.named(entry.target).shared_bytes,
    }
    for listed in all_limits():
        if listed["target"] == entry.target and fnmatch.fnmatch(entry.name, listed["kernel"]):
            for name in listed.keys() & set(FIELDS):
                lowest = max if name == "spills" else min
                limits[name] = lowest(listed[name], limits.get(name, listed[name]))
    return limits
