"""The plan of a prefill step: the order of its tiles, made once on the device and shared by all layers."""

from __future__ import annotations

from typing import Any

import attrs
import torch


@attrs.frozen(kw_only=True, eq=False)
class PrefillPlan:
    """What `mla_prefill_plan` makes and `mla_prefill(plan=...)` takes.

    It belongs to one set of cu_seqlens, and is filled again in place for other ones, so that a graph that holds its
    address replays correctly. One stream at a time may use it: the kernels keep a counter in it.

    Attributes:
        key: what it depends on besides the lengths; a call whose own key differs refuses the plan.
        words: int32 on the device, filled by a kernel; None for a solution that needs no plan.
    """

    key: tuple[Any, ...]
    words: torch.Tensor | None = attrs.field(default=None, repr=False)
