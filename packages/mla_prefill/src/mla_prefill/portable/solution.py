"""The `triton` prefill solution: plain Triton on every GPU that Triton supports, and in its interpreter on a CPU."""

from __future__ import annotations

from collections.abc import Mapping

from mla_core.dispatch import Solution, Verdict
from mla_core.portable import runs_plain_triton
from mla_core.target import Target
from mla_prefill.portable.config import TritonPrefillConfig
from mla_prefill.portable.schedule import choose
from mla_prefill.problem import PrefillProblem


def supports(problem: PrefillProblem, target: Target) -> Verdict:
    """Everything that passes validation, on any GPU, and on a CPU under TRITON_INTERPRET=1."""
    return runs_plain_triton(target)


def build(problem: PrefillProblem, target: Target, config: TritonPrefillConfig) -> object:
    """The Program; the first call imports Triton."""
    from mla_prefill.portable.program import TritonPrefillProgram

    return TritonPrefillProgram(problem, target, config)


def samples(target: Target) -> Mapping[str, PrefillProblem]:
    """A Problem for each mask, and for 64-bit offsets."""
    return {
        "causal": PrefillProblem.make(batch=4, seqlen=4096, heads=16, return_lse=True),
        "full, grouped": PrefillProblem.make(batch=1, seqlen=1024, heads=128, kv_heads=8, is_causal=False),
        "causal, beyond 2 GiB": PrefillProblem.make(batch=8, seqlen=16384, heads=128, dtype="fp16"),
    }


SOLUTION = Solution(
    operation=PrefillProblem.operation,
    name="triton",
    priority=10,
    config_type=TritonPrefillConfig,
    supports=supports,
    choose=choose,
    build=build,  # type: ignore[arg-type]
    samples=samples,
)
