"""The builders: what must be visible is finite, and everything else is poison."""

import pytest
import torch

from mla_testing.paged_cache import GARBAGE, paged_cache
from mla_testing.strided import LAYOUTS, SPARSE, empty_strided
from mla_testing.varlen import varlen

POISONED = [name for name in LAYOUTS if name not in SPARSE]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_have_the_shape_and_a_contiguous_last_dimension(layout):
    view = empty_strided(layout, (3, 2, 8), torch.bfloat16, "cpu")
    assert view.shape == (3, 2, 8) and view.stride(-1) == 1
    view[:] = torch.arange(48).view(3, 2, 8)
    assert torch.equal(view, torch.arange(48).view(3, 2, 8).bfloat16()), "elements share memory"


@pytest.mark.parametrize("layout", POISONED)
def test_what_lies_between_is_not_finite(layout):
    view = empty_strided(layout, (3, 2, 8), torch.bfloat16, "cpu")
    view.fill_(1)
    whole = view.as_strided((view.untyped_storage().size() // 2,), (1,), 0)
    assert (~whole.isfinite()).sum() == whole.numel() - 48


def test_far_is_beyond_4_gib_and_takes_no_memory():
    view = empty_strided("far", (3, 2, 8), torch.bfloat16, "cpu")
    assert (view[1].data_ptr() - view.data_ptr()) > 2**31
    assert (view[2].data_ptr() - view.data_ptr()) > 2**32
    swapped = empty_strided("far_swapped", (5, 3, 8), torch.bfloat16, "cpu")
    assert (swapped[:, 2].data_ptr() - swapped.data_ptr()) > 2**32


def test_misaligned_is_misaligned():
    view = empty_strided("misaligned", (4, 2, 8), torch.bfloat16, "cpu")
    assert view.data_ptr() % 16 and view.stride(0) % 8


@pytest.mark.parametrize("layout", POISONED)
@pytest.mark.parametrize(("page_size", "share"), [(1, False), (4, True), (5, False)])
def test_paged_cache_is_finite_exactly_where_keys_are(layout, page_size, share):
    seqlens = [9, 0, 1, page_size - 1, page_size, page_size + 1, -3]
    inputs = paged_cache(seqlens=seqlens, heads=2, page_size=page_size, pool=layout, share_prefix=share)
    held = set()
    for request, seqlen in enumerate(seqlens):
        pages = -(-max(seqlen, 0) // page_size)
        table = inputs.page_table[request].tolist()
        assert all(0 <= page < inputs.kv_cache.shape[0] for page in table[:pages])
        assert all(entry in GARBAGE for entry in table[pages:]) and len(table) >= pages + 2
        held |= {(table[t // page_size], t % page_size) for t in range(max(seqlen, 0))}
    finite = inputs.kv_cache.isfinite().all(-1)
    assert {tuple(where) for where in finite.nonzero().tolist()} == held
    assert not inputs.kv_cache[~finite].isfinite().any()
    assert inputs.page_table.stride(0) > inputs.page_table.shape[1]


def test_pages_are_in_no_order_and_the_last_one_is_used():
    table = paged_cache(seqlens=[64], heads=1, page_size=2, spare_pages=50).page_table[0, :32]
    assert table.sort().values.tolist() != table.tolist()
    assert table.max() == 32 + 50 - 1


def test_prefixes_are_shared():
    inputs = paged_cache(seqlens=[5, 12, 9], heads=1, page_size=4, share_prefix=True)
    assert inputs.page_table[0, 0] == inputs.page_table[1, 0] == inputs.page_table[2, 0]
    assert inputs.page_table[1, 1] == inputs.page_table[2, 1] != inputs.page_table[0, 1]
    private = inputs.page_table[0, 1], inputs.page_table[2, 2]
    assert not set(map(int, private)) & set(inputs.page_table[1, :3].tolist())
    assert len(inputs.kv_cache) == 3 + 2 + 3


def test_queries_without_keys_are_poison():
    inputs = paged_cache(seqlens=[0, 2, 5], heads=1, q_len=4)
    finite = inputs.q.isfinite().all(-1)[..., 0]
    assert finite.tolist() == [[False] * 4, [False, False, True, True], [True] * 4]
    assert paged_cache(seqlens=[0, 2], heads=1, q_len=4, causal=False).q.isfinite().all(-1)[..., 0].sum() == 4


def test_a_lost_key_at_either_end_of_a_long_sequence_shows():
    from mla_testing import compare

    inputs = paged_cache(seqlens=[4000], heads=4, page_size=64)
    expected = inputs.expected
    for change in ("last", "first"):
        length = inputs.cache_seqlens - 1
        kv = inputs.kv_cache.clone()
        if change == "first":
            length = length + 1
            kv[inputs.page_table[0, 0], 0] = 0
        from mla_testing.reference import decode_reference

        out, lse = decode_reference(inputs.q, kv, inputs.page_table, length, softmax_scale=inputs.softmax_scale)
        assert not compare(out.bfloat16(), expected[0], lse.float(), expected[1]).ok, change


def test_reordered_requests_are_the_same_requests():
    inputs = paged_cache(seqlens=[3, 0, 70], heads=2)
    moved = inputs.reordered(torch.tensor([2, 0, 1]))
    assert torch.equal(moved.expected[0], inputs.expected[0][[2, 0, 1]])


@pytest.mark.parametrize("layout", POISONED)
@pytest.mark.parametrize("is_causal", [True, False])
def test_varlen_is_finite_exactly_where_rows_and_keys_meet(layout, is_causal):
    pairs = [(3, 3), (0, 4), (2, 0), (2, 5), (5, 2)]
    inputs = varlen(seqlens=pairs, heads=2, layout=layout, is_causal=is_causal)
    q_rows, k_rows = set(), set()
    for sequence, (n_q, n_kv) in enumerate(pairs):
        first_q, first_kv = int(inputs.cu_seqlens_q[sequence]), int(inputs.cu_seqlens_kv[sequence])
        unseen = max(n_q - n_kv, 0) if is_causal else n_q * (n_kv == 0)
        q_rows |= set(range(first_q + unseen, first_q + n_q))
        k_rows |= set(range(first_kv, first_kv + n_kv)) if n_q else set()
    for tensor, rows in ((inputs.q, q_rows), (inputs.k, k_rows), (inputs.v, k_rows)):
        finite = tensor.isfinite().flatten(1)
        assert (
            set(finite.all(-1).nonzero().flatten().tolist()) == rows == set(finite.any(-1).nonzero().flatten().tolist())
        )
    assert inputs.cu_seqlens_q[0] > 0 and inputs.q.shape[0] > inputs.cu_seqlens_q[-1]
    assert inputs.cu_seqlens_kv[0] > 0 and inputs.k.shape[0] > inputs.cu_seqlens_kv[-1]
    assert (inputs.max_seqlen_q, inputs.max_seqlen_kv) == (5, 5)


def test_reordered_sequences_are_the_same_sequences():
    inputs = varlen(seqlens=[(3, 3), (0, 4), (2, 5)], heads=2)
    moved, rows = inputs.reordered([2, 0, 1])
    assert torch.equal(moved.expected[0], inputs.expected[0][rows])
    assert moved.cu_seqlens_q.tolist() == [0, 2, 5, 5] and moved.cu_seqlens_kv.tolist() == [0, 5, 8, 12]
