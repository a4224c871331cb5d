"""The `cdna4` prefill solution: a Gluon kernel for gfx950 (MI350X, MI355X)."""

from __future__ import annotations

from collections.abc import Mapping

from mla_core import triton_support
from mla_core.dispatch import YES, Solution, Verdict, no
from mla_core.target import Target
from mla_prefill.cdna4.config import CDNA4PrefillConfig
from mla_prefill.cdna4.geometry import refusal
from mla_prefill.cdna4.schedule import choose
from mla_prefill.problem import PrefillProblem

ARCH = "gfx950"


def supports(problem: PrefillProblem, target: Target) -> Verdict:
    """gfx950, and rows that 128-bit copies can take."""
    if target.arch != ARCH:
        return no(f"is written for {ARCH}, and this is {target.arch}")
    reason = triton_support.missing() or refusal(problem)
    return no(reason) if reason else YES


def build(problem: PrefillProblem, target: Target, config: CDNA4PrefillConfig) -> object:
    """The Program; the first call imports Triton."""
    from mla_prefill.cdna4.program import CDNA4PrefillProgram

    return CDNA4PrefillProgram(problem, target, config)


def samples(target: Target) -> Mapping[str, PrefillProblem]:
    """A Problem for each mask, with grouped heads and beyond 2 GiB."""
    return {
        "causal": PrefillProblem.make(batch=4, seqlen=4096, heads=16, return_lse=True),
        "full, grouped": PrefillProblem.make(batch=1, seqlen=1024, heads=128, kv_heads=8, is_causal=False),
        "causal, beyond 2 GiB": PrefillProblem.make(batch=8, seqlen=16384, heads=128, dtype="fp16"),
    }


SOLUTION = Solution(
    operation=PrefillProblem.operation,
    name="cdna4",
    priority=100,
    config_type=CDNA4PrefillConfig,
    supports=supports,
    choose=choose,
    build=build,  # type: ignore[arg-type]
    samples=samples,
)
