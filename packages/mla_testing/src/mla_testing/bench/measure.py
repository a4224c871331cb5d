"""One benchmark: a solution on a shape, right first, then timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import torch

from mla_core.dispatch import registry
from mla_core.errors import UnsupportedError
from mla_core.target import Target
from mla_testing.bench.grids import Shape
from mla_testing.bench.roofs import Roofs
from mla_testing.bench.sampling import compare_sample
from mla_testing.bench.timing import GraphTimer
from mla_testing.operations import Inputs, call, problem_of

REFERENCE = "triton"
"""The solution that speed-ups are stated against: the portable kernels."""


@attrs.frozen(kw_only=True)
class Measurement:
    """What one solution did on one shape.

    Attributes:
        shape, solution: what ran.
        chosen: whether dispatch would choose the solution by itself.
        us: median time, microseconds; None where it was not timed.
        failure: why not: what the solution refuses, or what is wrong with its result.
        refused: whether the solution does not serve the shape, which is no fault.
        relative_rms: error against float64.
        reference_us: time of the reference solution on the shape; None where it was not measured.
    """

    shape: Shape
    solution: str
    chosen: bool
    us: float | None = None
    failure: str = ""
    refused: bool = False
    relative_rms: float | None = None
    reference_us: float | None = None

    @property
    def bandwidth(self) -> float | None:
        """Least traffic over time, bytes per second."""
        return None if self.us is None else self.shape.bytes / (self.us * 1e-6)

    @property
    def flops(self) -> float | None:
        """FLOP per second."""
        return None if self.us is None else self.shape.flops / (self.us * 1e-6)

    @property
    def speedup(self) -> float | None:
        """The reference's time over this one's."""
        return None if self.us is None or self.reference_us is None else self.reference_us / self.us

    def of_roof(self, roofs: Roofs) -> float | None:
        """Share of the machine's measured roof: the least time by the roofs over the time."""
        if self.us is None:
            return None
        return roofs.attainable(self.shape.flops, self.shape.bytes) / (self.us * 1e-6)

    def as_dict(self, roofs: Roofs) -> dict[str, Any]:
        """A row of the CSV."""
        return {
            "operation": self.shape.operation,
            **self.shape.as_dict(),
            "solution": self.solution,
            "chosen": self.chosen,
            "us": _rounded(self.us, 2),
            "tb_per_s": _rounded(self.bandwidth, 3, 1e12),
            "tflop_per_s": _rounded(self.flops, 1, 1e12),
            "of_measured_roof": _rounded(self.of_roof(roofs), 3),
            "speedup_over_triton": _rounded(self.speedup, 2),
            "relative_rms": self.relative_rms,
            "failure": self.failure,
        }


def _rounded(value: float | None, digits: int, unit: float = 1.0) -> float | None:
    return None if value is None else round(value / unit, digits)


def measure_shape(shape: Shape, solutions: Sequence[str], timer: GraphTimer) -> Iterator[Measurement]:
    """Measures each solution on a shape; the reference first, so that the others can state their speed-up.

    Args:
        solutions: names; empty stands for what dispatch chooses, and the reference.
    """
    with torch.no_grad():
        inputs = shape.inputs("cuda")
        target = Target.current("cuda")
        chosen = registry.select(problem_of(inputs), target).name
        names = list(solutions) or list(dict.fromkeys([REFERENCE, chosen]))
        reference_us: float | None = None
        for name in sorted(names, key=lambda name: name != REFERENCE):
            result = measure_solution(shape, inputs, name, timer)
            if name == REFERENCE:
                reference_us = result.us
            yield attrs.evolve(result, chosen=name == chosen, reference_us=reference_us)


def measure_solution(shape: Shape, inputs: Inputs, name: str, timer: GraphTimer) -> Measurement:
    """Runs a solution once, compares a sample with float64, and times it only if it is right."""
    row = Measurement(shape=shape, solution=name, chosen=False)
    try:
        out, lse = call(inputs, return_lse=True, solution=name)
    except UnsupportedError as error:
        return attrs.evolve(row, failure=str(error), refused=True)
    except Exception as error:  # what a compiler or a driver raises is the solution's result
        return attrs.evolve(row, failure=f"{type(error).__name__}: {error}")
    accuracy = compare_sample(inputs, out, lse)
    if not accuracy.ok:
        return attrs.evolve(row, failure=str(accuracy), relative_rms=accuracy.relative_rms)
    del out, lse
    written = call(inputs, solution=name)
    us = timer.median_us(partial(call, inputs, solution=name, out=written))
    return attrs.evolve(row, us=us, relative_rms=accuracy.relative_rms)
