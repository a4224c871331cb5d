"""Registers the Hopper decode kernels with dispatch."""

from __future__ import annotations

from mla_core import triton_support
from mla_core.dispatch import YES, Program, Solution, Verdict, no
from mla_core.problem import ELEMENT_BYTES, MAX_INT32
from mla_core.target import Target
from mla_decode.hopper.config import BLOCK_N, HopperDecodeConfig
from mla_decode.hopper.schedule import choose
from mla_decode.problem import DecodeProblem

TRITON_MINIMUM = (3, 6)
"""First release whose Gluon has warp specialisation in the form used here."""

LARGEST_STRIDE = 2**40 // ELEMENT_BYTES
"""Elements; a descriptor's strides are below 2^40 bytes (CUDA driver API, cuTensorMapEncodeTiled)."""


def supports(problem: DecodeProblem, target: Target) -> Verdict:
    """Any rows, batch and lengths on sm_90, with pages of whole blocks that bulk copies reach."""
    if target.arch != "sm_90":
        return no(f"is for sm_90, and the target is {target.arch}")
    reason = triton_support.missing(TRITON_MINIMUM) or problem.copy_refusal()
    if reason:
        return no(reason)
    if problem.kv.page_size % BLOCK_N:
        return no(f"needs pages of a multiple of {BLOCK_N} tokens, and page_size is {problem.kv.page_size}")
    for name, strides in problem.row_strides.items():
        for stride in strides:
            if not 0 < stride < LARGEST_STRIDE:
                return no(f"needs strides of 1 to {LARGEST_STRIDE - 1} elements, and {name} has one of {stride}")
    for name, (_, token, head), columns in (
        ("q", problem.q_strides, problem.head_dim),
        ("out", problem.out_strides, problem.kv_lora_rank),
    ):
        span = (problem.q_len - 1) * token + (problem.heads - 1) * head + columns
        if span > MAX_INT32:  # rows of a request are counted in 32 bits
            return no(f"needs the rows of a request within {MAX_INT32} elements, and those of {name} span {span}")
    return YES


def build(problem: DecodeProblem, target: Target, config: HopperDecodeConfig) -> Program:
    """The Program; imports Triton."""
    from mla_decode.hopper.program import HopperDecodeProgram

    return HopperDecodeProgram(problem, target, config)


def samples(_target: Target) -> dict[str, DecodeProblem]:
    """Problems that reach each regime and tile."""
    return {
        "16 heads": DecodeProblem.make(batch=8, heads=16, return_lse=True),
        "16 heads x 2 tokens": DecodeProblem.make(batch=8, heads=16, q_len=2),
        "64 heads": DecodeProblem.make(batch=8, heads=64),
        "128 heads": DecodeProblem.make(batch=8, heads=128, return_lse=True),
        "128 heads, few blocks": DecodeProblem.make(batch=1, heads=128, return_lse=True),
        "128 heads x 2 tokens, fp16": DecodeProblem.make(batch=8, heads=128, q_len=2, dtype="fp16"),
    }


SOLUTION = Solution(
    operation=DecodeProblem.operation,
    name="hopper",
    priority=100,
    config_type=HopperDecodeConfig,
    supports=supports,
    choose=choose,
    build=build,
    samples=samples,
)
