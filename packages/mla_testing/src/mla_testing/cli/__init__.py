"""The `mla` command: what kernels there are, which one runs, what it costs, how fast it is, and whether it is right."""

from mla_testing.cli.app import main

__all__ = ["main"]
