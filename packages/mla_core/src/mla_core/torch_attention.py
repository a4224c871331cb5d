"""Attention of one head group in plain torch: what the `torch` solutions, which serve any device, are made of."""

from __future__ import annotations

import attrs
import torch

from mla_core.config import KernelConfig, kernel_config, one_of

_DTYPES = {"fp32": torch.float32, "fp64": torch.float64}


@kernel_config
class TorchConfig(KernelConfig):
    """How the `torch` solutions compute.

    Attributes:
        accumulate: dtype of the products, the softmax and the sums: `fp32` or `fp64`.
    """

    accumulate: str = attrs.field(default="fp32", validator=one_of(*_DTYPES))

    @property
    def dtype(self) -> torch.dtype:
        """`accumulate` as torch names it."""
        return _DTYPES[self.accumulate]


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor, softmax_scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax attention with an explicit mask; rows that see nothing give out 0 and lse -inf.

    Args:
        q: `[..., rows, d]`; k: `[..., keys, d]`; v: `[..., keys, d_v]`, all of the dtype to compute in. A key that is
            not finite spoils the rows that see it, and no other.
        visible: bool, broadcastable to `[..., rows, keys]`.

    Returns:
        out `[..., rows, d_v]` and lse `[..., rows]`, natural base.
    """
    # A weight of 0 does not cancel a NaN of v in the product, so such a key spoils the logits, where it can be masked.
    spoiled = (v * 0).sum(-1).unsqueeze(-2)
    logits = torch.matmul(q, k.transpose(-1, -2)) * softmax_scale + spoiled
    logits = logits.masked_fill(~visible, float("-inf"))
    lse = torch.logsumexp(logits, dim=-1)
    weights = torch.exp(logits - lse.masked_fill(lse == float("-inf"), 0.0).unsqueeze(-1))
    return torch.matmul(weights, torch.where(v.isfinite(), v, 0)), lse
