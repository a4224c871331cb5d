"""Dispatch: which kernel serves a Problem on a Target, and why.

A solution registers once with an operation, a name, a priority and a predicate over (Problem, Target) that answers
yes, or no with a reason. Nothing enumerates traits: a problem is served by the first solution, in order of priority,
whose predicate says yes, and each operation has one solution whose predicate always does, so dispatch cannot
dead-end. `explain` shows every candidate, chosen or why not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import attrs

from mla_core.config import KernelConfig
from mla_core.errors import ArgumentError, ConfigError, UnsupportedError
from mla_core.target import Target


@attrs.frozen
class Verdict:
    """A predicate's answer: yes, or no with the reason as one sentence without a full stop."""

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


YES = Verdict(True)


def no(reason: str) -> Verdict:
    """A refusal. The reason names the limit and the value that breaks it."""
    return Verdict(False, reason)


class Program(Protocol):
    """What a solution builds for (Problem, Target, Config): the derivation of everything else, and the launch."""

    problem: Any
    target: Target
    config: Any

    def launch(self, *tensors: Any) -> None:
        """Enqueues the kernels on the current stream; never waits for the device."""

    def kernels(self) -> list[Any]:
        """The `mla_core.compile.KernelSpec` of every kernel that `launch` enqueues."""


@attrs.frozen(kw_only=True)
class Solution:
    """One registered way to serve an operation.

    Attributes:
        operation: `decode` or `prefill`.
        name: what `solution=` selects.
        priority: the highest one that says yes is chosen.
        config_type: class of its Configs.
        supports: predicate over (problem, target).
        choose: default Config for (problem, target), by the rule documented there.
        build: Program from (problem, target, config); derives, neither compiles nor launches.
        samples: named problems that reach each regime, for compiling and listing without a machine.
    """

    operation: str
    name: str
    priority: int
    config_type: type[KernelConfig]
    supports: Callable[[Any, Target], Verdict]
    choose: Callable[[Any, Target], KernelConfig]
    build: Callable[[Any, Target, Any], Program]
    samples: Callable[[Target], Mapping[str, Any]] = attrs.field(default=lambda target: {})


@attrs.frozen(kw_only=True)
class Candidate:
    """One row of an explanation."""

    solution: Solution
    verdict: Verdict
    chosen: bool


@attrs.frozen
class Explanation:
    """Why a solution was chosen: every candidate in order of priority. `str()` gives a readable table."""

    operation: str
    target: str
    candidates: tuple[Candidate, ...]

    def as_dict(self) -> dict[str, Any]:
        """The table as plain values, for JSON."""
        rows = [
            {
                "solution": candidate.solution.name,
                "priority": candidate.solution.priority,
                "supports": bool(candidate.verdict),
                "chosen": candidate.chosen,
                "reason": _reason(candidate),
            }
            for candidate in self.candidates
        ]
        return {"operation": self.operation, "target": self.target, "candidates": rows}

    def __str__(self) -> str:
        rows = [("solution", "priority", "verdict", "reason")]
        for candidate in self.candidates:
            verdict = "chosen" if candidate.chosen else "yes" if candidate.verdict else "no"
            rows.append((candidate.solution.name, str(candidate.solution.priority), verdict, _reason(candidate)))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [f"{self.operation} on {self.target}"]
        for row in rows:
            fixed = "  ".join(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True))
            lines.append(f"  {fixed}  {row[3]}".rstrip())
        return "\n".join(lines)


def _reason(candidate: Candidate) -> str:
    if candidate.chosen:
        return "highest priority that supports the problem"
    return candidate.verdict.reason or "supports the problem, but has a lower priority"


class Registry:
    """Solutions by operation. The process has one, `registry`; tests may make their own."""

    def __init__(self) -> None:
        self._solutions: dict[str, list[Solution]] = {}

    def register(self, solution: Solution) -> Solution:
        """Adds a solution. Raises ArgumentError where its operation has one of that name already."""
        known = self._solutions.setdefault(solution.operation, [])
        if any(other.name == solution.name for other in known):
            raise ArgumentError("solution", repr(solution.name), f"a name not yet registered for {solution.operation}")
        known.append(solution)
        known.sort(key=lambda entry: -entry.priority)
        return solution

    def solutions(self, operation: str) -> tuple[Solution, ...]:
        """All solutions of an operation, highest priority first."""
        return tuple(self._solutions.get(operation, ()))

    def named(self, operation: str, name: str) -> Solution:
        """The solution of that name. Raises ArgumentError listing the names there are."""
        for solution in self.solutions(operation):
            if solution.name == name:
                return solution
        names = ", ".join(solution.name for solution in self.solutions(operation))
        raise ArgumentError("solution", repr(name), f"None or one of {names}")

    def explain(self, problem: Any, target: Target) -> Explanation:
        """Every candidate for `problem` on `target`, in order of priority, with its verdict."""
        rows: list[Candidate] = []
        chosen = False
        for solution in self.solutions(problem.operation):
            verdict = solution.supports(problem, target)
            rows.append(Candidate(solution=solution, verdict=verdict, chosen=bool(verdict) and not chosen))
            chosen = chosen or bool(verdict)
        return Explanation(problem.operation, target.arch, tuple(rows))

    def select(self, problem: Any, target: Target, *, solution: str | None = None, config: Any = None) -> Solution:
        """The solution that serves `problem` on `target`.

        Args:
            solution: name of the solution to use; None chooses by priority.
            config: a Config to use; without `solution`, the solution is the one the Config belongs to.

        Raises:
            ArgumentError: unknown `solution`.
            ConfigError: `config` belongs to no solution of the operation, or to another than `solution`.
            UnsupportedError: the named solution says no, with its reason; or none says yes.
        """
        if solution is not None:
            entry = self.named(problem.operation, solution)
            if config is not None and type(config) is not entry.config_type:
                raise ConfigError("config", type(config).__name__, f"a {entry.config_type.__name__} for {solution!r}")
            return self._agreeing(entry, problem, target)
        if config is not None:
            for entry in self.solutions(problem.operation):
                if type(config) is entry.config_type:
                    return self._agreeing(entry, problem, target)
            names = ", ".join(entry.config_type.__name__ for entry in self.solutions(problem.operation))
            raise ConfigError("config", type(config).__name__, f"None or one of {names}")
        for entry in self.solutions(problem.operation):
            if entry.supports(problem, target):
                return entry
        raise UnsupportedError(str(self.explain(problem, target)))

    def program(self, problem: Any, target: Target, *, solution: str | None = None, config: Any = None) -> Program:
        """Selects a solution (as `select`) and builds its Program with `config` or the solution's own choice."""
        entry = self.select(problem, target, solution=solution, config=config)
        return entry.build(problem, target, entry.choose(problem, target) if config is None else config)

    @staticmethod
    def _agreeing(entry: Solution, problem: Any, target: Target) -> Solution:
        verdict = entry.supports(problem, target)
        if not verdict:
            raise UnsupportedError(
                f"solution {entry.name!r} cannot serve this {problem.operation} on {target.arch}: {verdict.reason}"
            )
        return entry


registry = Registry()
"""The solutions of this process; importing mla_decode and mla_prefill fills it."""
