"""Softmax attention in float64 where each row sees a prefix of the keys: the one formula of both references."""

from __future__ import annotations

import torch

SCORE_BYTES = 256 * 2**20
"""Memory that one chunk of scores may take, bytes; larger problems go through in chunks of rows."""


def attend_prefix(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor, softmax_scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """`softmax(softmax_scale * q @ k^T) @ v`, row r of every head over keys `[0, visible[r])` only.

    Args:
        q: `[heads, rows, dim]`, any float dtype.
        k: `[heads, keys, dim]`.
        v: `[heads, keys, v_dim]`.
        visible: `[rows]` int64 number of visible keys; negative counts as 0.
        softmax_scale: factor of the logits, natural base.

    Returns:
        out `[heads, rows, v_dim]` and lse `[heads, rows]`, float64; 0 and -inf for a row that sees nothing. Keys
        that no row sees are never read, so they may be NaN.
    """
    heads, rows, _ = q.shape
    out = torch.zeros((heads, rows, v.shape[-1]), dtype=torch.float64, device=q.device)
    lse = torch.full((heads, rows), float("-inf"), dtype=torch.float64, device=q.device)
    keys = min(max(int(visible.max()), 0), k.shape[1]) if rows else 0
    if keys == 0:
        return out, lse
    k, v = k[:, :keys].double(), v[:, :keys].double()
    position = torch.arange(keys, device=q.device)
    step = max(1, SCORE_BYTES // (8 * heads * keys))
    for start in range(0, rows, step):
        chunk = slice(start, start + step)
        scores = torch.bmm(q[:, chunk].double(), k.transpose(1, 2)).mul_(softmax_scale)
        scores.masked_fill_(position >= visible[chunk, None], float("-inf"))
        lse[:, chunk] = torch.logsumexp(scores, dim=-1)
        seen = visible[chunk] > 0
        weights = scores.sub_(lse[:, chunk, None].masked_fill(~seen[:, None], 0.0)).exp_()
        out[:, chunk] = torch.bmm(weights, v)
    return out, lse
