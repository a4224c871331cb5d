"""Prefill as a custom operator, `torch.ops.mla.prefill`, so that torch.compile and torch.export keep it as one node.

`mla_prefill` calls it by itself while it is being traced: the outputs are allocated in the graph, and the operator
writes them. Validation and dispatch happen when it runs, with the real tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from mla_core.errors import UnsupportedError
from mla_prefill.problem import V_HEAD_DIM


@torch.library.custom_op("mla::prefill", mutates_args=("out", "lse"))
def prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_kv: int,
    softmax_scale: float,
    is_causal: bool = True,
    logit_cap: float = 0.0,
    return_lse: bool = False,
    solution: str | None = None,
) -> None:
    """`mla_prefill` into `out` and `lse`, which it calls `lse_out`. There is no backward."""
    from mla_prefill.api import mla_prefill  # which imports this module

    mla_prefill(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_kv,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_kv=max_seqlen_kv,
        softmax_scale=softmax_scale,
        is_causal=is_causal,
        logit_cap=logit_cap,
        return_lse=return_lse,
        out=out,
        lse_out=lse,
        solution=solution,
    )


@prefill.register_fake
def _(*_arguments: Any, **_options: Any) -> None:
    """Tracing needs nothing: the outputs are arguments."""


def traced(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    *,
    max_seqlen_q: int,
    max_seqlen_kv: int,
    softmax_scale: float,
    is_causal: bool,
    logit_cap: float,
    return_lse: bool,
    out: torch.Tensor | None,
    lse_out: torch.Tensor | None,
    solution: str | None,
    config: Any,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """What `mla_prefill` is while it is traced: allocations and one operator.

    Raises UnsupportedError for a `config`, which an operator cannot take.
    """
    if config is not None:
        raise UnsupportedError("config is given while tracing; allowed: None (name a solution, or call it untraced)")
    if out is None:
        out = q.new_empty((*q.shape[:2], V_HEAD_DIM))
    if lse_out is None and return_lse:
        lse_out = q.new_empty(q.shape[:2], dtype=torch.float32)
    prefill(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_kv,
        out,
        lse_out,
        max_seqlen_q,
        max_seqlen_kv,
        softmax_scale,
        is_causal,
        logit_cap,
        return_lse,
        solution,
    )
    return (out, lse_out) if return_lse and lse_out is not None else out
