"""The gfx950 decode kernel in the emulator, with all checks: what the shared contract cases do not single out."""

from __future__ import annotations

import attrs
import pytest
import torch

from mla_core import triton_support

MISSING = triton_support.missing((3, 9))
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

from mla_core.errors import ArgumentError  # noqa: E402
from mla_decode import api, mla_decode_with_kvcache  # noqa: E402
from mla_decode.cdna4.config import CDNA4DecodeConfig  # noqa: E402
from mla_testing import emulate  # noqa: E402
from mla_testing.accuracy import compare  # noqa: E402
from mla_testing.gfx950 import OutOfBoundsError  # noqa: E402
from mla_testing.paged_cache import DecodeInputs, paged_cache  # noqa: E402

ORDERS = ("forward", "reverse")


def attend(inputs: DecodeInputs, order: str = "forward", units: int = 8, **options: object) -> tuple[torch.Tensor, ...]:
    with emulate("gfx950", wave_order=order, compute_units=units):
        return mla_decode_with_kvcache(
            *inputs.tensors, **{**inputs.options, "return_lse": True, "solution": "cdna4", **options}
        )


def check(inputs: DecodeInputs, out: torch.Tensor, lse: torch.Tensor) -> None:
    expected, expected_lse = inputs.expected
    result = compare(out, expected, lse, expected_lse)
    assert result.ok, str(result)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("heads", "q_len", "page_size"),
    [(16, 1, 64), (12, 1, 1), (8, 4, 16), (96, 1, 128), (40, 2, 64)],
)
def test_every_regime_and_paging(order: str, heads: int, q_len: int, page_size: int) -> None:
    inputs = paged_cache(seqlens=(130, 0, 1, 63, 65, 257), heads=heads, q_len=q_len, page_size=page_size)
    check(inputs, *attend(inputs, order))


def test_the_tail_of_many_query_tokens_spans_steps() -> None:
    """70 causal tokens: rows of one workgroup end in different tiles, and some see no key at all."""
    inputs = paged_cache(seqlens=(160, 69, 3), heads=1, q_len=70)
    check(inputs, *attend(inputs))


@pytest.mark.parametrize("heads", [16, 64])
def test_both_address_widths_give_the_same_bits(heads: int) -> None:
    inputs = paged_cache(seqlens=(200, 5), heads=heads, page_size=16)
    regime = "bh16bn64" if heads == 16 else "bh64bn64"
    narrow = CDNA4DecodeConfig(regime=regime, paging="page_per_token")
    wide = narrow.evolve(within_2gb=False)
    by_wave = narrow.evolve(paging="page_per_wave")
    results = [attend(inputs, config=config) for config in (narrow, wide, by_wave)]
    check(inputs, *results[0])
    for other in results[1:]:
        assert torch.equal(results[0][0], other[0]) and torch.equal(results[0][1], other[1])


@pytest.mark.parametrize("page_size", [64, 1])
@pytest.mark.parametrize("gib", [2, 4])
def test_pools_beyond_2_and_4_gib(page_size: int, gib: int) -> None:
    """The same keys in a small pool and at the end of one of `gib` GiB and a page, untouched elsewhere: the same bits."""
    inputs = paged_cache(seqlens=(150, 7), heads=16, page_size=page_size)
    small = inputs.kv_cache
    row = page_size * small.shape[2]
    pages = gib * 2**30 // (2 * row) + 1
    pool = torch.empty((pages, page_size, small.shape[2]), dtype=small.dtype)
    moved = pages - small.shape[0]
    pool[moved:] = small
    in_pool = (inputs.page_table >= 0) & (inputs.page_table < small.shape[0])
    table = torch.where(in_pool, inputs.page_table + moved, inputs.page_table)
    large = attrs.evolve(inputs, kv_cache=pool, page_table=table)
    expected, found = attend(inputs), attend(large)
    check(inputs, *expected)
    assert torch.equal(expected[0], found[0]) and torch.equal(expected[1], found[1])


def test_a_request_is_cut_alike_in_every_batch_order() -> None:
    inputs = paged_cache(seqlens=(1000, 5, 0, 300), heads=16)
    order = torch.tensor([3, 1, 0, 2])
    out, lse = attend(inputs, units=32)
    moved = attend(inputs.reordered(order), units=32)
    check(inputs, out, lse)
    assert torch.equal(out[order], moved[0]) and torch.equal(lse[order], moved[1])


def test_requests_run_in_turns_where_there_are_more_than_workgroups() -> None:
    """65 requests on 8 workgroups, the longest of them cut so that it does not hold up the rest."""
    inputs = paged_cache(seqlens=(600, *((index * 7) % 90 for index in range(64))), heads=4)
    check(inputs, *attend(inputs))


def test_a_page_outside_the_pool_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A visible entry of the table that names no page: refused by name, and behind that check by the emulator."""
    inputs = paged_cache(seqlens=(100,), heads=16)
    inputs.page_table[0, 1] = 2**20
    with pytest.raises(ArgumentError, match=r"page_table\[0, 1\] is 1048576; allowed: 0 to "):
        attend(inputs)
    monkeypatch.setattr(api, "check_pages", lambda *_arguments: None)
    with pytest.raises(OutOfBoundsError, match=r"paged_tile\.py"):
        attend(inputs)


def test_merge_is_exact_where_one_part_holds_all_the_weight() -> None:
    """Parts of a cut request whose log-sum-exps lie hundreds apart, so that weights underflow to exactly 0."""
    inputs = paged_cache(seqlens=(900,), heads=16)
    scaled = attrs.evolve(inputs, softmax_scale=inputs.softmax_scale * 50)
    check(scaled, *attend(scaled, units=64))


def test_a_negative_scale_turns_the_order_of_keys_round() -> None:
    inputs = paged_cache(seqlens=(200, 3), heads=16)
    turned = attrs.evolve(inputs, softmax_scale=-inputs.softmax_scale)
    check(turned, *attend(turned))
