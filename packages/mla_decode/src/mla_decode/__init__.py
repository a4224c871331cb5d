"""Absorbed MLA decode over a paged cache: `mla_decode_with_kvcache`, its Problem and its solutions."""

from mla_decode import solutions as _solutions  # noqa: F401  (registers every solution)
from mla_decode.api import mla_decode_plan, mla_decode_with_kvcache
from mla_decode.plan import DecodePlan
from mla_decode.problem import DecodeProblem

__all__ = ["DecodePlan", "DecodeProblem", "mla_decode_plan", "mla_decode_with_kvcache"]
