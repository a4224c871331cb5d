"""Non-absorbed MLA prefill over sequences of varying length, in float64."""

from __future__ import annotations

import torch

from mla_testing.reference.attention import attend_prefix


def prefill_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    *,
    softmax_scale: float,
    is_causal: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `mla_prefill.mla_prefill` must return, in float64 (same argument shapes).

    Returns:
        out `[total_q, heads, v_head_dim]` and lse `[total_q, heads]`, float64, on the device of q. Rows of no sequence,
        which the operation leaves alone, are NaN in both.
    """
    total_q, heads, head_dim = q.shape
    kv_heads, v_dim = v.shape[1:]
    group = heads // kv_heads
    out = torch.full((total_q, heads, v_dim), float("nan"), dtype=torch.float64, device=q.device)
    lse = torch.full((total_q, heads), float("nan"), dtype=torch.float64, device=q.device)
    starts_q, starts_kv = cu_seqlens_q.tolist(), cu_seqlens_kv.tolist()
    for sequence in range(len(starts_q) - 1):
        rows = slice(starts_q[sequence], starts_q[sequence + 1])
        keys = slice(starts_kv[sequence], starts_kv[sequence + 1])
        n_q, n_kv = rows.stop - rows.start, keys.stop - keys.start
        if n_q <= 0:
            continue
        row = torch.arange(n_q, device=q.device)
        visible = row + 1 + n_kv - n_q if is_causal else torch.full_like(row, n_kv)
        # The query heads of one key head stand below each other: [n_q, kv_heads, group] -> [kv_heads, n_q * group].
        grouped = q[rows].reshape(n_q, kv_heads, group, head_dim).transpose(0, 1).flatten(1, 2)
        k_heads, v_heads = k[keys].transpose(0, 1), v[keys].transpose(0, 1)
        result = attend_prefix(grouped, k_heads, v_heads, visible.repeat_interleave(group), softmax_scale)
        out[rows] = result[0].view(kv_heads, n_q, group, v_dim).transpose(0, 1).reshape(n_q, heads, v_dim)
        lse[rows] = result[1].view(kv_heads, n_q, group).transpose(0, 1).reshape(n_q, heads)
    return out, lse
