"""The Hopper prefill Program: what follows from (PrefillProblem, Target, HopperPrefillConfig), and the launch."""

from __future__ import annotations

from typing import Any

import attrs
import torch
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from mla_core.compile import KernelSpec
from mla_core.layouts import wgmma
from mla_core.problem import COPY_BYTES, ELEMENT_BYTES
from mla_core.stages.triton_softmax import split_scale
from mla_core.target import Target
from mla_prefill.hopper import schedule
from mla_prefill.hopper.config import HopperPrefillConfig
from mla_prefill.hopper.pipeline import mla_prefill_hopper
from mla_prefill.hopper.planner import plan_tiles, table_shape
from mla_prefill.problem import QK_HEAD_DIM, QK_NOPE_HEAD_DIM, QK_ROPE_HEAD_DIM, V_HEAD_DIM, PrefillProblem

RECORDS = 256
"""Records that a planner program writes in one step."""

SEQUENCES = 256
"""Sequences that a planner program looks at in one step."""

WARPS = 4
"""Warps of a planner program, and of the warpgroup that the main kernel starts with."""


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

    def describe(self, tensor: torch.Tensor, box: tuple[int, int]) -> TensorDescriptor:
        """The descriptor of `tensor` for bulk copies of boxes `[rows, columns]`."""
        return TensorDescriptor(
            tensor, [self.rows, self.columns], [self.row_stride, 1], list(box), wgmma.swizzled_tile()
        )


class HopperPrefillProgram:
    """Two kernels: the planner orders the tiles, the persistent kernel computes them and starts beside it."""

    def __init__(self, problem: PrefillProblem, target: Target, config: HopperPrefillConfig) -> None:
        self.problem, self.target, self.config = problem, target, config
        self.q = RowView.of(problem.total_q, problem.heads, QK_HEAD_DIM, problem.q_strides)
        self.k = RowView.of(problem.total_kv, problem.kv_heads, QK_HEAD_DIM, problem.k_strides)
        self.v = RowView.of(problem.total_kv, problem.kv_heads, V_HEAD_DIM, problem.v_strides)
        q_rows = config.block_m // 2
        self.boxes = {
            "q_nope_desc": (q_rows, QK_NOPE_HEAD_DIM),
            "q_rope_desc": (q_rows, QK_ROPE_HEAD_DIM),
            "k_nope_desc": (config.block_n, QK_NOPE_HEAD_DIM),
            "k_rope_desc": (config.block_n, QK_ROPE_HEAD_DIM),
            "v_desc": (config.block_n, V_HEAD_DIM),
        }
        self.table_shape = table_shape(problem.total_q, problem.batch, problem.heads, config.block_m)
        self.grid = (min(target.compute_units, self.table_shape[0] - 2),)
        records = -(-problem.max_seqlen_q // config.block_m) * problem.heads
        programs = max(1, 8 * target.compute_units // problem.batch)
        self.plan_grid = (problem.batch, min(max(1, -(-records // RECORDS)), programs))
        self.section_tokens = schedule.section_tokens(target)
        self.tail_blocks = schedule.tail_blocks(problem, target, config.block_n)
        self.plan_constants = {
            "HEADS": problem.heads,
            "KV_HEADS": problem.kv_heads,
            "IS_CAUSAL": problem.is_causal,
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "SEQUENCES": SEQUENCES,
            "RECORDS": RECORDS,
        }
        self.constants = {
            "cfg": config,
            "HEADS": problem.heads,
            "GROUP": problem.group,
            "Q_HEAD_STRIDE": self.q.head_stride,
            "K_HEAD_STRIDE": self.k.head_stride,
            "V_HEAD_STRIDE": self.v.head_stride,
            "OUT_TOKEN_STRIDE": problem.out_strides[0],
            "OUT_HEAD_STRIDE": problem.out_strides[1],
            "IS_CAUSAL": problem.is_causal,
            "RETURN_LSE": problem.return_lse,
        }

    def launch(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens_q: torch.Tensor,
        cu_seqlens_kv: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor | None,
        softmax_scale: float,
    ) -> None:
        """Writes out and, where given, lse, in rows that belong to a sequence. Never waits for the device."""
        scale_log2, negate = split_scale(softmax_scale)
        table = torch.empty(self.table_shape, dtype=torch.int32, device=q.device)
        plan_tiles[self.plan_grid](
            table, cu_seqlens_q, cu_seqlens_kv, self.problem.batch, self.section_tokens, self.tail_blocks,
            **self.plan_constants, num_warps=WARPS,
        )  # fmt: skip
        mla_prefill_hopper[self.grid](
            self.q.describe(q, self.boxes["q_nope_desc"]),
            self.q.describe(q, self.boxes["q_rope_desc"]),
            self.k.describe(k, self.boxes["k_nope_desc"]),
            self.k.describe(k, self.boxes["k_rope_desc"]),
            self.v.describe(v, self.boxes["v_desc"]),
            out, lse, table, scale_log2, **self.constants, NEGATE=negate, num_warps=WARPS, launch_pdl=True,
        )  # fmt: skip

    def kernels(self) -> list[KernelSpec]:
        """What `launch` enqueues, with a positive softmax_scale."""
        element = self.problem.dtype
        layout = wgmma.swizzled_tile()
        signature: dict[str, Any] = {
            name: f"tensordesc<{element}{list(box)},{layout!r}>" for name, box in self.boxes.items()
        }
        signature |= {
            "out_ptr": f"*{element}",
            "lse_ptr": "*fp32",
            "table_ptr": "*i32",
            "scale_log2": "fp32",
        }
        constants: dict[str, Any] = {**self.constants, "NEGATE": False}
        if not self.problem.return_lse:
            constants["lse_ptr"] = None
            del signature["lse_ptr"]
        pointers = tuple(name for name in ("out_ptr", "lse_ptr", "table_ptr") if name in signature)
        return [
            KernelSpec(
                name="plan_tiles",
                fn=plan_tiles,
                signature={
                    "table_ptr": "*i32",
                    "cu_seqlens_q_ptr": "*i32",
                    "cu_seqlens_kv_ptr": "*i32",
                    "batch": "i32",
                    "section_tokens": "i32",
                    "tail_blocks": "i32",
                },
                constexprs=self.plan_constants,
                divisible=("table_ptr",),
                num_warps=WARPS,
            ),
            KernelSpec(
                name="mla_prefill_hopper",
                fn=mla_prefill_hopper,
                signature=signature,
                constexprs=constants,
                divisible=pointers,
                num_warps=WARPS,
                options={"launch_pdl": True},
            ),
        ]
