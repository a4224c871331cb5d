"""Registers every decode solution with dispatch. A solution joins by a line here; none is imported before it runs."""

from mla_core.dispatch import registry
from mla_decode.cdna4.solution import SOLUTION as CDNA4
from mla_decode.hopper.solution import SOLUTION as HOPPER
from mla_decode.portable.solution import SOLUTION as TRITON
from mla_decode.portable.torch_solution import SOLUTION as TORCH

for _solution in (CDNA4, HOPPER, TRITON, TORCH):
    registry.register(_solution)
