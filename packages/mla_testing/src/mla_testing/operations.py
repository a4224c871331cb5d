"""The two operations by name: what the tools need to call either one, list it, or ask dispatch about it."""

from __future__ import annotations

from typing import Any

import torch

import mla_decode
import mla_decode.problem
import mla_prefill
import mla_prefill.problem
from mla_core.errors import ArgumentError
from mla_testing.paged_cache import DecodeInputs
from mla_testing.varlen import PrefillInputs

Inputs = DecodeInputs | PrefillInputs

OPERATIONS = ("decode", "prefill")


def call(inputs: Inputs, **options: Any) -> Any:
    """The public function of the inputs' operation, called on them; `options` such as `return_lse` or `solution`."""
    is_decode = isinstance(inputs, DecodeInputs)
    function: Any = mla_decode.mla_decode_with_kvcache if is_decode else mla_prefill.mla_prefill
    return function(*inputs.tensors, **inputs.options, **options)


def problem_of(inputs: Inputs, *, return_lse: bool = False) -> Any:
    """The Problem that dispatch sees when `call` is given the inputs."""
    common: dict[str, Any] = {"logit_cap": 0.0, "return_lse": return_lse, "out": None, "lse_out": None}
    with torch.no_grad():
        if isinstance(inputs, PrefillInputs):
            validate: Any = mla_prefill.problem.validate
            return validate(*inputs.tensors, **inputs.options, **common)
        q, kv_cache, page_table, cache_seqlens = inputs.tensors
        return mla_decode.problem.validate(
            q,
            mla_decode.problem.pool_view(kv_cache),
            page_table,
            cache_seqlens,
            max_seqlen_k=None,
            kv_lora_rank=mla_decode.problem.KV_LORA_RANK,
            qk_rope_head_dim=mla_decode.problem.QK_ROPE_HEAD_DIM,
            **inputs.options,
            **common,
        )


def check_operation(name: str) -> str:
    """`name`, if it is an operation. Raises ArgumentError otherwise."""
    if name not in OPERATIONS:
        raise ArgumentError("operation", repr(name), " or ".join(OPERATIONS))
    return name
