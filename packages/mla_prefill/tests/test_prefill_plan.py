"""A plan that layers share: made once, refused where it does not fit, and the same result as without one."""

import attrs
import pytest
import torch

from mla_core import ArgumentError
from mla_prefill import PrefillPlan, mla_prefill, mla_prefill_plan
from mla_testing import compare


def options_of_plan(inputs):
    return {name: value for name, value in inputs.options.items() if name != "softmax_scale"}


def test_a_solution_without_a_plan_takes_an_empty_one(make_varlen):
    inputs = make_varlen(seqlens=[(5, 9), (3, 3)], heads=2)
    plan = mla_prefill_plan(*inputs.tensors, **options_of_plan(inputs), solution="torch")
    assert plan.words is None
    out, lse = mla_prefill(*inputs.tensors, **inputs.options, return_lse=True, solution="torch", plan=plan)
    assert compare(out, inputs.expected[0], lse, inputs.expected[1]).ok


def test_what_is_no_plan_is_refused(make_varlen):
    inputs = make_varlen(seqlens=[(5, 9)], heads=1)
    with pytest.raises(ArgumentError, match="plan"):
        mla_prefill(*inputs.tensors, **inputs.options, plan="yes")


def test_a_plan_of_another_solution_is_refused(make_varlen):
    inputs = make_varlen(seqlens=[(5, 9)], heads=1)
    words = torch.zeros((3, 8), dtype=torch.int32, device=inputs.q.device)
    plan = PrefillPlan(key=("hopper", 7), words=words)
    with pytest.raises(ArgumentError, match="hopper"):
        mla_prefill(*inputs.tensors, **inputs.options, solution="torch", plan=plan)


def test_layers_share_a_plan_and_a_graph_sees_it_filled_again(make_varlen, device):
    if device == "cpu":
        pytest.skip("needs a GPU")
    inputs = make_varlen(seqlens=[(300, 300), (0, 5), (129, 400)], heads=4)
    plan = mla_prefill_plan(*inputs.tensors, **options_of_plan(inputs))
    results = [mla_prefill(*inputs.tensors, **inputs.options, return_lse=True, plan=plan) for _ in range(3)]
    for out, lse in results:
        assert compare(out, inputs.expected[0], lse, inputs.expected[1]).ok
    out, lse = torch.empty_like(results[0][0]), torch.empty_like(results[0][1])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mla_prefill(*inputs.tensors, **inputs.options, return_lse=True, plan=plan, out=out, lse_out=lse)
    for name in ("q", "k", "v"):
        getattr(inputs, name).normal_()
    moved = [inputs.cu_seqlens_q.clone(), inputs.cu_seqlens_kv.clone()]
    moved[0][1:3] = moved[0][0] + torch.tensor([100, 170], device=device, dtype=torch.int32)
    moved[1][1:3] = moved[1][0] + torch.tensor([260, 270], device=device, dtype=torch.int32)
    inputs.cu_seqlens_q.copy_(moved[0])
    inputs.cu_seqlens_kv.copy_(moved[1])
    mla_prefill_plan(*inputs.tensors, **options_of_plan(inputs), plan=plan)
    graph.replay()
    again = attrs.evolve(inputs)  # without the expected values of the first lengths
    assert compare(out, again.expected[0], lse, again.expected[1]).ok
