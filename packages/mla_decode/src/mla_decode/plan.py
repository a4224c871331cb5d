"""The plan of a decode step: how a batch is cut into parts, made once on the device and shared by all layers."""

from __future__ import annotations

from typing import Any

import attrs
import torch


@attrs.frozen(kw_only=True, eq=False)
class DecodePlan:
    """What `plan_decode` makes and `mla_decode_with_kvcache(plan=...)` takes.

    It belongs to one set of lengths, and is filled again in place for other ones, so that a graph that holds its address
    replays correctly. One stream at a time may use it: the kernels keep counters and partial results in it.

    Attributes:
        key: what it depends on besides the lengths; a call whose own key differs refuses the plan.
        words: `[n]` int32 on the device, filled by a kernel; None for a solution that needs no plan.
        scratch: fp32, partial results of one call at a time; None likewise.
    """

    key: tuple[Any, ...]
    words: torch.Tensor | None = attrs.field(default=None, repr=False)
    scratch: torch.Tensor | None = attrs.field(default=None, repr=False)
