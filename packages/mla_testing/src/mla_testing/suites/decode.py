"""Contract cases of absorbed decode."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import attrs
import torch

from mla_core.problem import ELEMENT_BYTES, MAX_INT32, TORCH_DTYPES
from mla_decode import mla_decode_with_kvcache
from mla_testing.paged_cache import HEAD_DIM, SOFTMAX_SCALE, DecodeInputs, paged_cache
from mla_testing.suites.lengths import HUGE_BATCH, PATTERNS
from mla_testing.suites.pairwise import pairwise

CLAMPED_TABLE_TOKENS = 384
"""What a row of page_table holds at least in the `clamped` pattern, tokens."""


@attrs.frozen(kw_only=True)
class DecodeCase:
    """One decode problem with its inputs; `id` spells it out.

    Attributes:
        lengths: a pattern of `suites.lengths.PATTERNS`.
        pool, q_layout: layouts of `mla_testing.strided`.
        pool_pages: least number of pages in the pool.
        table_tokens: least number of tokens that a row of page_table can hold.
        scale: softmax_scale, as a multiple of DeepSeek-V3's.
    """

    operation: ClassVar[str] = "decode"
    function: ClassVar[Any] = staticmethod(mla_decode_with_kvcache)
    hints: ClassVar[tuple[dict[str, int], ...]] = ({"max_seqlen_k": 0}, {"max_seqlen_k": 2**40})

    heads: int
    q_len: int = 1
    batch: int = 3
    page_size: int = 64
    lengths: str = "edges"
    causal: bool = True
    dtype: str = "bf16"
    pool: str = "contiguous"
    head_axis: bool = False
    q_layout: str = "contiguous"
    share_prefix: bool = False
    pool_pages: int = 0
    table_tokens: int = 0
    scale: float = 1.0

    @property
    def is_huge(self) -> bool:
        """Whether only the most telling checks are worth their time."""
        return self.batch >= HUGE_BATCH or self.lengths == "very_long"

    @property
    def id(self) -> str:
        """Readable and unique, and what `suites.find` takes."""
        parts = [
            f"decode-h{self.heads}-q{self.q_len}-b{self.batch}-p{self.page_size}-{self.lengths}",
            "causal" if self.causal else "full",
            self.dtype,
            self.pool + ("4d" if self.head_axis else ""),
            f"q_{self.q_layout}",
        ]
        parts += ["shared"] * self.share_prefix + [f"pages{self.pool_pages}"] * bool(self.pool_pages)
        parts += [f"table{self.table_tokens}"] * bool(self.table_tokens) + [f"scale{self.scale:g}"] * (self.scale != 1)
        return "-".join(parts)

    def build(self, device: torch.device | str) -> DecodeInputs:
        """The inputs on `device`."""
        table_tokens = CLAMPED_TABLE_TOKENS if self.lengths == "clamped" else self.table_tokens
        return paged_cache(
            seqlens=PATTERNS[self.lengths](self.batch, self.page_size),
            heads=self.heads,
            q_len=self.q_len,
            page_size=self.page_size,
            dtype=TORCH_DTYPES[self.dtype],
            causal=self.causal,
            pool=self.pool,
            head_axis=self.head_axis,
            q_layout=self.q_layout,
            share_prefix=self.share_prefix,
            softmax_scale=self.scale * SOFTMAX_SCALE,
            max_pages=-(-table_tokens // self.page_size) if table_tokens else None,
            spare_pages=max(self.pool_pages - self.pages_in_use, 0) if self.pool_pages else 3,
            device=device,
        )

    @property
    def pages_in_use(self) -> int:
        """Pages that the sequences fill; no case with a fixed pool size shares any."""
        lengths = PATTERNS[self.lengths](self.batch, self.page_size)
        return sum(-(-length // self.page_size) for length in lengths)

    def replaced(self, inputs: DecodeInputs) -> DecodeInputs:
        """Other requests of the same shapes, in the same pool: in reverse order, with half their lengths."""
        order = torch.arange(self.batch - 1, -1, -1, device=inputs.q.device)
        moved = inputs.reordered(order)
        return attrs.evolve(moved, cache_seqlens=moved.cache_seqlens // 2)

    def shuffled(self, inputs: DecodeInputs) -> tuple[DecodeInputs, torch.Tensor]:
        """The requests in another order, and the batch index that each was at."""
        generator = torch.Generator().manual_seed(self.batch)
        order = torch.randperm(self.batch, generator=generator).to(inputs.q.device)
        return inputs.reordered(order), order


@functools.cache
def full() -> tuple[DecodeCase, ...]:
    """All pairs of heads, q_len, batch, page size, lengths, layouts and options."""
    rows = pairwise(
        {
            "heads": (1, 5, 8, 12, 16, 17, 32, 40, 64, 96, 128),
            "page_size": (1, 16, 48, 64, 128),
            "lengths": ("edges", "ragged", "one_long", "equal", "clamped"),
            "pool": ("contiguous", "padded_rows", "outer_swapped", "interleaved", "misaligned"),
            "q_layout": ("contiguous", "padded_rows", "outer_swapped", "misaligned"),
            "batch": (3, 1, 8, 65),
            "q_len": (1, 2, 4),
            "causal": (True, False),
            "dtype": ("bf16", "fp16"),
            "head_axis": (False, True),
            "share_prefix": (False, True),
            "scale": (1.0, 0.0, -1.0, 4.0),
        }
    )
    return (*smoke(), *(DecodeCase(**row) for row in rows), DecodeCase(heads=16, lengths="all_empty"))


@functools.cache
def smoke() -> tuple[DecodeCase, ...]:
    """A few small cases in which each option occurs, for slow targets."""
    return (
        DecodeCase(heads=16, batch=8),
        DecodeCase(heads=5, q_len=2, page_size=16, lengths="ragged", pool="padded_rows", q_layout="outer_swapped"),
        DecodeCase(heads=17, q_len=4, batch=2, page_size=48, pool="interleaved", head_axis=True, share_prefix=True),
        DecodeCase(heads=12, causal=False, dtype="fp16", page_size=1, pool="misaligned", q_layout="misaligned"),
        DecodeCase(heads=8, batch=5, lengths="clamped", pool="outer_swapped", q_layout="padded_rows"),
        DecodeCase(heads=32, batch=1, page_size=128, lengths="one_long", scale=-1.0),
        DecodeCase(heads=3, page_size=4096, pool="untouched", table_tokens=MAX_INT32 + 1, lengths="ragged", scale=4.0),
    )


@functools.cache
def large() -> tuple[DecodeCase, ...]:
    """Pools, queries and results beyond 2 and 4 GiB, and at the last byte that 32 bits reach.

    On a CPU they take little memory: what no key needs is reserved, but never touched.
    """
    page_bytes = 64 * HEAD_DIM * ELEMENT_BYTES
    last_within = (MAX_INT32 + 1) // page_bytes
    pools = (last_within, last_within + 1, 2 * last_within + 2)
    return (
        *(DecodeCase(heads=16, lengths="ragged", pool="untouched", pool_pages=pages) for pages in pools),
        DecodeCase(heads=5, q_len=2, page_size=128, batch=1, lengths="equal", pool="far", pool_pages=3),
        DecodeCase(heads=16, lengths="ragged", q_layout="far"),
        DecodeCase(heads=3, q_len=2, lengths="ragged", q_layout="far_swapped"),
    )


@functools.cache
def huge() -> tuple[DecodeCase, ...]:
    """More requests than a dimension of a grid may count, and long contexts: for a GPU."""
    return (
        DecodeCase(heads=1, batch=HUGE_BATCH, page_size=16, lengths="edges"),
        DecodeCase(heads=128, batch=2, lengths="very_long"),
        DecodeCase(heads=16, q_len=2, batch=3, lengths="very_long", dtype="fp16", page_size=1),
    )
