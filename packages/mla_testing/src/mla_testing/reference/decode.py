"""Absorbed MLA decode over a paged cache, in float64."""

from __future__ import annotations

import torch

from mla_testing.reference.attention import attend_prefix


def decode_reference(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    page_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    *,
    softmax_scale: float,
    kv_lora_rank: int = 512,
    causal: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `mla_decode.mla_decode_with_kvcache` must return, in float64 (same argument shapes).

    Only the page-table entries and the rows that some query row sees are read. Raises IndexError where a needed
    page-table entry is not a page of the pool.

    Returns:
        out `[batch, q_len, heads, kv_lora_rank]` and lse `[batch, q_len, heads]`, float64, on the device of q.
    """
    pool = kv_cache.squeeze(2) if kv_cache.dim() == 4 else kv_cache
    page_size = pool.shape[1]
    batch, q_len, heads, head_dim = q.shape
    capacity = page_table.shape[1] * page_size
    out = torch.zeros((batch, q_len, heads, kv_lora_rank), dtype=torch.float64, device=q.device)
    lse = torch.full((batch, q_len, heads), float("-inf"), dtype=torch.float64, device=q.device)
    row = torch.arange(q_len, device=q.device)
    for request, seqlen in enumerate(cache_seqlens.tolist()):
        seqlen = min(max(seqlen, 0), capacity)
        if seqlen == 0:
            continue
        pages = page_table[request, : -(-seqlen // page_size)].long()
        if pages.min() < 0 or pages.max() >= pool.shape[0]:
            raise IndexError(f"page_table[{request}] names pages {pages.tolist()} of a pool with {pool.shape[0]}")
        kv = pool[pages].reshape(1, -1, head_dim)[:, :seqlen]
        visible = seqlen - q_len + 1 + row if causal else torch.full_like(row, seqlen)
        rows = q[request].reshape(1, q_len * heads, head_dim)
        result = attend_prefix(rows, kv, kv[..., :kv_lora_rank], visible.repeat_interleave(heads), softmax_scale)
        out[request] = result[0].view(q_len, heads, kv_lora_rank)
        lse[request] = result[1].view(q_len, heads)
    return out, lse
