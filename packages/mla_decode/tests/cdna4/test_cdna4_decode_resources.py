"""What the gfx950 decode kernel costs, compiled for the machine without one."""

from __future__ import annotations

import pytest

from mla_core import triton_support

MISSING = triton_support.missing((3, 9))
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

from mla_core import Target, registry  # noqa: E402
from mla_core.compile import compile_kernel  # noqa: E402
from mla_core.instruction_mix import hot_loop  # noqa: E402
from mla_decode import DecodeProblem  # noqa: E402

TARGET = Target.named("gfx950")

# Matrix instructions of one wave for a tile of 64 tokens: rows x 64 x (576 + 512) products over four waves, at 16 x 16
# x 32 or, with 64 rows, 32 x 32 x 16 products an instruction.
REGIMES = {
    # heads: (matrix instructions, all instructions at most, LDS instructions at most) for a tile
    16: (34, 300, 55),
    32: (68, 480, 110),
    64: (68, 500, 110),
}


@pytest.mark.parametrize("heads", REGIMES)
@pytest.mark.parametrize("page_size", [64, 16, 1])
def test_budget(heads: int, page_size: int) -> None:
    matrix, most, lds = REGIMES[heads]
    problem = DecodeProblem.make(batch=4, heads=heads, page_size=page_size, return_lse=True)
    attend, merge = registry.program(problem, TARGET, solution="cdna4").kernels()
    report = compile_kernel(attend, TARGET)
    assert report.broken_limits(TARGET) == []
    assert report.registers <= TARGET.registers_per_lane
    loop = hot_loop(report.assembly)
    assert loop is not None and loop.matrix % matrix == 0
    tiles = loop.matrix // matrix
    ids = 0 if page_size > 1 else 12  # handing each token's page id to the wave that copies its row
    assert loop.total <= (most + 5 * ids) * tiles
    assert loop.mix["lds"] <= (lds + ids) * tiles
    assert compile_kernel(merge, TARGET).broken_limits(TARGET) == []


@pytest.mark.parametrize(
    "options",
    [
        {"heads": 16, "page_size": 1, "num_pages": 2**22},
        {"heads": 64, "page_size": 16, "num_pages": 2**19},
        {"heads": 64, "q_len": 2, "dtype": "fp16"},
        {"heads": 128, "page_size": 48, "q_len": 3, "causal": False},
    ],
    ids=str,
)
def test_no_register_is_spilled(options: dict[str, int]) -> None:
    program = registry.program(DecodeProblem.make(batch=4, **options), TARGET, solution="cdna4")
    for spec in program.kernels():
        assert compile_kernel(spec, TARGET).broken_limits(TARGET) == []


@pytest.mark.parametrize("heads", REGIMES)
@pytest.mark.parametrize("page_size", [64, 16, 1])
def test_copies_are_never_drained_in_the_steady_loop(heads: int, page_size: int) -> None:
    """Every wait of the steady loop leaves the copies of at least one tile in flight: 18 instructions of a wave."""
    problem = DecodeProblem.make(batch=4, heads=heads, page_size=page_size, return_lse=True)
    attend, _ = registry.program(problem, TARGET, solution="cdna4").kernels()
    loop = hot_loop(compile_kernel(attend, TARGET).assembly)
    assert loop is not None
    waits = [line for line in loop.instructions if line.startswith("s_waitcnt") and "vmcnt" in line]
    assert waits
    assert all(int(line.split("vmcnt(")[1].split(")")[0]) >= 18 for line in waits), waits


def test_one_binary_serves_every_batch_and_all_lengths() -> None:
    def binary(batch: int, tokens: int) -> list[tuple[object, ...]]:
        problem = DecodeProblem.make(batch=batch, heads=16, max_seqlen_k=tokens)
        specs = registry.program(problem, TARGET, solution="cdna4").kernels()
        return [(dict(spec.constexprs), dict(spec.options), dict(spec.signature)) for spec in specs]

    assert binary(1, 4096) == binary(65, 100_000)
