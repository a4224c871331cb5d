"""The `triton` decode solution: plain Triton on every GPU that Triton supports, and in its interpreter on a CPU."""

from __future__ import annotations

from collections.abc import Mapping

from mla_core.dispatch import Solution, Verdict
from mla_core.portable import runs_plain_triton
from mla_core.target import Target
from mla_decode.portable.config import TritonDecodeConfig
from mla_decode.portable.schedule import choose
from mla_decode.problem import DecodeProblem


def supports(problem: DecodeProblem, target: Target) -> Verdict:
    """Everything that passes validation, on any GPU, and on a CPU under TRITON_INTERPRET=1."""
    return runs_plain_triton(target)


def build(problem: DecodeProblem, target: Target, config: TritonDecodeConfig) -> object:
    """The Program; the first call imports Triton."""
    from mla_decode.portable.program import TritonDecodeProgram

    return TritonDecodeProgram(problem, target, config)


def samples(target: Target) -> Mapping[str, DecodeProblem]:
    """A Problem for each tile height, direct and split, and for 64-bit offsets."""
    return {
        "16 heads, split": DecodeProblem.make(batch=1, heads=16, max_seqlen_k=8192),
        "16 heads, direct": DecodeProblem.make(batch=4 * target.compute_units, heads=16),
        "32 rows": DecodeProblem.make(batch=32, heads=16, q_len=2, return_lse=True),
        "128 heads, split": DecodeProblem.make(batch=1, heads=128, max_seqlen_k=32768, return_lse=True),
        "128 heads, direct": DecodeProblem.make(batch=4 * target.compute_units, heads=128, return_lse=True),
        "128 heads, page 1, beyond 2 GiB": DecodeProblem.make(
            batch=128, heads=128, page_size=1, num_pages=2**22, dtype="fp16"
        ),
    }


SOLUTION = Solution(
    operation=DecodeProblem.operation,
    name="triton",
    priority=10,
    config_type=TritonDecodeConfig,
    supports=supports,
    choose=choose,
    build=build,  # type: ignore[arg-type]
    samples=samples,
)
