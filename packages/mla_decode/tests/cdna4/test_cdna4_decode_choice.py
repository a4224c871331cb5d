"""Which problems the gfx950 decode kernel takes, and how it does them."""

from __future__ import annotations

import attrs
import pytest

from mla_core import ConfigError, Target, registry, triton_support
from mla_core.problem import MAX_INT32
from mla_decode import DecodeProblem
from mla_decode.cdna4 import schedule
from mla_decode.cdna4.config import CDNA4DecodeConfig
from mla_decode.cdna4.solution import SOLUTION, supports

TARGET = Target.named("gfx950")
NEEDS_TRITON = pytest.mark.skipif(bool(triton_support.missing((3, 9))), reason=triton_support.missing((3, 9)))


@pytest.mark.parametrize(
    ("heads", "q_len", "regime"),
    [
        (1, 1, "bh16bn64"),
        (16, 1, "bh16bn64"),
        (5, 3, "bh16bn64"),
        (17, 1, "bh32bn64"),
        (8, 4, "bh32bn64"),
        (33, 1, "bh64bn64"),
        (128, 4, "bh64bn64"),
    ],
)
def test_regime_is_the_smallest_that_holds_the_rows(heads: int, q_len: int, regime: str) -> None:
    problem = DecodeProblem.make(batch=3, heads=heads, q_len=q_len)
    config = schedule.choose(problem, TARGET)
    assert config.regime == regime
    assert schedule.row_blocks(problem, config) == -(-problem.rows // config.rows)


@pytest.mark.parametrize(
    ("page_size", "paging"),
    [
        (1, "page_per_token"),
        (5, "page_per_token"),
        (16, "page_per_wave"),
        (48, "page_per_wave"),
        (64, "page_per_tile"),
        (192, "page_per_tile"),
    ],
)
def test_paging_is_the_widest_that_the_page_size_allows(page_size: int, paging: str) -> None:
    assert schedule.choose(DecodeProblem.make(batch=3, heads=16, page_size=page_size), TARGET).paging == paging


def test_offsets_are_32_bits_up_to_the_last_byte_that_they_reach() -> None:
    row = 2 * 576
    pages = (MAX_INT32 + 1) // row
    for page_count, fits in ((pages, True), (pages + 1, False)):
        config = schedule.choose(DecodeProblem.make(batch=1, heads=16, page_size=1, num_pages=page_count), TARGET)
        assert config.within_2gb is fits
    # A page's address is a scalar base of 64 bits: the pool's size does not matter.
    big = DecodeProblem.make(batch=1, heads=16, page_size=64, num_pages=2**20)
    assert schedule.choose(big, TARGET) == CDNA4DecodeConfig()


def test_rows_that_lie_far_apart_get_addresses_of_their_own() -> None:
    problem = DecodeProblem.make(batch=1, heads=16)
    kv = attrs.evolve(problem.kv, stride_token=2**25, stride_page=576)
    config = schedule.choose(attrs.evolve(problem, kv=kv), TARGET)
    assert (config.paging, config.within_2gb) == ("page_per_token", False)


@NEEDS_TRITON
def test_slots_fill_the_machine_once() -> None:
    for heads, blocks in ((16, 1), (128, 2)):
        program = registry.program(DecodeProblem.make(batch=64, heads=heads), TARGET, solution="cdna4")
        assert program.grid == (TARGET.xcds, blocks, TARGET.compute_units // TARGET.xcds // blocks)
    lone = registry.program(DecodeProblem.make(batch=1, heads=16, max_seqlen_k=64), TARGET, solution="cdna4")
    assert lone.grid == (8, 1, 1) and lone.items == 0 and len(lone.kernels()) == 1


@NEEDS_TRITON
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"aligned": False}, "multiples of 16 bytes"),
        ({"q_strides": (576, 576, 580)}, "q has one of 580"),
        ({"out_strides": (512, 512, 513)}, "out has one of 513"),
    ],
)
def test_refusals_name_the_limit(change: dict[str, object], words: str) -> None:
    problem = attrs.evolve(DecodeProblem.make(batch=1, heads=16), **change)
    assert words in supports(problem, TARGET).reason
    assert registry.select(problem, TARGET).name != "cdna4"


@NEEDS_TRITON
def test_another_machine_is_refused() -> None:
    assert "sm_90" in supports(DecodeProblem.make(batch=1, heads=16), Target.named("sm_90")).reason


def test_an_old_triton_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_support, "version", lambda: (3, 6))
    reason = supports(DecodeProblem.make(batch=1, heads=16), TARGET).reason
    assert "3.9" in reason and "3.6 is installed" in reason


@NEEDS_TRITON
@pytest.mark.parametrize(
    ("options", "config"),
    [
        ({"page_size": 16}, {"paging": "page_per_tile"}),
        ({"page_size": 1}, {"paging": "page_per_wave"}),
        ({"page_size": 1, "num_pages": 2**22}, {"paging": "page_per_token"}),
    ],
)
def test_configs_that_contradict_the_problem_are_refused(options: dict[str, int], config: dict[str, str]) -> None:
    problem = DecodeProblem.make(batch=1, heads=16, **options)
    with pytest.raises(ConfigError):
        registry.program(problem, TARGET, config=CDNA4DecodeConfig(**config))


def test_64_bit_addresses_are_by_token_only() -> None:
    with pytest.raises(ConfigError, match="page_per_token where within_2gb is False"):
        CDNA4DecodeConfig(within_2gb=False)


def test_config_round_trips_through_json() -> None:
    config = CDNA4DecodeConfig(regime="bh64bn64", paging="page_per_token", within_2gb=False)
    assert SOLUTION.config_type.from_json(config.to_json()) == config
