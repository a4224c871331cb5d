"""Prefill inside torch.compile and torch.export: one operator, the same result, the same refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mla_core.errors import ArgumentError
from mla_prefill import mla_prefill
from mla_prefill.ops import prefill
from mla_testing.accuracy import compare
from mla_testing.varlen import PrefillInputs, varlen

SEQLENS = ((5, 5), (0, 3), (33, 70), (3, 1))

BACKENDS = ["eager", "aot_eager"] + ["inductor"] * torch.cuda.is_available()
"""Where there is a GPU the default back end compiles what is around the operator, too."""


def inputs_of(device: str, batch: int = 4, **options: Any) -> PrefillInputs:
    return varlen(seqlens=SEQLENS[:batch], heads=4, kv_heads=2, seed=3, device=device, **options)


def layer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_q: torch.Tensor, cu_kv: torch.Tensor) -> Any:
    """What a model does around attention: something before it, something behind it."""
    out, lse = mla_prefill(
        q * 1.0, k, v, cu_q, cu_kv, max_seqlen_q=33, max_seqlen_kv=70, softmax_scale=192**-0.5, return_lse=True
    )
    return out + 0.0, lse


@pytest.mark.parametrize("options", [{}, {"layout": "padded_rows", "is_causal": False}])
def test_opcheck(options: dict[str, Any], device: str) -> None:
    """torch's own checks of a custom operator: schema, what it mutates, fake tensors, ahead-of-time tracing."""
    inputs = inputs_of(device, **options)
    for tensor in inputs.tensors[:3]:
        tensor.nan_to_num_(0.0, 0.0, 0.0)  # opcheck compares copies with ==, which NaN fails
    out = torch.zeros((*inputs.q.shape[:2], 128), dtype=inputs.q.dtype, device=device)
    lse = torch.zeros(inputs.q.shape[:2], device=device)
    torch.library.opcheck(prefill, (*inputs.tensors, out, lse), {**inputs.options, "return_lse": True})
    torch.library.opcheck(prefill, (*inputs.tensors, out, None), inputs.options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_layer_agrees_with_float64_at_every_batch_size(backend: str, device: str) -> None:
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    for batch in (4, 1, 3):
        inputs = inputs_of(device, batch)
        out, lse = compiled(*inputs.tensors)
        accuracy = compare(out, inputs.expected[0], lse, inputs.expected[1])
        assert accuracy.ok, str(accuracy)


def test_compiled_call_writes_into_the_given_tensors(device: str) -> None:
    inputs = inputs_of(device)

    def into(out: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
        mla_prefill(*inputs.tensors, **inputs.options, out=out, lse_out=lse, return_lse=True)
        return out * 2

    out = torch.full((*inputs.q.shape[:2], 128), 7.0, dtype=inputs.q.dtype, device=device)
    lse = torch.full(inputs.q.shape[:2], 7.0, device=device)
    doubled = torch.compile(into, fullgraph=True, backend="aot_eager")(out, lse)
    accuracy = compare(out, inputs.expected[0], lse, inputs.expected[1])
    assert accuracy.ok, str(accuracy)
    assert torch.equal(doubled, out * 2)


def test_exported_program_holds_one_operator(device: str) -> None:
    class Layer(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor) -> Any:
            return layer(*tensors)

    inputs = inputs_of(device)
    exported = torch.export.export(Layer(), inputs.tensors)
    targets = [str(node.target) for node in exported.graph.nodes if "mla" in str(node.target) + str(node.args)]
    assert len(targets) == 1
    out, lse = exported.module()(*inputs.tensors)
    accuracy = compare(out, inputs.expected[0], lse, inputs.expected[1])
    assert accuracy.ok, str(accuracy)


@pytest.mark.parametrize("wrong", [{"logit_cap": 30.0}, {"max_seqlen_q": -1}])
def test_compiled_call_refuses_what_the_function_refuses(wrong: dict[str, Any], device: str) -> None:
    inputs = inputs_of(device)
    compiled = torch.compile(mla_prefill, fullgraph=True, backend="eager")
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        compiled(*inputs.tensors, **{**inputs.options, **wrong})
