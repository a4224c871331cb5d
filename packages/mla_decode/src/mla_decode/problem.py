"""What a decode call asks: the frozen DecodeProblem, and the validation that turns arguments into one."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import torch

from mla_core.errors import ArgumentError
from mla_core.problem import DTYPE_NAMES, PagedKV, check_head_dim, fits_int32, is_aligned
from mla_core.validation import (
    check_disjoint,
    check_last_contiguous,
    check_number,
    check_shape,
    check_tensor,
    check_writable,
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

    @property
    def q_within_2gb(self) -> bool:
        """Whether a signed 32-bit byte offset reaches all of q and of out."""
        shape = (self.batch, self.q_len, self.heads)
        return fits_int32((*shape, self.head_dim), (*self.q_strides, 1)) and fits_int32(
            (*shape, self.kv_lora_rank), (*self.out_strides, 1)
        )

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
            q_strides=(q_len * heads * head_dim, heads * head_dim, head_dim),
            out_strides=(q_len * heads * KV_LORA_RANK, heads * KV_LORA_RANK, KV_LORA_RANK),
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
) -> tuple[DecodeProblem, torch.Tensor]:
    """Checks every argument of `mla_decode_with_kvcache`; raises ArgumentError for the first that is not allowed.

    `kv_cache` has three dimensions here (`pool_view`). Returns the Problem and what to write: `out` or a new tensor.
    """
    check_head_dim("kv_lora_rank", kv_lora_rank, KV_LORA_RANK)
    check_head_dim("qk_rope_head_dim", qk_rope_head_dim, QK_ROPE_HEAD_DIM)
    head_dim = kv_lora_rank + qk_rope_head_dim
    check_number("softmax_scale", softmax_scale, "a finite number")
    check_number("logit_cap", logit_cap, "0.0 (capping is not implemented)")
    if logit_cap != 0:
        raise ArgumentError("logit_cap", logit_cap, "0.0 (capping is not implemented)")
    for name, flag in (("causal", causal), ("return_lse", return_lse)):
        if not isinstance(flag, bool):
            raise ArgumentError(name, repr(flag), "True or False")

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

    if out is None:
        out = q.new_empty((batch, q_len, heads, kv_lora_rank))
    check_tensor("out", out, 4, q.dtype, q.device)
    check_shape("out", out, (batch, q_len, heads, kv_lora_rank), "[batch, q_len, heads, kv_lora_rank]")
    check_last_contiguous("out", out)
    check_writable("out", out)
    if lse_out is not None:
        if not return_lse:
            raise ArgumentError("lse_out", "a tensor", "None where return_lse is False")
        check_tensor("lse_out", lse_out, 3, torch.float32, q.device)
        check_shape("lse_out", lse_out, (batch, q_len, heads), "[batch, q_len, heads]")
        if not lse_out.is_contiguous():
            raise ArgumentError("lse_out.stride()", tuple(lse_out.stride()), "contiguous strides")

    kv = PagedKV.from_tensor(kv_cache)
    table_tokens = page_table.shape[1] * kv.page_size
    if max_seqlen_k is not None:
        check_number("max_seqlen_k", max_seqlen_k, "None or an int of at least 0", low=0, integer=True)
    problem = DecodeProblem(
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
        out_strides=out.stride()[:3],
        page_table_stride=page_table.stride(0),
        causal=causal,
        return_lse=return_lse,
        aligned=is_aligned(q, kv_cache, out),
    )
    return problem, out


def check_outputs(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    page_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    out: torch.Tensor | None,
    lse_out: torch.Tensor | None,
) -> None:
    """Refuses outputs that overlap an input or each other in memory."""
    others = {"q": q, "kv_cache": kv_cache, "page_table": page_table, "cache_seqlens": cache_seqlens}
    if out is not None:
        check_disjoint("out", out, others)
        others["out"] = out
    if lse_out is not None:
        check_disjoint("lse_out", lse_out, others)


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
