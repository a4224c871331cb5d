"""The plan of a prefill step: the order of its tiles, made once on the device and shared by all layers."""

from __future__ import annotations

import attrs

from mla_core.plan import Plan


@attrs.frozen(kw_only=True, eq=False)
class PrefillPlan(Plan):
    """What `mla_prefill_plan` makes and `mla_prefill(plan=...)` takes; belongs to one set of cu_seqlens."""
