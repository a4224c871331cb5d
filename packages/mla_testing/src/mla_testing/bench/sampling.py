"""Parts of large inputs, so that comparing with float64 takes milliseconds and not minutes."""

from __future__ import annotations

import attrs
import torch

from mla_testing.accuracy import Accuracy, compare
from mla_testing.operations import Inputs
from mla_testing.paged_cache import DecodeInputs


def compare_sample(inputs: Inputs, out: torch.Tensor, lse: torch.Tensor) -> Accuracy:
    """Compares the first, middle and last sequence with float64: all heads in decode, the outer two in prefill."""
    if isinstance(inputs, DecodeInputs):
        picked = torch.tensor(_ends_and_middle(inputs.q.shape[0]), device=inputs.q.device)
        expected, expected_lse = inputs.reordered(picked).expected
        return compare(out[picked], expected, lse[picked], expected_lse)
    part, rows = inputs.reordered(_ends_and_middle(inputs.cu_seqlens_q.shape[0] - 1))
    group = inputs.q.shape[1] // inputs.k.shape[1]
    kv_heads = sorted({0, inputs.k.shape[1] - 1})
    heads = [head * group for head in kv_heads]
    part = attrs.evolve(part, q=part.q[:, heads], k=part.k[:, kv_heads], v=part.v[:, kv_heads])
    expected, expected_lse = part.expected
    return compare(out[rows][:, heads], expected, lse[rows][:, heads], expected_lse)


def _ends_and_middle(count: int) -> list[int]:
    return sorted({0, count // 2, count - 1})
