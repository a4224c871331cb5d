"""Registers the gfx950 decode kernel with dispatch."""

from __future__ import annotations

from mla_core import triton_support
from mla_core.dispatch import YES, Program, Solution, Verdict, no
from mla_core.target import Target
from mla_decode.cdna4.config import CDNA4DecodeConfig
from mla_decode.cdna4.schedule import choose
from mla_decode.problem import DecodeProblem

TRITON_MINIMUM = (3, 9)
"""First release whose asynchronous copies to LDS take any distributed layout, as the RoPE columns' copy needs."""


def supports(problem: DecodeProblem, target: Target) -> Verdict:
    """Any number of rows, any page size and batch on gfx950, where 16-byte copies reach every row."""
    if target.arch != "gfx950":
        return no(f"is for gfx950, and the target is {target.arch}")
    reason = triton_support.missing(TRITON_MINIMUM) or problem.copy_refusal()
    return no(reason) if reason else YES


def build(problem: DecodeProblem, target: Target, config: CDNA4DecodeConfig) -> Program:
    """The Program; imports Triton."""
    from mla_decode.cdna4.program import CDNA4DecodeProgram

    return CDNA4DecodeProgram(problem, target, config)


def samples(_target: Target) -> dict[str, DecodeProblem]:
    """Problems that reach each regime, each paging and both address widths."""
    return {
        "16 heads": DecodeProblem.make(batch=4, heads=16, return_lse=True),
        "32 heads": DecodeProblem.make(batch=4, heads=32, return_lse=True),
        "128 heads": DecodeProblem.make(batch=4, heads=128, return_lse=True),
        "16 heads x 4 tokens": DecodeProblem.make(batch=4, heads=16, q_len=4),
        "16 heads, page size 16": DecodeProblem.make(batch=4, heads=16, page_size=16),
        "16 heads, page size 1": DecodeProblem.make(batch=4, heads=16, page_size=1),
        "16 heads, page size 1, 4 GiB pool": DecodeProblem.make(batch=4, heads=16, page_size=1, num_pages=2**22),
    }


SOLUTION = Solution(
    operation=DecodeProblem.operation,
    name="cdna4",
    priority=100,
    config_type=CDNA4DecodeConfig,
    supports=supports,
    choose=choose,
    build=build,
    samples=samples,
)
