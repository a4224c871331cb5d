"""Registers every prefill solution with dispatch. A solution joins by a line here; none is imported before it runs."""

from mla_core.dispatch import registry
from mla_prefill.cdna4.solution import SOLUTION as CDNA4
from mla_prefill.hopper.solution import SOLUTION as HOPPER
from mla_prefill.portable.solution import SOLUTION as TRITON
from mla_prefill.portable.torch_solution import SOLUTION as TORCH

for _solution in (CDNA4, HOPPER, TRITON, TORCH):
    registry.register(_solution)
