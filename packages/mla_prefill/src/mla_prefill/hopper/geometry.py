"""What of a prefill problem is built into the Hopper kernel. Imports no Triton."""

from __future__ import annotations

import attrs

from mla_core.problem import COPY_BYTES, ELEMENT_BYTES
from mla_prefill.problem import QK_HEAD_DIM, V_HEAD_DIM, PrefillProblem


@attrs.frozen
class RowView:
    """A tensor `[tokens, heads, dim]` as the bulk copy sees it: rows of all heads' columns, which may overlap.

    Attributes:
        rows, columns: extent; row_stride: elements between rows; head_stride: columns between heads.
    """

    rows: int
    columns: int
    row_stride: int
    head_stride: int

    @staticmethod
    def of(tokens: int, heads: int, dim: int, strides: tuple[int, int]) -> RowView:
        """Strides of dimensions of size 1 mean nothing and are replaced."""
        head_stride = strides[1] if heads > 1 else 0
        columns = (heads - 1) * head_stride + dim
        alignment = COPY_BYTES // ELEMENT_BYTES
        row_stride = strides[0] if tokens > 1 else -(-columns // alignment) * alignment
        return RowView(tokens, columns, row_stride, head_stride)

    @staticmethod
    def of_problem(problem: PrefillProblem) -> dict[str, RowView]:
        """Views of q, k and v."""
        return {
            "q": RowView.of(problem.total_q, problem.heads, QK_HEAD_DIM, problem.q_strides),
            "k": RowView.of(problem.total_kv, problem.kv_heads, QK_HEAD_DIM, problem.k_strides),
            "v": RowView.of(problem.total_kv, problem.kv_heads, V_HEAD_DIM, problem.v_strides),
        }


@attrs.frozen(kw_only=True)
class Geometry:
    """One constexpr argument of the kernel, beside its Config: nothing in it changes with the batch or the lengths.

    Attributes:
        heads: query heads; group: query heads that share a key head.
        q_head_stride, k_head_stride, v_head_stride: columns between heads, as in `RowView`.
        out_token_stride, out_head_stride: elements.
        is_causal: bottom-right aligned mask; return_lse: whether lse is written.
        negate: softmax_scale is negative; the scores are negated instead.
    """

    heads: int
    group: int
    q_head_stride: int
    k_head_stride: int
    v_head_stride: int
    out_token_stride: int
    out_head_stride: int
    is_causal: bool
    return_lse: bool
    negate: bool = False

    @staticmethod
    def of(problem: PrefillProblem) -> Geometry:
        """The geometry of a problem with a positive softmax_scale."""
        views = RowView.of_problem(problem)
        return Geometry(
            heads=problem.heads,
            group=problem.group,
            q_head_stride=views["q"].head_stride,
            k_head_stride=views["k"].head_stride,
            v_head_stride=views["v"].head_stride,
            out_token_stride=problem.out_strides[0],
            out_head_stride=problem.out_strides[1],
            is_causal=problem.is_causal,
            return_lse=problem.return_lse,
        )
