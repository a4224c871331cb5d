"""Decode as a custom operator, `torch.ops.mla.decode`, so that torch.compile and torch.export keep it as one node.

`mla_decode_with_kvcache` calls it by itself while it is being traced: the outputs are allocated in the graph, and the
operator writes them. Validation and dispatch happen when it runs, with the real tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from mla_core.errors import UnsupportedError


@torch.library.custom_op("mla::decode", mutates_args=("out", "lse"))
def decode(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    page_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    softmax_scale: float,
    max_seqlen_k: int | None = None,
    kv_lora_rank: int = 512,
    qk_rope_head_dim: int = 64,
    causal: bool = True,
    logit_cap: float = 0.0,
    return_lse: bool = False,
    solution: str | None = None,
) -> None:
    """`mla_decode_with_kvcache` into `out` and `lse`, which it calls `lse_out`. There is no backward."""
    from mla_decode.api import mla_decode_with_kvcache  # which imports this module

    mla_decode_with_kvcache(
        q,
        kv_cache,
        page_table,
        cache_seqlens,
        softmax_scale=softmax_scale,
        max_seqlen_k=max_seqlen_k,
        kv_lora_rank=kv_lora_rank,
        qk_rope_head_dim=qk_rope_head_dim,
        causal=causal,
        logit_cap=logit_cap,
        return_lse=return_lse,
        out=out,
        lse_out=lse,
        solution=solution,
    )


@decode.register_fake
def _(*_arguments: Any, **_options: Any) -> None:
    """Tracing needs nothing: the outputs are arguments."""


def traced(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    page_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    *,
    softmax_scale: float,
    max_seqlen_k: int | None,
    kv_lora_rank: int,
    qk_rope_head_dim: int,
    causal: bool,
    logit_cap: float,
    return_lse: bool,
    out: torch.Tensor | None,
    lse_out: torch.Tensor | None,
    solution: str | None,
    config: Any,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """What `mla_decode_with_kvcache` is while it is traced: allocations and one operator.

    Raises UnsupportedError for a `config`, which an operator cannot take.
    """
    if config is not None:
        raise UnsupportedError("config is given while tracing; allowed: None (name a solution, or call it untraced)")
    if out is None:
        out = q.new_empty((*q.shape[:-1], kv_lora_rank))
    if lse_out is None and return_lse:
        lse_out = q.new_empty(q.shape[:-1], dtype=torch.float32)
    decode(
        q,
        kv_cache,
        page_table,
        cache_seqlens,
        out,
        lse_out,
        softmax_scale,
        max_seqlen_k,
        kv_lora_rank,
        qk_rope_head_dim,
        causal,
        logit_cap,
        return_lse,
        solution,
    )
    return (out, lse_out) if return_lse and lse_out is not None else out
