"""Which kernels there are to compile for a target: those of every solution's sample problems, each binary once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import attrs

import mla_decode  # noqa: F401  (registers its solutions)
import mla_prefill  # noqa: F401  (registers its solutions)
from mla_core.compile import KernelSpec
from mla_core.dispatch import registry
from mla_core.target import Target
from mla_testing.operations import OPERATIONS


@attrs.frozen(kw_only=True)
class CatalogEntry:
    """One kernel of one sample problem, named so that another process finds it again.

    Attributes:
        operation, solution, sample, kernel: names; `kernel` is that of the KernelSpec.
        target: architecture name.
    """

    operation: str
    solution: str
    sample: str
    kernel: str
    target: str

    @property
    def name(self) -> str:
        """The entry's name, unique for its target; what of it no file name may hold is replaced."""
        sample = re.sub(r"[^\w.]+", "_", self.sample)
        return f"{self.operation}-{self.solution}-{sample}-{self.kernel}"

    def program(self) -> Any:
        """The Program of the sample."""
        target = Target.named(self.target)
        solution = registry.named(self.operation, self.solution)
        problem = solution.samples(target)[self.sample]
        return solution.build(problem, target, solution.choose(problem, target))

    def spec(self) -> KernelSpec:
        """What the compiler needs of the kernel."""
        return next(spec for spec in self.program().kernels() if spec.name == self.kernel)


@attrs.frozen(kw_only=True)
class Catalog:
    """The kernels to compile, and what there is none of for this target.

    Attributes:
        entries: one for each distinct binary.
        left_out: (solution's or sample's name, why it has no kernel here).
    """

    entries: tuple[CatalogEntry, ...]
    left_out: tuple[tuple[str, str], ...]


def catalog(target: Target, operations: Sequence[str] = OPERATIONS, solutions: Sequence[str] = ()) -> Catalog:
    """Every kernel of every solution's samples for `target`.

    Kernels that several samples share, such as a merge, are listed once, by the first sample.

    Args:
        solutions: names to keep; empty keeps all.
    """
    entries: list[CatalogEntry] = []
    left_out: list[tuple[str, str]] = []
    seen: set[Any] = set()
    for operation in operations:
        for solution in registry.solutions(operation):
            if solutions and solution.name not in solutions:
                continue
            samples = solution.samples(target)
            if not samples:
                left_out.append((f"{operation} {solution.name}", f"has no kernel for {target.arch}"))
            refused: dict[str, list[str]] = {}
            for sample, problem in samples.items():
                verdict = solution.supports(problem, target)
                if not verdict:
                    refused.setdefault(verdict.reason, []).append(sample)
                    continue
                program = solution.build(problem, target, solution.choose(problem, target))
                for spec in program.kernels():
                    identity = binary_identity(spec)
                    if identity not in seen:
                        seen.add(identity)
                        entries.append(
                            CatalogEntry(
                                operation=operation,
                                solution=solution.name,
                                sample=sample,
                                kernel=spec.name,
                                target=target.arch,
                            )
                        )
            for reason, names in refused.items():
                which = "" if len(names) == len(samples) else f" ({'; '.join(names)})"
                left_out.append((f"{operation} {solution.name}{which}", reason))
    return Catalog(entries=tuple(entries), left_out=tuple(left_out))


def binary_identity(spec: KernelSpec) -> tuple[Any, ...]:
    """What two specs of the same binary have in common: everything but the name."""
    function = getattr(spec.fn, "fn", spec.fn)
    return (
        function.__module__,
        function.__qualname__,
        tuple(sorted(spec.signature.items())),
        tuple(sorted((name, repr(value)) for name, value in spec.constexprs.items())),
        tuple(sorted(spec.divisible)),
        spec.num_warps,
        tuple(sorted((name, repr(value)) for name, value in spec.options.items())),
    )
