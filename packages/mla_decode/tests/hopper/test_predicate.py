"""What the Hopper decode kernels refuse, and that another solution then serves."""

from __future__ import annotations

import attrs
import pytest

from mla_core import registry, triton_support
from mla_core.target import Target
from mla_decode import DecodeProblem
from mla_decode.hopper.solution import supports

SM_90 = Target.named("sm_90")
PROBLEM = DecodeProblem.make(batch=2, heads=3, q_len=2)
FAR = 2**30

pytestmark = pytest.mark.skipif(bool(triton_support.missing()), reason="needs Triton")


def test_a_typical_problem_is_served() -> None:
    assert supports(PROBLEM, SM_90)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"out_strides": (8, FAR, 512)}, ""),
        ({"out_strides": (8, 512, FAR)}, "those of out span"),
        ({"q_strides": (8, FAR, FAR)}, "those of q span"),
        ({"q_strides": (8, 576, 577)}, "multiples of 8 elements"),
        ({"aligned": False}, "multiples of 16 bytes"),
    ],
)
def test_refusals_name_the_limit_and_dispatch_goes_on(changes: dict[str, object], reason: str) -> None:
    problem = attrs.evolve(PROBLEM, **changes)
    verdict = supports(problem, SM_90)
    assert verdict.ok == (not reason) and reason in verdict.reason
    assert registry.select(problem, SM_90).name == ("hopper" if verdict.ok else "triton")
