"""Calls of mla_prefill at the edges of what is allowed: empty, one sequence of many shapes, without autograd."""

import pytest
import torch

from mla_core.torch_attention import TorchConfig
from mla_prefill import mla_prefill
from mla_testing import compare
from mla_testing.varlen import varlen

INF = float("inf")


def call(inputs, **options):
    return mla_prefill(*inputs.tensors, **{**inputs.options, **options})


def tensors(total_q, total_kv, heads=2):
    return (
        torch.full((total_q, heads, 192), float("nan"), dtype=torch.bfloat16),
        torch.full((total_kv, heads, 192), float("nan"), dtype=torch.bfloat16),
        torch.full((total_kv, heads, 128), float("nan"), dtype=torch.bfloat16),
    )


def cu(*starts):
    return torch.tensor(starts, dtype=torch.int32)


@pytest.mark.parametrize("is_causal", [True, False])
def test_no_key_at_all(is_causal):
    out, lse = mla_prefill(
        *tensors(5, 0), cu(0, 2, 5), cu(0, 0, 0), max_seqlen_q=3, max_seqlen_kv=0, softmax_scale=1.0,
        is_causal=is_causal, return_lse=True,
    )  # fmt: skip
    assert (out == 0).all() and (lse == -INF).all()


def test_no_query_at_all():
    out, lse = mla_prefill(
        *tensors(0, 7), cu(0, 0), cu(0, 7), max_seqlen_q=0, max_seqlen_kv=7, softmax_scale=1.0, return_lse=True
    )
    assert out.shape == (0, 2, 128) and lse.shape == (0, 2)


@pytest.mark.parametrize("total", [0, 5])
def test_no_sequence_leaves_every_row_alone(total):
    out = torch.full((total, 2, 128), 3.0, dtype=torch.bfloat16)
    lse = torch.full((total, 2), 3.0)
    for _ in range(2):
        mla_prefill(
            *tensors(total, total), cu(0), cu(0), max_seqlen_q=0, max_seqlen_kv=0, softmax_scale=1.0,
            out=out, lse_out=lse, return_lse=True,
        )  # fmt: skip
    assert (out == 3).all() and (lse == 3).all()


def test_lengths_that_change_between_calls_are_read_anew():
    inputs = varlen(seqlens=[(20, 20), (30, 30)], heads=2)
    first = inputs.cu_seqlens_q.tolist()
    for middle in (20, 1, 0, 50):
        for starts in (inputs.cu_seqlens_q, inputs.cu_seqlens_kv):
            starts[1] = starts[0] + middle
        moved, _ = inputs.reordered([0, 1])
        out, lse = call(inputs, max_seqlen_q=50, max_seqlen_kv=50, return_lse=True)
        rows = slice(first[0], first[-1])
        accuracy = compare(out[rows], moved.expected[0], lse[rows], moved.expected[1])
        assert accuracy.ok, str(accuracy)


def test_a_gradient_is_no_obstacle_where_none_is_recorded():
    inputs = varlen(seqlens=[(3, 3)], heads=2)
    inputs.k.requires_grad_(True)
    with torch.no_grad():
        assert not call(inputs).requires_grad


def test_a_config_is_used():
    inputs = varlen(seqlens=[(70, 300)], heads=4, gap=0)
    exact, single = (call(inputs, config=TorchConfig(accumulate=kind), return_lse=True)[1] for kind in ("fp64", "fp32"))
    assert not torch.equal(exact, single)
    assert torch.equal(exact, inputs.expected[1].float())


def test_one_key_for_all_heads_by_expansion():
    """A stride of 0 between heads is a stride too."""
    inputs = varlen(seqlens=[(5, 9)], heads=4, kv_heads=1)
    grouped = call(inputs)
    k, v = inputs.k.expand(-1, 4, -1), inputs.v.expand(-1, 4, -1)
    out = mla_prefill(inputs.q, k, v, *inputs.tensors[3:], **inputs.options)
    rows = slice(int(inputs.cu_seqlens_q[0]), int(inputs.cu_seqlens_q[-1]))
    torch.testing.assert_close(out[rows], grouped[rows])
