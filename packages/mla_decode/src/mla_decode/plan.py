"""The plan of a decode step: how a batch is cut into parts, made once on the device and shared by all layers."""

from __future__ import annotations

import attrs
import torch

from mla_core.plan import Plan


@attrs.frozen(kw_only=True, eq=False)
class DecodePlan(Plan):
    """What `mla_decode_plan` makes and `mla_decode_with_kvcache(plan=...)` takes; belongs to one set of cache_seqlens.

    Attributes:
        scratch: fp32, partial results of one call at a time; None for a solution that needs no plan.
    """

    scratch: torch.Tensor | None = attrs.field(default=None, repr=False)
