"""Decode inside torch.compile and torch.export: one operator, the same result, the same refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mla_core.errors import ArgumentError
from mla_decode import mla_decode_with_kvcache
from mla_decode.ops import decode
from mla_testing.accuracy import compare
from mla_testing.paged_cache import DecodeInputs, paged_cache

SEQLENS = (1, 0, 65, 130)

BACKENDS = ["eager", "aot_eager"] + ["inductor"] * torch.cuda.is_available()
"""Where there is a GPU the default back end compiles what is around the operator, too."""


def inputs_of(device: str, batch: int = 4, **options: Any) -> DecodeInputs:
    return paged_cache(seqlens=SEQLENS[:batch], heads=5, q_len=2, page_size=16, seed=3, device=device, **options)


def layer(q: torch.Tensor, kv_cache: torch.Tensor, page_table: torch.Tensor, seqlens: torch.Tensor) -> Any:
    """What a model does around attention: something before it, something behind it."""
    out, lse = mla_decode_with_kvcache(q * 1.0, kv_cache, page_table, seqlens, softmax_scale=192**-0.5, return_lse=True)
    return out + 0.0, lse


@pytest.mark.parametrize("options", [{}, {"head_axis": True, "pool": "interleaved", "q_layout": "padded_rows"}])
def test_opcheck(options: dict[str, Any], device: str) -> None:
    """torch's own checks of a custom operator: schema, what it mutates, fake tensors, ahead-of-time tracing."""
    inputs = inputs_of(device, **options)
    out = torch.zeros((*inputs.q.shape[:3], 512), dtype=inputs.q.dtype, device=device)
    lse = torch.zeros(inputs.q.shape[:3], device=device)
    common = {"softmax_scale": inputs.softmax_scale}
    # opcheck compares copies of what the operator writes, so the rows that see no key may hold no NaN before it.
    torch.library.opcheck(decode, (*_finite(inputs), out, lse), {**common, "return_lse": True})
    torch.library.opcheck(decode, (*_finite(inputs), out, None), common)


def _finite(inputs: DecodeInputs) -> tuple[torch.Tensor, ...]:
    """The inputs with their poison turned to zeros in place, strides kept."""
    for tensor in (inputs.q, inputs.kv_cache):
        tensor.nan_to_num_(0.0, 0.0, 0.0)
    return inputs.tensors


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
        mla_decode_with_kvcache(*inputs.tensors, **inputs.options, out=out, lse_out=lse, return_lse=True)
        return out * 2

    out = torch.full((*inputs.q.shape[:3], 512), 7.0, dtype=inputs.q.dtype, device=device)
    lse = torch.full(inputs.q.shape[:3], 7.0, device=device)
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


@pytest.mark.parametrize("wrong", [{"logit_cap": 30.0}, {"kv_lora_rank": 256}, {"max_seqlen_k": -1}])
def test_compiled_call_refuses_what_the_function_refuses(wrong: dict[str, Any], device: str) -> None:
    inputs = inputs_of(device)
    compiled = torch.compile(mla_decode_with_kvcache, fullgraph=True, backend="eager")
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        compiled(*inputs.tensors, **inputs.options, **wrong)
