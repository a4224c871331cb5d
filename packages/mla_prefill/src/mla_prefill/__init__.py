"""Non-absorbed varlen MLA prefill: `mla_prefill`, its Problem and its solutions."""

from mla_prefill import solutions as _solutions  # noqa: F401  (registers every solution)
from mla_prefill.api import mla_prefill, mla_prefill_plan
from mla_prefill.plan import PrefillPlan
from mla_prefill.problem import PrefillProblem

__all__ = ["PrefillPlan", "PrefillProblem", "mla_prefill", "mla_prefill_plan"]
