"""Paged caches the hard way: the inputs of a decode call, with poison wherever a kernel must not look.

Pages are in random order; unused pages, the rows behind each sequence's end and the gaps of a strided pool hold NaN
and Inf; page-table entries behind the last page a sequence needs hold values that are no page; the query of a request
that sees no key is NaN. The first key and the last ones of each sequence are larger than the rest, so that a key lost
at either end shows even in a long sequence.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import attrs
import torch

from mla_decode.problem import KV_LORA_RANK, QK_ROPE_HEAD_DIM
from mla_testing.reference import decode_reference
from mla_testing.strided import empty_strided, scatter

HEAD_DIM = KV_LORA_RANK + QK_ROPE_HEAD_DIM

GARBAGE = (2147480000, -1, 2**31 - 1, -(2**31))
"""Page-table entries that name no page of any pool."""

NEEDLE = 3.0
"""How much larger the keys at the ends of a sequence are: enough to carry part of the weight among thousands."""

SOFTMAX_SCALE = 192**-0.5
"""DeepSeek-V3's: one over the root of its qk_head_dim before absorption (128 + 64)."""


@attrs.frozen(kw_only=True, eq=False)
class DecodeInputs:
    """Tensors of one decode call, as `mla_decode_with_kvcache` takes them."""

    q: torch.Tensor
    kv_cache: torch.Tensor
    page_table: torch.Tensor
    cache_seqlens: torch.Tensor
    causal: bool
    softmax_scale: float = SOFTMAX_SCALE

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """The positional arguments."""
        return self.q, self.kv_cache, self.page_table, self.cache_seqlens

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments."""
        return {"softmax_scale": self.softmax_scale, "causal": self.causal}

    @functools.cached_property
    def expected(self) -> tuple[torch.Tensor, torch.Tensor]:
        """out and lse in float64."""
        return decode_reference(*self.tensors, softmax_scale=self.softmax_scale, causal=self.causal)

    def reordered(self, order: torch.Tensor) -> DecodeInputs:
        """The same requests in another order of the batch; `order` is `[batch]` int64."""
        return attrs.evolve(
            self, q=self.q[order], page_table=self.page_table[order], cache_seqlens=self.cache_seqlens[order]
        )


def paged_cache(
    *,
    seqlens: Sequence[int],
    heads: int,
    q_len: int = 1,
    page_size: int = 64,
    dtype: torch.dtype = torch.bfloat16,
    causal: bool = True,
    pool: str = "contiguous",
    head_axis: bool = False,
    q_layout: str = "contiguous",
    share_prefix: bool = False,
    softmax_scale: float = SOFTMAX_SCALE,
    max_pages: int | None = None,
    spare_pages: int = 3,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> DecodeInputs:
    """Builds the inputs of a decode call.

    Args:
        seqlens: cache_seqlens as passed; negative ones and ones beyond the table are allowed, and clamped as the
            operation does.
        pool, q_layout: names from `mla_testing.strided.LAYOUTS`.
        head_axis: give the pool its singleton head axis.
        share_prefix: requests share the full pages of the longest request, as far as theirs reach, as servers share
            a prompt.
        max_pages: columns of page_table; default: two more than the longest sequence needs.
        spare_pages: unused, poisoned pages in the pool, at random places among the others but never the last one.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    order = torch.Generator().manual_seed(seed)
    longest = max(map(int, seqlens), default=0)
    max_pages = max(-(-longest // page_size), 0) + 2 if max_pages is None else max_pages
    lengths = [min(max(int(seqlen), 0), max_pages * page_size) for seqlen in seqlens]
    page_table = _page_table(lengths, page_size, max_pages, share_prefix)
    used = int(page_table.max()) + 1 if page_table.numel() else 0
    num_pages = used + spare_pages
    place = torch.randperm(num_pages, generator=order)[:used].int()
    if used and num_pages - 1 not in place:
        place[0] = num_pages - 1
    held = page_table >= 0
    page_table[held] = place[page_table[held].long()]
    garbage = torch.tensor(GARBAGE, dtype=torch.int32)
    position = torch.arange(page_table.numel()).view(page_table.shape)
    page_table[~held] = garbage[position % len(GARBAGE)][~held]

    kv = empty_strided(pool, (num_pages, page_size, HEAD_DIM), dtype, device)
    table = page_table.to(device)
    for request, length in enumerate(lengths):
        if length == 0:
            continue
        token = torch.arange(length, device=device)
        rows = torch.randn((length, HEAD_DIM), generator=generator, device=device)
        rows[0] *= NEEDLE
        rows[-q_len:] *= NEEDLE
        # Requests that share a page write it in turn; the last one's values stand, and all read them.
        kv[table[request, token // page_size].long(), token % page_size] = rows.to(dtype)

    batch = len(lengths)
    q = torch.randn((batch, q_len, heads, HEAD_DIM), generator=generator, device=device).to(dtype)
    for request, length in enumerate(lengths):
        unseen = max(q_len - length, 0) if causal else q_len * (length == 0)
        q[request, :unseen] = float("nan")
    return DecodeInputs(
        q=scatter(q, q_layout),
        kv_cache=kv.unsqueeze(2) if head_axis else kv,
        page_table=_widened(table),
        cache_seqlens=torch.tensor(list(map(int, seqlens)), dtype=torch.int32, device=device),
        causal=causal,
        softmax_scale=softmax_scale,
    )


def _page_table(lengths: Sequence[int], page_size: int, max_pages: int, share_prefix: bool) -> torch.Tensor:
    """`[batch, max_pages]` int32: pages numbered in order of use, -1 where none is needed."""
    table = torch.full((len(lengths), max_pages), -1, dtype=torch.int32)
    owner = max(range(len(lengths)), key=lambda request: lengths[request], default=0)
    shared = lengths[owner] // page_size if share_prefix and lengths else 0
    table[owner : owner + 1, :shared] = torch.arange(shared, dtype=torch.int32)
    used = shared
    for request, length in enumerate(lengths):
        first = min(shared, length // page_size)
        table[request, :first] = table[owner, :first]
        needed = -(-length // page_size)
        table[request, first:needed] = torch.arange(used, used + needed - first, dtype=torch.int32)
        used += needed - first
    return table


def _widened(table: torch.Tensor) -> torch.Tensor:
    """The same table as a view of a wider one, so that its row stride is not its width."""
    wide = torch.full((table.shape[0], table.shape[1] + 5), GARBAGE[0], dtype=table.dtype, device=table.device)
    wide[:, : table.shape[1]] = table
    return wide[:, : table.shape[1]]
