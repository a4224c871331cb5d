"""The host side of the `triton` prefill solution: Configs, the grid, and what a Program refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_core import ConfigError, Target
from mla_prefill import PrefillProblem
from mla_prefill.portable.config import TritonPrefillConfig
from mla_prefill.portable.program import TritonPrefillProgram
from mla_prefill.portable.schedule import choose, shared_footprint
from mla_prefill.portable.solution import SOLUTION

TARGETS = [Target.named(name) for name in Target.names()]


@given(lengths=st.lists(st.integers(0, 700), min_size=1, max_size=40), gap=st.integers(0, 300))
def test_every_tile_of_every_sequence_is_in_the_grid_once(lengths, gap):
    """The rule of `pipeline.find_tile`, in Python: sequence i starts at tile begin // block_m + i."""
    begins = [gap + sum(lengths[:i]) for i in range(len(lengths))]
    problem = PrefillProblem.make(batch=len(lengths), seqlen=1, heads=1)
    target = Target.named("gfx950")
    config = choose(problem, target)
    tiles = (gap + sum(lengths)) // config.block_m + len(lengths)
    found = []
    for tile in range(tiles):
        started = [i for i, begin in enumerate(begins) if begin // config.block_m + i <= tile]
        if started:
            row = (tile - begins[started[-1]] // config.block_m - started[-1]) * config.block_m
            found += [(started[-1], row)] * (row < lengths[started[-1]])
    needed = [(i, row) for i, length in enumerate(lengths) for row in range(0, length, config.block_m)]
    assert found == needed


def test_grid_is_heads_by_tiles():
    problem = PrefillProblem.make(batch=3, seqlen=100, heads=5)
    program = TritonPrefillProgram(problem, Target.named("sm_90"), TritonPrefillConfig(block_m=64))
    assert program.grid == (5 * (300 // 64 + 3),)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.arch)
def test_default_tiles_fit_shared_memory(target):
    config = choose(PrefillProblem.make(batch=1, seqlen=64, heads=2), target)
    assert not target.is_gpu or shared_footprint(config, target) <= target.shared_bytes
    assert config.interpreted == (not target.is_gpu)


def test_a_config_may_not_claim_32_bit_offsets_for_larger_tensors():
    target = Target.named("gfx950")
    problem = PrefillProblem.make(batch=8, seqlen=16384, heads=128)
    assert choose(problem, target).within_2gb is False
    with pytest.raises(ConfigError, match="within_2gb is True"):
        TritonPrefillProgram(problem, target, choose(problem, target).evolve(within_2gb=True))


@pytest.mark.parametrize(("field", "value"), [("block_m", 100), ("block_n", 8), ("num_stages", 0)])
def test_config_refuses(field, value):
    with pytest.raises(ConfigError, match=f"{field} is {value}"):
        TritonPrefillConfig(**{field: value})


def test_needs_the_interpreter_on_a_cpu(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    verdict = SOLUTION.supports(PrefillProblem.make(batch=1, seqlen=1, heads=1), Target.named("cpu"))
    assert not verdict
    assert "TRITON_INTERPRET=1" in verdict.reason
