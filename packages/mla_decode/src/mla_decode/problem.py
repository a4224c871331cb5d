"""What a decode call asks: the frozen DecodeProblem, and the validation that turns arguments into one."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import torch

from mla_core.errors import ArgumentError
from mla_core.problem import (
    COPY_BYTES,
    DTYPE_NAMES,
    ELEMENT_BYTES,
    PagedKV,
    check_head_dim,
    contiguous_strides,
    is_aligned,
)
from mla_core.validation import (
    check_flag,
    check_last_contiguous,
    check_logits,
    check_lse_out,
    check_number,
    check_out,
    check_shape,
    check_tensor,
)

KV_LORA_RANK = 512
"""Columns of the compressed latent, which are V as well (DeepSeek-V2, arXiv:2405.04434, table of model settings)."""

QK_ROPE_HEAD_DIM = 64
"""Columns of the decoupled RoPE key behind the latent (same source)."""

MAX_HEADS = 128
"""Query heads of a layer on one device, at most (DeepSeek-V3 without tensor parallelism)."""


@attrs.frozen(kw_only=True)
class DecodeProblem:
    """Everything the host knows about one decode call; lengths and pages are on the device only.

    Attributes:
        batch, q_len, heads: of q `[batch, q_len, heads, kv_lora_rank + qk_rope_head_dim]`.
        kv_lora_rank, qk_rope_head_dim: 512 and 64.
        dtype: `bf16` or `fp16`, of q, the pool and out.
        kv: the paged pool.
        max_pages: columns of page_table.
        max_seqlen_k: upper bound of the lengths for scheduling; results do not depend on it.
        q_strides, out_strides: elements between (requests, query tokens, heads).
        page_table_stride: elements between rows of page_table.
        causal: whether row i of q_len sees only keys `< seqlen - q_len + 1 + i`.
        return_lse: whether lse is written.
        aligned: whether q, the pool and out start at 16-byte addresses, as 128-bit and bulk copies need.
    """

    operation: ClassVar[str] = "decode"

    batch: int
    q_len: int
    heads: int
    kv_lora_rank: int = KV_LORA_RANK
    qk_rope_head_dim: int = QK_ROPE_HEAD_DIM
    dtype: str
    kv: PagedKV
    max_pages: int
    max_seqlen_k: int
    q_strides: tuple[int, int, int]
    out_strides: tuple[int, int, int]
    page_table_stride: int
    causal: bool = True
    return_lse: bool = False
    aligned: bool = True

    @property
    def rows(self) -> int:
        """Rows that attend to one sequence: q_len x heads, folded into the M side of the tiles."""
        return self.q_len * self.heads

    @property
    def head_dim(self) -> int:
        """Columns of q and of a KV row."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def max_kv_tokens(self) -> int:
        """Tokens that a row of page_table can name: no length counts beyond it."""
        return self.max_pages * self.kv.page_size

    @property
    def is_empty(self) -> bool:
        """Whether the host can tell that no row has a visible key."""
        return self.batch == 0 or self.max_kv_tokens == 0 or self.kv.num_pages == 0

    def copy_refusal(self) -> str:
        """Why copies of COPY_BYTES do not reach every row of q, the pool and out, for a predicate; empty where they do."""
        if not self.aligned:
            return f"needs q, kv_cache and out at multiples of {COPY_BYTES} bytes, and one is not"
        multiple = COPY_BYTES // ELEMENT_BYTES
        for name, strides in self.row_strides.items():
            for stride in strides:
                if stride % multiple:
                    return f"needs strides that are multiples of {multiple} elements, and {name} has one of {stride}"
        return ""

    @property
    def row_strides(self) -> dict[str, tuple[int, ...]]:
        """Elements between the rows of each tensor that has columns, by argument."""
        return {"kv_cache": (self.kv.stride_page, self.kv.stride_token), "q": self.q_strides, "out": self.out_strides}

    @staticmethod
    def make(
        *,
        batch: int,
        heads: int,
        q_len: int = 1,
        page_size: int = 64,
        max_seqlen_k: int = 4096,
        num_pages: int | None = None,
        dtype: str = "bf16",
        causal: bool = True,
        return_lse: bool = False,
    ) -> DecodeProblem:
        """A Problem with contiguous tensors, for listing, compiling and tests.

        `num_pages` defaults to what `batch` sequences of `max_seqlen_k` tokens fill.
        """
        max_pages = -(-max_seqlen_k // page_size)
        head_dim = KV_LORA_RANK + QK_ROPE_HEAD_DIM
        return DecodeProblem(
            batch=batch,
            q_len=q_len,
            heads=heads,
            dtype=dtype,
            kv=PagedKV(
                num_pages=batch * max_pages if num_pages is None else num_pages,
                page_size=page_size,
                head_dim=head_dim,
                stride_page=page_size * head_dim,
                stride_token=head_dim,
                dtype=dtype,
            ),
            max_pages=max_pages,
            max_seqlen_k=max_seqlen_k,
            q_strides=contiguous_strides(batch, q_len, heads, head_dim),
            out_strides=contiguous_strides(batch, q_len, heads, KV_LORA_RANK),
            page_table_stride=max_pages,
            causal=causal,
            return_lse=return_lse,
        )


def pool_view(kv_cache: Any) -> torch.Tensor:
    """`kv_cache` as `[num_pages, page_size, head_dim]`, its singleton head axis, if any, dropped."""
    if isinstance(kv_cache, torch.Tensor) and kv_cache.dim() == 4:
        if kv_cache.shape[2] != 1:
            raise ArgumentError("kv_cache.shape", tuple(kv_cache.shape), "[num_pages, page_size, 1, head_dim]")
        return kv_cache.select(2, 0)
    check_tensor("kv_cache", kv_cache, 3, None, None)
    return kv_cache


def validate(
    q: Any,
    kv_cache: Any,
    page_table: Any,
    cache_seqlens: Any,
    *,
    softmax_scale: Any,
    max_seqlen_k: int | None,
    kv_lora_rank: int,
    qk_rope_head_dim: int,
    causal: bool,
    logit_cap: float,
    return_lse: bool,
    out: Any,
    lse_out: Any,
) -> DecodeProblem:
    """Checks every argument of `mla_decode_with_kvcache`; raises ArgumentError for the first that is not allowed.

    `kv_cache` has three dimensions here (`pool_view`). An `out` that is None will be allocated, contiguous and aligned.
    """
    check_head_dim("kv_lora_rank", kv_lora_rank, KV_LORA_RANK)
    check_head_dim("qk_rope_head_dim", qk_rope_head_dim, QK_ROPE_HEAD_DIM)
    head_dim = kv_lora_rank + qk_rope_head_dim
    check_logits(softmax_scale, logit_cap)
    check_flag("causal", causal)
    check_flag("return_lse", return_lse)

    check_tensor("q", q, 4, None, None)
    batch, q_len, heads, q_dim = q.shape
    if q_dim != head_dim:
        raise ArgumentError("q.shape", tuple(q.shape), f"[batch, q_len, heads, {head_dim}]")
    if q_len < 1:
        raise ArgumentError("q.shape", tuple(q.shape), "q_len of at least 1")
    if not 1 <= heads <= MAX_HEADS:
        raise ArgumentError("q.shape", tuple(q.shape), f"1 to {MAX_HEADS} heads")
    check_last_contiguous("q", q)

    check_tensor("kv_cache", kv_cache, 3, q.dtype, q.device)
    if kv_cache.shape[1] < 1 or kv_cache.shape[2] != head_dim:
        raise ArgumentError("kv_cache.shape", tuple(kv_cache.shape), f"[num_pages, page_size >= 1, {head_dim}]")
    check_last_contiguous("kv_cache", kv_cache)
    check_tensor("page_table", page_table, 2, torch.int32, q.device)
    if page_table.shape[0] != batch:
        raise ArgumentError("page_table.shape", tuple(page_table.shape), f"[batch = {batch}, max_pages]")
    check_last_contiguous("page_table", page_table)
    check_tensor("cache_seqlens", cache_seqlens, 1, torch.int32, q.device)
    check_shape("cache_seqlens", cache_seqlens, (batch,), "[batch]")
    check_last_contiguous("cache_seqlens", cache_seqlens)

    out_shape = (batch, q_len, heads, kv_lora_rank)
    if out is not None:
        check_out(out, q, out_shape, "[batch, q_len, heads, kv_lora_rank]")
    if lse_out is not None:
        check_lse_out(lse_out, q, out_shape[:3], "[batch, q_len, heads]", return_lse)

    kv = PagedKV.from_tensor(kv_cache)
    table_tokens = page_table.shape[1] * kv.page_size
    if max_seqlen_k is not None:
        check_number("max_seqlen_k", max_seqlen_k, "None or an int of at least 0", low=0, integer=True)
    return DecodeProblem(
        batch=batch,
        q_len=q_len,
        heads=heads,
        kv_lora_rank=kv_lora_rank,
        qk_rope_head_dim=qk_rope_head_dim,
        dtype=DTYPE_NAMES[q.dtype],
        kv=kv,
        max_pages=page_table.shape[1],
        max_seqlen_k=table_tokens if max_seqlen_k is None else min(max_seqlen_k, table_tokens),
        q_strides=q.stride()[:3],
        out_strides=contiguous_strides(*out_shape) if out is None else out.stride()[:3],
        page_table_stride=page_table.stride(0),
        causal=causal,
        return_lse=return_lse,
        aligned=is_aligned(q, kv_cache, *(() if out is None else (out,))),
    )


def check_pages(page_table: torch.Tensor, cache_seqlens: torch.Tensor, num_pages: int, page_size: int) -> None:
    """Refuses a page id outside the pool where a visible key needs it. For tensors that the host can read at once."""
    first_token = torch.arange(page_table.shape[1]) * page_size
    outside = (page_table < 0) | (page_table >= num_pages)
    wrong = (outside & (first_token < cache_seqlens[:, None])).nonzero()
    if wrong.numel():
        request, slot = wrong[0].tolist()
        allowed = f"0 to {num_pages - 1}, the pool's pages" if num_pages else "nothing, for the pool has no page"
        where = f"page_table[{request}, {slot}]"
        raise ArgumentError(
            where, int(page_table[request, slot]), f"{allowed} (cache_seqlens is {cache_seqlens[request]})"
        )
