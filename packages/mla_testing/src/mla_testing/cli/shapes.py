"""Problems from command-line values, validated exactly as those of a real call are."""

from __future__ import annotations

import torch

from mla_core.errors import ArgumentError
from mla_core.problem import ELEMENT_BYTES, TORCH_DTYPES
from mla_decode.problem import KV_LORA_RANK, QK_ROPE_HEAD_DIM, DecodeProblem
from mla_prefill.problem import QK_HEAD_DIM, V_HEAD_DIM, PrefillProblem
from mla_testing.operations import problem_of
from mla_testing.paged_cache import DecodeInputs
from mla_testing.varlen import PrefillInputs

GIB = 2**30


def check_dtype(name: str) -> torch.dtype:
    """The torch dtype of a name. Raises ArgumentError for another than bf16 and fp16."""
    if name not in TORCH_DTYPES:
        raise ArgumentError("dtype", repr(name), " or ".join(TORCH_DTYPES))
    return TORCH_DTYPES[name]


def decode_problem(
    *,
    batch: int,
    heads: int,
    q_len: int,
    page_size: int,
    seqlen: int,
    dtype: str,
    pool_gib: float | None,
    causal: bool,
    return_lse: bool,
) -> DecodeProblem:
    """A decode call of contiguous tensors that have shapes but no memory, so that any size can be asked about.

    `pool_gib` is the size of the pool in GiB; None: as many pages as the batch fills.
    """
    element = check_dtype(dtype)
    head_dim = KV_LORA_RANK + QK_ROPE_HEAD_DIM
    max_pages = -(-seqlen // page_size)
    page_bytes = page_size * head_dim * ELEMENT_BYTES
    num_pages = batch * max_pages if pool_gib is None else int(pool_gib * GIB) // page_bytes
    inputs = DecodeInputs(
        q=torch.empty((batch, q_len, heads, head_dim), dtype=element, device="meta"),
        kv_cache=torch.empty((num_pages, page_size, head_dim), dtype=element, device="meta"),
        page_table=torch.empty((batch, max_pages), dtype=torch.int32, device="meta"),
        cache_seqlens=torch.empty((batch,), dtype=torch.int32, device="meta"),
        causal=causal,
    )
    return problem_of(inputs, return_lse=return_lse)


def prefill_problem(
    *,
    batch: int,
    heads: int,
    kv_heads: int | None,
    seqlen: int,
    seqlen_kv: int | None,
    dtype: str,
    causal: bool,
    return_lse: bool,
) -> PrefillProblem:
    """A prefill call of `batch` sequences of equal lengths, of contiguous tensors that have no memory."""
    element = check_dtype(dtype)
    kv_heads = heads if kv_heads is None else kv_heads
    seqlen_kv = seqlen if seqlen_kv is None else seqlen_kv
    offsets = torch.empty((batch + 1,), dtype=torch.int32, device="meta")
    inputs = PrefillInputs(
        q=torch.empty((batch * seqlen, heads, QK_HEAD_DIM), dtype=element, device="meta"),
        k=torch.empty((batch * seqlen_kv, kv_heads, QK_HEAD_DIM), dtype=element, device="meta"),
        v=torch.empty((batch * seqlen_kv, kv_heads, V_HEAD_DIM), dtype=element, device="meta"),
        cu_seqlens_q=offsets,
        cu_seqlens_kv=offsets,
        max_seqlen_q=seqlen,
        max_seqlen_kv=seqlen_kv,
        is_causal=causal,
    )
    return problem_of(inputs, return_lse=return_lse)
