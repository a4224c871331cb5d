"""Plans: what the layers of one step share, made once on the device. Their common part, and the checks on them."""

from __future__ import annotations

from typing import Any

import attrs
import torch

from mla_core.dispatch import Program
from mla_core.errors import ArgumentError


@attrs.frozen(kw_only=True, eq=False)
class Plan:
    """What a plan holds whatever the operation.

    It belongs to one set of lengths, and is filled again in place for other ones, so that a graph that holds its address
    replays correctly. One stream at a time may use it, because the kernels keep state of a call in it.

    Attributes:
        key: what it depends on besides the lengths; a call whose own key differs refuses the plan.
        words: int32 on the device, filled by a kernel; None for a solution that needs no plan.
    """

    key: tuple[Any, ...]
    words: torch.Tensor | None = attrs.field(default=None, repr=False)


def check_plan_type(plan: Any, kind: type[Plan], maker: str) -> None:
    """Refuses what is no plan of the operation at all; `maker` names the function that makes them."""
    if plan is not None and not isinstance(plan, kind):
        raise ArgumentError("plan", f"a {type(plan).__name__}", f"None or what {maker} returned")


def check_plan(program: Program, plan: Plan, device: torch.device, maker: str) -> None:
    """Refuses a plan that the program did not make and could not have made."""
    if plan.words is not None and plan.words.device != device:
        raise ArgumentError("plan.words.device", plan.words.device, f"{device}, the device of q")
    expected = getattr(program, "plan_key", ())
    if plan.key != expected:
        raise ArgumentError("plan", plan.key, f"{expected}, what {maker} makes for this call")
