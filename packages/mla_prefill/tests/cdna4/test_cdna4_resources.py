"""What the gfx950 prefill kernel costs, compiled for the machine without one."""

from __future__ import annotations

import pytest

from mla_core import triton_support

MISSING = triton_support.missing((3, 9))
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

from mla_core import Target, registry  # noqa: E402
from mla_core.compile import compile_kernel  # noqa: E402
from mla_core.instruction_mix import hot_loop, loops  # noqa: E402
from mla_prefill import PrefillProblem  # noqa: E402
from mla_prefill.cdna4.config import CDNA4PrefillConfig  # noqa: E402

TARGET = Target.named("gfx950")

MATRIX_INSTRUCTIONS = 40
"""Of one wave for 32 queries and 64 keys: 64 x (192 + 128) x 32 products at 32 x 32 x 16 an instruction."""

MOST_INSTRUCTIONS = 330
"""Of all kinds, for so many matrix instructions."""

PROBLEMS = {
    "causal": PrefillProblem.make(batch=4, seqlen=4096, heads=16, return_lse=True),
    "full": PrefillProblem.make(batch=4, seqlen=4096, heads=128, kv_heads=8, is_causal=False, return_lse=True),
    "causal without lse, fp16": PrefillProblem.make(batch=4, seqlen=4096, heads=5, dtype="fp16"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_budget(name: str) -> None:
    program = registry.program(PROBLEMS[name], TARGET, solution="cdna4")
    (spec,) = program.kernels()
    report = compile_kernel(spec, TARGET)
    assert report.broken_limits(TARGET) == []
    assert report.registers <= TARGET.registers_per_lane
    loop = hot_loop(report.assembly)
    assert loop is not None and loop.matrix % MATRIX_INSTRUCTIONS == 0
    steps = loop.matrix // MATRIX_INSTRUCTIONS
    assert loop.total <= MOST_INSTRUCTIONS * steps
    assert loop.mix["barrier"] == steps
    assert not any(line.startswith("v_cmp") for line in loop.instructions)  # nothing is masked
    assert any(other.matrix and other.label != loop.label for other in loops(report.assembly))  # the masked loop


def test_one_binary_serves_every_batch_and_all_lengths() -> None:
    def binary(batch: int, seqlen: int) -> dict[str, object]:
        problem = PrefillProblem.make(batch=batch, seqlen=seqlen, heads=16)
        (spec,) = registry.program(problem, TARGET, solution="cdna4").kernels()
        return {"constexprs": dict(spec.constexprs), "options": dict(spec.options), "signature": dict(spec.signature)}

    assert binary(1, 4096) == binary(7, 33)


@pytest.mark.parametrize("block_n", [32, 64])
def test_no_tile_shape_spills(block_n: int) -> None:
    config = CDNA4PrefillConfig(block_n=block_n)
    (spec,) = registry.program(PROBLEMS["causal"], TARGET, config=config).kernels()
    assert compile_kernel(spec, TARGET).broken_limits(TARGET) == []
