"""The host side of the `triton` decode solution: Configs, the split plan, and what a Program refuses."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_core import ConfigError, Target
from mla_decode import DecodeProblem
from mla_decode.merge import MAX_SPLITS, SPLIT_TILES, SplitMerge
from mla_decode.portable.config import TritonDecodeConfig
from mla_decode.portable.program import TritonDecodeProgram
from mla_decode.portable.schedule import choose, plan_splits, shared_footprint
from mla_decode.portable.solution import SOLUTION

TARGETS = [Target.named(name) for name in Target.names()]


@given(
    batch=st.integers(0, 400),
    heads=st.integers(1, 128),
    q_len=st.integers(1, 5),
    max_seqlen_k=st.integers(0, 200_000),
    max_splits=st.integers(1, 128),
    target=st.sampled_from(TARGETS),
)
def test_splits_hold_the_longest_sequence(batch, heads, q_len, max_seqlen_k, max_splits, target):
    problem = DecodeProblem.make(batch=batch, heads=heads, q_len=q_len, max_seqlen_k=max_seqlen_k)
    config = choose(problem, target).evolve(max_splits=max_splits)
    num_splits, split_tokens = plan_splits(problem, target, config)
    assert 1 <= num_splits <= min(max_splits, MAX_SPLITS)
    assert split_tokens > 0
    assert split_tokens % config.block_n == 0
    assert num_splits * split_tokens >= max_seqlen_k
    assert (num_splits - 1) * split_tokens <= max_seqlen_k  # none is left without keys


def test_a_small_batch_is_split_over_the_machine_and_a_large_one_is_not():
    target = Target.named("sm_90")
    one = DecodeProblem.make(batch=1, heads=128, max_seqlen_k=32768)
    many = DecodeProblem.make(batch=2 * target.compute_units, heads=128, max_seqlen_k=4096)
    assert plan_splits(one, target, choose(one, target))[0] > target.compute_units // 4
    assert plan_splits(many, target, choose(many, target))[0] == 1


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.arch)
@pytest.mark.parametrize("heads", [1, 16, 17, 64, 128])
def test_default_tiles_fit_shared_memory(target, heads):
    config = choose(DecodeProblem.make(batch=1, heads=heads), target)
    assert not target.is_gpu or shared_footprint(config, target) <= target.shared_bytes
    assert config.interpreted == (not target.is_gpu)


def test_a_config_may_not_claim_32_bit_offsets_for_a_larger_pool():
    target = Target.named("gfx950")
    problem = DecodeProblem.make(batch=1, heads=16, num_pages=2**15)
    assert choose(problem, target).within_2gb is False
    with pytest.raises(ConfigError, match="within_2gb is True; allowed: False for a pool of 2415919104 bytes"):
        TritonDecodeProgram(problem, target, choose(problem, target).evolve(within_2gb=True))


@pytest.mark.parametrize(("field", "value"), [("block_m", 8), ("block_n", 48), ("num_warps", 3), ("max_splits", 129)])
def test_config_refuses(field, value):
    with pytest.raises(ConfigError, match=f"{field} is {value}"):
        TritonDecodeConfig(**{field: value})


def test_config_says_all_it_is_and_comes_back_from_json():
    config = TritonDecodeConfig(block_m=32, within_2gb=False)
    assert all(f"{field.name}={getattr(config, field.name)!r}" in repr(config) for field in attrs.fields(type(config)))
    assert TritonDecodeConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("num_splits", [2, 3, 8, 9, 128])
def test_merge_tile_holds_all_splits(num_splits):
    merge = SplitMerge(DecodeProblem.make(batch=1, heads=3), num_splits)
    assert merge.split_tile in SPLIT_TILES
    assert merge.split_tile >= num_splits
    assert merge.problem.kv_lora_rank % merge.column_tile == 0


@pytest.mark.parametrize("num_splits", [0, 1, MAX_SPLITS + 1])
def test_merge_refuses_numbers_of_splits(num_splits):
    with pytest.raises(ValueError, match="num_splits"):
        SplitMerge(DecodeProblem.make(batch=1, heads=3), num_splits)


@pytest.mark.parametrize("arch", ["gfx950", "sm_90", "generic"])
def test_supports_every_gpu(arch):
    assert SOLUTION.supports(DecodeProblem.make(batch=1, heads=1), Target.named(arch))


def test_needs_the_interpreter_on_a_cpu(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    verdict = SOLUTION.supports(DecodeProblem.make(batch=1, heads=1), Target.named("cpu"))
    assert not verdict
    assert "TRITON_INTERPRET=1" in verdict.reason
