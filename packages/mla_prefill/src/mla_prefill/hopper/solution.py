"""The `hopper` prefill solution: which problems it serves. Imports no Triton."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mla_core import triton_support
from mla_core.dispatch import YES, Solution, Verdict, no
from mla_core.problem import COPY_BYTES, ELEMENT_BYTES, MAX_INT32
from mla_core.target import Target
from mla_prefill.hopper.config import HopperPrefillConfig
from mla_prefill.hopper.schedule import choose
from mla_prefill.problem import QK_HEAD_DIM, V_HEAD_DIM, PrefillProblem

MAX_STRIDE_BYTES = 2**40 - 1
"""Largest stride of a bulk tensor copy, exclusive of 2^40 (CUDA driver API, cuTensorMapEncodeTiled)."""


def supports(problem: PrefillProblem, target: Target) -> Verdict:
    """Compute capability 9.0 and what its bulk copies can address."""
    if target.arch != "sm_90":
        return no(f"is written for sm_90, and the target is {target.arch}")
    reason = triton_support.missing()
    if reason:
        return no(reason)
    if not problem.aligned:
        return no(f"bulk copies need q, k, v and out at multiples of {COPY_BYTES} bytes")
    if problem.total_kv == 0:
        return no("bulk copies need at least 1 row of k and v, and total_kv is 0")
    views = (
        ("q", problem.total_q, problem.heads, QK_HEAD_DIM, problem.q_strides),
        ("k", problem.total_kv, problem.kv_heads, QK_HEAD_DIM, problem.k_strides),
        ("v", problem.total_kv, problem.kv_heads, V_HEAD_DIM, problem.v_strides),
    )
    for name, tokens, heads, dim, strides in views:
        for dimension, size, stride in (("token", tokens, strides[0]), ("head", heads, strides[1])):
            if size > 1 and stride * ELEMENT_BYTES % COPY_BYTES:
                return no(
                    f"bulk copies need strides of {COPY_BYTES} bytes, and {name}'s {dimension} stride is {stride}"
                )
        if tokens > 1 and not 0 < strides[0] * ELEMENT_BYTES <= MAX_STRIDE_BYTES:
            return no(f"bulk copies need a token stride above 0 and below 2^40 bytes, and {name}'s is {strides[0]}")
        if heads > 1 and (heads - 1) * strides[1] + dim > MAX_INT32:
            return no(f"the heads of {name} span more than 2^31 - 1 elements: their stride is {strides[1]}")
    return YES


def build(problem: PrefillProblem, target: Target, config: HopperPrefillConfig) -> Any:
    """The Program; Triton is imported here."""
    from mla_prefill.hopper.program import HopperPrefillProgram

    return HopperPrefillProgram(problem, target, config)


def samples(target: Target) -> Mapping[str, PrefillProblem]:
    """A Problem for each variant of the kernel."""
    if target.arch != "sm_90":
        return {}
    return {
        "causal": PrefillProblem.make(batch=1, seqlen=4096, heads=128),
        "long": PrefillProblem.make(batch=1, seqlen=16384, heads=128, return_lse=True),
        "full": PrefillProblem.make(batch=1, seqlen=4096, heads=128, is_causal=False, return_lse=True),
        "grouped_fp16": PrefillProblem.make(batch=4, seqlen=1024, heads=16, kv_heads=4, dtype="fp16", return_lse=True),
    }


SOLUTION = Solution(
    operation=PrefillProblem.operation,
    name="hopper",
    priority=100,
    config_type=HopperPrefillConfig,
    supports=supports,
    choose=choose,
    build=build,
    samples=samples,
)
