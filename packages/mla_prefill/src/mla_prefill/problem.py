"""What a prefill call asks: the frozen PrefillProblem, and the validation that turns arguments into one."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import torch

from mla_core.errors import ArgumentError
from mla_core.problem import DTYPE_NAMES, contiguous_strides, fits_int32, is_aligned
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

QK_NOPE_HEAD_DIM = 128
"""Columns of q and k without position (DeepSeek-V2, arXiv:2405.04434, table of model settings)."""

QK_ROPE_HEAD_DIM = 64
"""Columns of q and k that carry RoPE (same source)."""

QK_HEAD_DIM = QK_NOPE_HEAD_DIM + QK_ROPE_HEAD_DIM

V_HEAD_DIM = 128
"""Columns of v and out (same source)."""


@attrs.frozen(kw_only=True)
class PrefillProblem:
    """Everything the host knows about one prefill call; the sequences' lengths are on the device only.

    Attributes:
        batch: sequences; cu_seqlens_q and cu_seqlens_kv have batch + 1 entries.
        total_q, total_kv: tokens of q and of k and v.
        heads, kv_heads: query heads and key heads; heads is a multiple of kv_heads.
        dtype: `bf16` or `fp16`, of q, k, v and out.
        max_seqlen_q, max_seqlen_kv: upper bounds of the lengths for scheduling; results do not depend on them.
        q_strides, k_strides, v_strides, out_strides: elements between (tokens, heads).
        is_causal: bottom-right aligned causal mask.
        return_lse: whether lse is written.
        aligned: whether q, k, v and out start at 16-byte addresses, as 128-bit and bulk copies need.
    """

    operation: ClassVar[str] = "prefill"

    batch: int
    total_q: int
    total_kv: int
    heads: int
    kv_heads: int
    dtype: str
    max_seqlen_q: int
    max_seqlen_kv: int
    q_strides: tuple[int, int]
    k_strides: tuple[int, int]
    v_strides: tuple[int, int]
    out_strides: tuple[int, int]
    is_causal: bool = True
    return_lse: bool = False
    aligned: bool = True

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.heads // self.kv_heads

    @property
    def is_empty(self) -> bool:
        """Whether there is no row to compute."""
        return self.batch == 0 or self.total_q == 0 or self.heads == 0

    @property
    def within_2gb(self) -> bool:
        """Whether a signed 32-bit byte offset reaches all of q, k, v and out."""
        views = (
            (self.total_q, self.heads, QK_HEAD_DIM, self.q_strides),
            (self.total_kv, self.kv_heads, QK_HEAD_DIM, self.k_strides),
            (self.total_kv, self.kv_heads, V_HEAD_DIM, self.v_strides),
            (self.total_q, self.heads, V_HEAD_DIM, self.out_strides),
        )
        return all(fits_int32((tokens, heads, dim), (*strides, 1)) for tokens, heads, dim, strides in views)

    @staticmethod
    def make(
        *,
        batch: int,
        seqlen: int,
        heads: int,
        kv_heads: int | None = None,
        seqlen_kv: int | None = None,
        dtype: str = "bf16",
        is_causal: bool = True,
        return_lse: bool = False,
    ) -> PrefillProblem:
        """A Problem with contiguous tensors and equal lengths, for listing, compiling and tests."""
        kv_heads = heads if kv_heads is None else kv_heads
        seqlen_kv = seqlen if seqlen_kv is None else seqlen_kv
        return PrefillProblem(
            batch=batch,
            total_q=batch * seqlen,
            total_kv=batch * seqlen_kv,
            heads=heads,
            kv_heads=kv_heads,
            dtype=dtype,
            max_seqlen_q=seqlen,
            max_seqlen_kv=seqlen_kv,
            q_strides=contiguous_strides(batch * seqlen, heads, QK_HEAD_DIM),
            k_strides=contiguous_strides(batch * seqlen_kv, kv_heads, QK_HEAD_DIM),
            v_strides=contiguous_strides(batch * seqlen_kv, kv_heads, V_HEAD_DIM),
            out_strides=contiguous_strides(batch * seqlen, heads, V_HEAD_DIM),
            is_causal=is_causal,
            return_lse=return_lse,
        )


def validate(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_kv: Any,
    *,
    max_seqlen_q: Any,
    max_seqlen_kv: Any,
    softmax_scale: Any,
    is_causal: Any,
    logit_cap: Any,
    return_lse: Any,
    out: Any,
    lse_out: Any,
) -> PrefillProblem:
    """Checks every argument of `mla_prefill`; raises ArgumentError for the first that is not allowed.

    An `out` that is None will be allocated, contiguous and aligned.
    """
    check_logits(softmax_scale, logit_cap)
    check_flag("is_causal", is_causal)
    check_flag("return_lse", return_lse)
    for name, bound in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_kv", max_seqlen_kv)):
        check_number(name, bound, "an int of at least 0", low=0, integer=True)

    check_tensor("q", q, 3, None, None)
    total_q, heads, _ = q.shape
    check_shape("q", q, (total_q, heads, QK_HEAD_DIM), f"[total_q, heads, {QK_HEAD_DIM}]")
    if heads < 1:
        raise ArgumentError("q.shape", tuple(q.shape), "at least 1 head")
    check_tensor("k", k, 3, q.dtype, q.device)
    total_kv, kv_heads, _ = k.shape
    check_shape("k", k, (total_kv, kv_heads, QK_HEAD_DIM), f"[total_kv, kv_heads, {QK_HEAD_DIM}]")
    if kv_heads < 1 or heads % kv_heads:
        raise ArgumentError("k.shape", tuple(k.shape), f"kv_heads that divide the {heads} heads of q")
    check_tensor("v", v, 3, q.dtype, q.device)
    check_shape("v", v, (total_kv, kv_heads, V_HEAD_DIM), f"[total_kv, kv_heads, {V_HEAD_DIM}]")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_last_contiguous(name, tensor)

    check_tensor("cu_seqlens_q", cu_seqlens_q, 1, torch.int32, q.device)
    if cu_seqlens_q.shape[0] < 1:
        raise ArgumentError("cu_seqlens_q.shape", tuple(cu_seqlens_q.shape), "[batch + 1]")
    batch = cu_seqlens_q.shape[0] - 1
    check_tensor("cu_seqlens_kv", cu_seqlens_kv, 1, torch.int32, q.device)
    check_shape("cu_seqlens_kv", cu_seqlens_kv, (batch + 1,), "[batch + 1], as cu_seqlens_q")
    for name, tensor in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_kv", cu_seqlens_kv)):
        check_last_contiguous(name, tensor)

    out_shape = (total_q, heads, V_HEAD_DIM)
    if out is not None:
        check_out(out, q, out_shape, f"[total_q, heads, {V_HEAD_DIM}]")
    if lse_out is not None:
        check_lse_out(lse_out, q, out_shape[:2], "[total_q, heads]", return_lse)

    return PrefillProblem(
        batch=batch,
        total_q=total_q,
        total_kv=total_kv,
        heads=heads,
        kv_heads=kv_heads,
        dtype=DTYPE_NAMES[q.dtype],
        max_seqlen_q=min(max_seqlen_q, total_q),
        max_seqlen_kv=min(max_seqlen_kv, total_kv),
        q_strides=q.stride()[:2],
        k_strides=k.stride()[:2],
        v_strides=v.stride()[:2],
        out_strides=contiguous_strides(*out_shape) if out is None else out.stride()[:2],
        is_causal=is_causal,
        return_lse=return_lse,
        aligned=is_aligned(q, k, v, *(() if out is None else (out,))),
    )
