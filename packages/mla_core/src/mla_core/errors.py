"""Every refusal of the packages, in one small hierarchy.

All of them derive from `MLAError`, and each also from the built-in exception that a caller would expect.
A refusal names the argument, the value it had and what is allowed, and is raised before anything is launched.
"""

from __future__ import annotations

from typing import Any


class MLAError(Exception):
    """Base of every error raised by the packages."""


class ArgumentError(MLAError, ValueError):
    """An argument of a public function has a value that is never allowed.

    Attributes: `argument` (its name), `value` (what it was), `allowed` (what it may be).
    """

    def __init__(self, argument: str, value: Any, allowed: str) -> None:
        self.argument, self.value, self.allowed = argument, value, allowed
        super().__init__(f"{argument} is {value}; allowed: {allowed}")


class ConfigError(ArgumentError):
    """A field of a Config has a value outside its domain, or two fields contradict each other."""


class UnsupportedError(MLAError, NotImplementedError):
    """The request is valid, but the named solution (or the machine) cannot serve it."""


class TritonUnavailableError(MLAError, ImportError):
    """No usable Triton is installed, or it is older than what a kernel needs."""


class CompileError(MLAError, RuntimeError):
    """A kernel did not compile for a target, or breaks one of the limits it promises."""
