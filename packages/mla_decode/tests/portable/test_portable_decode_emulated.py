"""The `triton` decode solution and the merge, compiled for gfx950 and emulated: splits, lying hints, empty requests."""

import pytest
import torch

from mla_decode import DecodeProblem, mla_decode_with_kvcache
from mla_decode.merge import SplitMerge
from mla_testing.accuracy import compare
from mla_testing.emulation import emulate
from mla_testing.paged_cache import paged_cache


@pytest.mark.parametrize(("num_splits", "return_lse"), [(2, True), (3, False), (33, True)])
def test_merge_reads_nothing_of_a_split_that_saw_no_key(num_splits, return_lse):
    generator = torch.Generator().manual_seed(num_splits)
    problem = DecodeProblem.make(batch=2, q_len=2, heads=3, return_lse=return_lse)
    merge = SplitMerge(problem, num_splits)
    partial_out, partial_lse = merge.scratch(torch.device("cpu"))
    partial_out.copy_(torch.randn(partial_out.shape, generator=generator))
    partial_lse.copy_(torch.randn(partial_lse.shape, generator=generator) * 3)
    partial_lse[0, 1:] = float("-inf")  # all but one split of a request
    partial_lse[1, :, 4] = float("-inf")  # every split of a row
    partial_out[partial_lse == float("-inf")] = float("nan")
    out = torch.full((2, 2, 3, 512), 7.75, dtype=torch.bfloat16)
    lse = torch.full((2, 2, 3), 7.75) if return_lse else None
    with emulate("gfx950"):
        merge.launch(partial_out, partial_lse, out, lse)

    weight = partial_lse.double().exp()
    expected = (weight[..., None] * partial_out.double().nan_to_num(0.0)).sum(1) / weight.sum(1)[..., None]
    expected = expected.nan_to_num(0.0).view(2, 2, 3, 512)
    expected_lse = partial_lse.double().logsumexp(1).view(2, 2, 3)
    assert expected_lse[1, 1, 1] == float("-inf")
    assert not compare(out, expected, lse, expected_lse).failures


@pytest.mark.parametrize("max_seqlen_k", [None, 64], ids=["no hint", "hint far too small"])
def test_splits_cover_every_key_once(max_seqlen_k):
    inputs = paged_cache(seqlens=[700, 3, 0], heads=5, q_len=2, page_size=16)
    with emulate("gfx950", compute_units=12) as session:
        out, lse = mla_decode_with_kvcache(
            *inputs.tensors, **inputs.options, max_seqlen_k=max_seqlen_k, return_lse=True, solution="triton"
        )
        launched = len(session.launches)
    assert launched == (2 if max_seqlen_k is None else 1)  # attention, and the merge of splits
    assert not compare(out, inputs.expected[0], lse, inputs.expected[1]).failures


def test_a_request_without_keys_reads_no_page_before_the_table():
    inputs = paged_cache(seqlens=[0], heads=4, q_len=3, page_size=1, max_pages=8)
    with emulate("gfx950", compute_units=1):  # any read outside a tensor raises
        out, lse = mla_decode_with_kvcache(*inputs.tensors, **inputs.options, return_lse=True, solution="triton")
    assert (out == 0).all()
    assert (lse == float("-inf")).all()
