"""The side-by-side bench, as far as it goes without a GPU."""

import pytest
import torch

from mla_core import ArgumentError
from mla_testing.bench import beside
from mla_testing.reference import prefill_reference


def reference(q, k, v, cu_seqlens, max_seqlen, softmax_scale, causal):
    assert max_seqlen == int(cu_seqlens.diff().max())
    options = {"softmax_scale": softmax_scale, "is_causal": causal}

    def work():
        out, lse = prefill_reference(q, k, v, cu_seqlens, cu_seqlens, **options)
        return out.to(q.dtype), lse.float()

    return work


@pytest.mark.parametrize("text", ["2x9x3xcausal", "1x20x2xfull", "ragged:3x30x2"])
def test_ours_agrees_with_another(text):
    inputs = beside.Inputs.of(beside.Row.parse(text), "cpu")
    calls = {
        "theirs": beside.theirs(inputs, reference),
        "ours": beside.ours(inputs, "torch", planned=False),
        "planned": beside.ours(inputs, "torch", planned=True),
    }
    assert beside.differing(calls) == []
    work, outcome = calls["ours"]
    calls["wrong"] = (work, lambda returned: (outcome(returned)[0] * 1.02, outcome(returned)[1]))
    calls["other lse"] = (work, lambda returned: (outcome(returned)[0], outcome(returned)[1] / 0.6931))
    assert beside.differing(calls) == ["wrong", "other lse"]


def test_rows():
    assert beside.Row.parse("ragged:2x1000x4").seqlens == (100, 1000)
    assert beside.Row.parse("3x64x2xfull") == beside.Row("3x64x2xfull", (64, 64, 64), 2, False)
    with pytest.raises(ArgumentError):
        beside.Row.parse("3x64")


def test_a_peer_with_its_own_result():
    class Call:
        def run(self):
            return torch.ones(2), "lse"

        def result(self, returned):
            return returned[0] * 2, returned[1]

    inputs = beside.Inputs.of(beside.Row.parse("1x2x1"), "cpu")
    work, outcome = beside.theirs(inputs, lambda *arguments: Call())
    assert outcome(work())[0].tolist() == [2.0, 2.0]


def test_function_by_name():
    assert beside.load("math:sqrt")(9.0) == 3.0
