"""Packed sequences the hard way: the inputs of a prefill call, with poison wherever a kernel must not look.

Rows in front of the first sequence and behind the last one hold NaN and Inf, as do the keys of a sequence without
queries, the queries that see no key, and the gaps of strided tensors. The first and the last key of each sequence are
larger than the rest, so that a key lost at either end shows even in a long sequence.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import attrs
import torch

from mla_prefill.problem import QK_HEAD_DIM, V_HEAD_DIM
from mla_testing.paged_cache import NEEDLE
from mla_testing.reference import prefill_reference
from mla_testing.strided import empty_strided

SOFTMAX_SCALE = QK_HEAD_DIM**-0.5


@attrs.frozen(kw_only=True, eq=False)
class PrefillInputs:
    """Tensors of one prefill call, as `mla_prefill` takes them."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    cu_seqlens_q: torch.Tensor
    cu_seqlens_kv: torch.Tensor
    max_seqlen_q: int
    max_seqlen_kv: int
    is_causal: bool
    softmax_scale: float = SOFTMAX_SCALE

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """The positional arguments."""
        return self.q, self.k, self.v, self.cu_seqlens_q, self.cu_seqlens_kv

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments."""
        return {
            "softmax_scale": self.softmax_scale,
            "is_causal": self.is_causal,
            "max_seqlen_q": self.max_seqlen_q,
            "max_seqlen_kv": self.max_seqlen_kv,
        }

    @functools.cached_property
    def expected(self) -> tuple[torch.Tensor, torch.Tensor]:
        """out and lse in float64, NaN in rows of no sequence."""
        return prefill_reference(*self.tensors, softmax_scale=self.softmax_scale, is_causal=self.is_causal)

    def reordered(self, order: Sequence[int]) -> tuple[PrefillInputs, torch.Tensor]:
        """The same sequences packed in another order, and `[tokens]` int64: the row of q that each new row was."""
        rows, cu_q = _gather(self.cu_seqlens_q, order)
        keys, cu_kv = _gather(self.cu_seqlens_kv, order)
        moved = attrs.evolve(
            self, q=self.q[rows], k=self.k[keys], v=self.v[keys], cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv
        )
        return moved, rows


def _gather(cu_seqlens: torch.Tensor, order: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    starts = cu_seqlens.tolist()
    spans = [torch.arange(starts[sequence], starts[sequence + 1]) for sequence in order]
    ends = torch.tensor([0, *(len(span) for span in spans)]).cumsum(0).int()
    rows = torch.cat(spans) if spans else torch.arange(0)
    return rows.to(cu_seqlens.device), ends.to(cu_seqlens.device)


def varlen(
    *,
    seqlens: Sequence[tuple[int, int]],
    heads: int,
    kv_heads: int | None = None,
    dtype: torch.dtype = torch.bfloat16,
    is_causal: bool = True,
    layout: str = "contiguous",
    softmax_scale: float = SOFTMAX_SCALE,
    gap: int = 7,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> PrefillInputs:
    """Builds the inputs of a prefill call.

    Args:
        seqlens: (queries, keys) of each sequence.
        layout: name from `mla_testing.strided.LAYOUTS`, of q, k and v.
        gap: poisoned rows in front of the first sequence (half of them in q, so that q and k differ) and behind the
            last one.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    kv_heads = heads if kv_heads is None else kv_heads
    starts_q = _starts([queries for queries, _ in seqlens], gap // 2)
    starts_kv = _starts([keys for _, keys in seqlens], gap)

    def fill(view: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        values = torch.randn((stop - start, *view.shape[1:]), generator=generator, device=device)
        view[start:stop] = values.to(dtype)
        return view[start:stop]

    q = empty_strided(layout, (starts_q[-1] + gap, heads, QK_HEAD_DIM), dtype, device)
    k = empty_strided(layout, (starts_kv[-1] + gap, kv_heads, QK_HEAD_DIM), dtype, device)
    v = empty_strided(layout, (starts_kv[-1] + gap, kv_heads, V_HEAD_DIM), dtype, device)
    for sequence, (queries, keys) in enumerate(seqlens):
        unseen = min(queries, max(queries - keys, 0) if is_causal else queries * (keys == 0))
        fill(q, starts_q[sequence] + unseen, starts_q[sequence + 1])
        if queries == 0 or keys == 0:
            continue
        for view in (k, v):
            filled = fill(view, starts_kv[sequence], starts_kv[sequence + 1])
            filled[:: max(keys - 1, 1)] *= NEEDLE
    return PrefillInputs(
        q=q,
        k=k,
        v=v,
        cu_seqlens_q=torch.tensor(starts_q, dtype=torch.int32, device=device),
        cu_seqlens_kv=torch.tensor(starts_kv, dtype=torch.int32, device=device),
        max_seqlen_q=max((queries for queries, _ in seqlens), default=0),
        max_seqlen_kv=max((keys for _, keys in seqlens), default=0),
        is_causal=is_causal,
        softmax_scale=softmax_scale,
    )


def _starts(lengths: Sequence[int], first: int) -> list[int]:
    starts = [first]
    for length in lengths:
        starts.append(starts[-1] + length)
    return starts
