"""What a decode kernel is compiled for beside its Config: shapes and strides that the model and the pool fix."""

from __future__ import annotations

import attrs

from mla_core.problem import COPY_BYTES, fits_int32
from mla_decode.problem import DecodeProblem

FP32_BYTES = 4


@attrs.frozen(kw_only=True)
class Geometry:
    """Constants of one binary; nothing of the batch, the lengths or the page table. Strides are in elements.

    Attributes:
        heads, q_len: rows of a request are their product, folded.
        kv_lora_rank, qk_rope_head_dim: columns of the latent and of the RoPE key behind it.
        page_size, stride_page, stride_token: the pool.
        q_stride_batch, q_stride_token, q_stride_head, out_stride_batch, out_stride_token, out_stride_head: q and out.
        causal, return_lse: of the Problem.
    """

    heads: int
    q_len: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    page_size: int
    stride_page: int
    stride_token: int
    q_stride_batch: int
    q_stride_token: int
    q_stride_head: int
    out_stride_batch: int
    out_stride_token: int
    out_stride_head: int
    causal: bool
    return_lse: bool

    @property
    def rows(self) -> int:
        """Folded query rows of a request."""
        return self.heads * self.q_len

    @property
    def page_within_2gb(self) -> bool:
        """Whether a signed 32-bit byte offset reaches all of a page from its first byte."""
        return fits_int32((self.page_size, self.kv_lora_rank + self.qk_rope_head_dim), (self.stride_token, 1))

    @property
    def partial_stride(self) -> int:
        """fp32 elements between partial rows: kv_lora_rank columns, then the log-sum-exp, then padding to 16 bytes."""
        return self.kv_lora_rank + COPY_BYTES // FP32_BYTES

    @staticmethod
    def of(problem: DecodeProblem) -> Geometry:
        """The constants of `problem`. A stride along a dimension of size 1 moves nothing and becomes 0."""
        sizes = (problem.batch, problem.q_len, problem.heads)
        q = [0 if size == 1 else stride for size, stride in zip(sizes, problem.q_strides, strict=True)]
        out = [0 if size == 1 else stride for size, stride in zip(sizes, problem.out_strides, strict=True)]
        return Geometry(
            heads=problem.heads,
            q_len=problem.q_len,
            kv_lora_rank=problem.kv_lora_rank,
            qk_rope_head_dim=problem.qk_rope_head_dim,
            page_size=problem.kv.page_size,
            stride_page=problem.kv.stride_page,
            stride_token=problem.kv.stride_token,
            q_stride_batch=problem.q_strides[0],
            q_stride_token=q[1],
            q_stride_head=q[2],
            out_stride_batch=problem.out_strides[0],
            out_stride_token=out[1],
            out_stride_head=out[2],
            causal=problem.causal,
            return_lse=problem.return_lse,
        )
