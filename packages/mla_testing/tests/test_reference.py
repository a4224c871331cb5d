"""The references against attention spelled out one row at a time, and at the edges of the contract."""

import pytest
import torch

from mla_testing.reference import attention, decode_reference, prefill_reference

INF = float("inf")


def one_row(q, k, v, scale):
    """Attention of one row in plain Python arithmetic of float64 tensors; q `[d]`, k `[n, d]`, v `[n, dv]`."""
    if k.shape[0] == 0:
        return torch.zeros(v.shape[1], dtype=torch.float64), torch.tensor(-INF, dtype=torch.float64)
    logits = torch.stack([scale * torch.dot(q.double(), key.double()) for key in k])
    weights = (logits - logits.max()).exp()
    out = sum(weight * value.double() for weight, value in zip(weights, v, strict=True)) / weights.sum()
    return out, logits.max() + weights.sum().log()


def decode_inputs(seqlens, page_size, q_len=1, heads=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    pages = [-(-max(n, 0) // page_size) for n in seqlens]
    pool = torch.randn((sum(pages) + 2, page_size, 576), generator=generator).bfloat16()
    table = torch.full((len(seqlens), max(pages) + 1), 2**31 - 1, dtype=torch.int32)
    order = torch.randperm(sum(pages) + 2, generator=generator).int()
    for request, count in enumerate(pages):
        table[request, :count] = order[sum(pages[:request]) :][:count]
    q = torch.randn((len(seqlens), q_len, heads, 576), generator=generator).bfloat16()
    return q, pool, table, torch.tensor(seqlens, dtype=torch.int32)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("page_size", [1, 3, 8])
def test_decode_row_by_row(page_size, causal):
    seqlens, q_len = [5, 0, 1, 16, 2], 3
    q, pool, table, lengths = decode_inputs(seqlens, page_size, q_len)
    out, lse = decode_reference(q, pool, table, lengths, softmax_scale=0.07, causal=causal)
    for request, seqlen in enumerate(seqlens):
        keys = [pool[table[request, t // page_size], t % page_size] for t in range(seqlen)]
        kv = torch.stack(keys) if keys else pool.new_empty((0, 576))
        for i in range(q_len):
            n = max(seqlen - q_len + 1 + i, 0) if causal else seqlen
            for head in range(2):
                expected = one_row(q[request, i, head], kv[:n], kv[:n, :512], 0.07)
                torch.testing.assert_close(out[request, i, head], expected[0], rtol=1e-12, atol=1e-13)
                torch.testing.assert_close(lse[request, i, head], expected[1], rtol=1e-12, atol=1e-13)


def test_decode_reads_nothing_that_no_row_sees():
    q, pool, table, lengths = decode_inputs([5, 9], 4)
    clean = decode_reference(q, pool, table, lengths, softmax_scale=0.1)
    poisoned = torch.full_like(pool, float("nan"))
    for request, seqlen in enumerate([5, 9]):
        for t in range(seqlen):
            page = table[request, t // 4]
            poisoned[page, t % 4] = pool[page, t % 4]
    for one, other in zip(clean, decode_reference(q, poisoned, table, lengths, softmax_scale=0.1), strict=True):
        assert torch.equal(one, other)


def test_decode_clamps_lengths_to_the_table():
    q, pool, table, _ = decode_inputs([8, 8], 4)
    table = table[:, :2]
    full = decode_reference(q, pool, table, torch.tensor([8, 0], dtype=torch.int32), softmax_scale=0.1)
    clamped = decode_reference(q, pool, table, torch.tensor([2**31 - 1, -5], dtype=torch.int32), softmax_scale=0.1)
    assert torch.equal(full[0], clamped[0]) and torch.equal(full[1], clamped[1])
    assert (clamped[0][1] == 0).all() and (clamped[1][1] == -INF).all()


def test_decode_refuses_a_needed_entry_that_is_no_page():
    q, pool, table, lengths = decode_inputs([5], 4)
    table[0, 1] = -1
    with pytest.raises(IndexError, match=r"page_table\[0\] names pages"):
        decode_reference(q, pool, table, lengths, softmax_scale=0.1)


def test_a_pool_with_a_head_axis_is_the_same_pool():
    q, pool, table, lengths = decode_inputs([7], 4)
    flat = decode_reference(q, pool, table, lengths, softmax_scale=0.1)
    axis = decode_reference(q, pool.unsqueeze(2), table, lengths, softmax_scale=0.1)
    assert torch.equal(flat[0], axis[0])


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("group", [1, 3])
def test_prefill_row_by_row(group, is_causal):
    pairs, kv_heads = [(3, 3), (0, 4), (2, 0), (2, 5), (5, 2)], 2
    generator = torch.Generator().manual_seed(1)
    cu_q = torch.tensor([1, *(1 + sum(n for n, _ in pairs[: i + 1]) for i in range(5))], dtype=torch.int32)
    cu_kv = torch.tensor([2, *(2 + sum(n for _, n in pairs[: i + 1]) for i in range(5))], dtype=torch.int32)
    q = torch.randn((cu_q[-1] + 2, kv_heads * group, 192), generator=generator).bfloat16()
    k = torch.randn((cu_kv[-1] + 1, kv_heads, 192), generator=generator).bfloat16()
    v = torch.randn((cu_kv[-1] + 1, kv_heads, 128), generator=generator).bfloat16()
    out, lse = prefill_reference(q, k, v, cu_q, cu_kv, softmax_scale=0.1, is_causal=is_causal)
    for sequence, (n_q, n_kv) in enumerate(pairs):
        first = cu_kv[sequence]
        for i in range(n_q):
            n = max(min(i + n_kv - n_q + 1, n_kv), 0) if is_causal else n_kv
            for head in range(kv_heads * group):
                row, keys = cu_q[sequence] + i, slice(first, first + n)
                expected = one_row(q[row, head], k[keys, head // group], v[keys, head // group], 0.1)
                torch.testing.assert_close(out[row, head], expected[0], rtol=1e-12, atol=1e-13)
                torch.testing.assert_close(lse[row, head], expected[1], rtol=1e-12, atol=1e-13)
    outside = torch.ones(q.shape[0], dtype=torch.bool)
    outside[cu_q[0] : cu_q[-1]] = False
    assert out[outside].isnan().all() and lse[outside].isnan().all() and not out[~outside].isnan().any()


def test_prefill_without_keys():
    q = torch.randn(4, 2, 192).bfloat16()
    nothing = torch.empty(0, 1, 192).bfloat16()
    cu_q, cu_kv = torch.tensor([0, 4], dtype=torch.int32), torch.tensor([0, 0], dtype=torch.int32)
    out, lse = prefill_reference(q, nothing, nothing[..., :128], cu_q, cu_kv, softmax_scale=1.0)
    assert (out == 0).all() and (lse == -INF).all()


def test_chunks_of_rows_do_not_change_the_result(monkeypatch):
    q, pool, table, lengths = decode_inputs([33, 2], 8, q_len=4, heads=5)
    whole = decode_reference(q, pool, table, lengths, softmax_scale=0.1)
    monkeypatch.setattr(attention, "SCORE_BYTES", 3 * 33 * 8)
    chunked = decode_reference(q, pool, table, lengths, softmax_scale=0.1)
    torch.testing.assert_close(chunked[0], whole[0], rtol=1e-12, atol=1e-14)
    assert torch.allclose(chunked[1], whole[1], rtol=1e-13)


def test_large_logits_do_not_overflow():
    q, pool, table, lengths = decode_inputs([9], 4)
    out, lse = decode_reference(q, pool, table, lengths, softmax_scale=1e4)
    assert out.isfinite().all() and lse.isfinite().all()
