"""Calls of mla_decode_with_kvcache at the edges of what is allowed: empty, aliased, configured, without autograd."""

import pytest
import torch

from mla_core.torch_attention import TorchConfig
from mla_decode import mla_decode_with_kvcache
from mla_testing import compare
from mla_testing.paged_cache import paged_cache

INF = float("inf")


def call(inputs, **options):
    return mla_decode_with_kvcache(*inputs.tensors, **inputs.options, **options)


@pytest.mark.parametrize(
    ("batch", "max_pages", "num_pages"),
    [(0, 4, 3), (3, 0, 3), (3, 4, 0), (0, 0, 0)],
    ids=["batch", "table", "pool", "all"],
)
@pytest.mark.parametrize("repeated", [False, True], ids=["first", "repeated"])
def test_nothing_to_attend_to(batch, max_pages, num_pages, repeated):
    """The host sees that there is no key; table entries and lengths may hold anything."""
    q = torch.full((batch, 2, 5, 576), float("nan"), dtype=torch.bfloat16)
    pool = torch.full((num_pages, 16, 576), float("nan"), dtype=torch.bfloat16)
    table = torch.full((batch, max_pages), 2147480000, dtype=torch.int32)
    lengths = torch.zeros(batch, dtype=torch.int32)
    for _ in range(1 + repeated):
        out, lse = mla_decode_with_kvcache(q, pool, table, lengths, softmax_scale=1.0, return_lse=True)
    assert out.shape == (batch, 2, 5, 512) and out.dtype == torch.bfloat16 and (out == 0).all()
    assert lse.shape == (batch, 2, 5) and lse.dtype == torch.float32 and (lse == -INF).all()
    given = torch.ones_like(out)
    assert (
        mla_decode_with_kvcache(q, pool, table, lengths, softmax_scale=1.0, out=given) is given and (given == 0).all()
    )


def test_lengths_that_change_between_calls_are_read_anew():
    inputs = paged_cache(seqlens=[40, 30, 20], heads=4, page_size=16)
    for lengths in ([40, 30, 20], [1, 0, 7], [39, 2, 20]):
        inputs.cache_seqlens.copy_(torch.tensor(lengths))
        moved = inputs.reordered(torch.arange(3))
        out, lse = call(moved, return_lse=True)
        accuracy = compare(out, moved.expected[0], lse, moved.expected[1])
        assert accuracy.ok, str(accuracy)


def test_one_table_row_for_all_requests():
    inputs = paged_cache(seqlens=[40], heads=4, page_size=16)
    q = torch.randn(5, 1, 4, 576).bfloat16()
    table = inputs.page_table.expand(5, -1)
    lengths = torch.tensor([1, 40, 0, 17, 16], dtype=torch.int32)
    assert table.stride(0) == 0
    out = mla_decode_with_kvcache(q, inputs.kv_cache, table, lengths, softmax_scale=0.1)
    again = mla_decode_with_kvcache(q, inputs.kv_cache, table.clone(), lengths, softmax_scale=0.1)
    assert torch.equal(out, again) and out.isfinite().all()


def test_one_query_for_all_requests():
    inputs = paged_cache(seqlens=[40, 40], heads=4, page_size=16)
    q = inputs.q[:1].expand(2, -1, -1, -1)
    out = mla_decode_with_kvcache(q, *inputs.tensors[1:], softmax_scale=0.1)
    assert torch.equal(out, mla_decode_with_kvcache(q.clone(), *inputs.tensors[1:], softmax_scale=0.1))


def test_a_new_result_each_call():
    inputs = paged_cache(seqlens=[9], heads=2)
    first, second = call(inputs), call(inputs)
    assert first.data_ptr() != second.data_ptr() and torch.equal(first, second)


def test_a_gradient_is_no_obstacle_where_none_is_recorded():
    inputs = paged_cache(seqlens=[9], heads=2)
    inputs.q.requires_grad_(True)
    with torch.no_grad():
        assert not call(inputs).requires_grad
    with torch.inference_mode():
        call(inputs)


def test_a_config_is_used():
    inputs = paged_cache(seqlens=[900], heads=64)
    exact, single = (call(inputs, config=TorchConfig(accumulate=kind), return_lse=True)[1] for kind in ("fp64", "fp32"))
    assert not torch.equal(exact, single)
    assert torch.equal(exact, inputs.expected[1].float())


def test_pool_of_expanded_pages():
    """A pool whose pages are one in memory: strides of 0 are strides too."""
    page = torch.randn(1, 16, 576).bfloat16()
    table = torch.tensor([[5, 3]], dtype=torch.int32)
    lengths = torch.tensor([30], dtype=torch.int32)
    q = torch.randn(1, 1, 4, 576).bfloat16()
    out = mla_decode_with_kvcache(q, page.expand(7, -1, -1), table, lengths, softmax_scale=0.1)
    assert torch.equal(out, mla_decode_with_kvcache(q, page.repeat(7, 1, 1), table, lengths, softmax_scale=0.1))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_on_another_device_than_the_current_one():
    inputs = paged_cache(seqlens=[300, 70], heads=16, device="cuda:1")
    with torch.cuda.device(0):
        out, lse = call(inputs, return_lse=True)
    accuracy = compare(out, inputs.expected[0], lse, inputs.expected[1])
    assert accuracy.ok, str(accuracy)
