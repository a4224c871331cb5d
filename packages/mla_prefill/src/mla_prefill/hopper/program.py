"""The Hopper prefill Program: what follows from (PrefillProblem, Target, HopperPrefillConfig), and the launch."""

from __future__ import annotations

from typing import Any

import attrs
import torch
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from mla_core.compile import KernelSpec
from mla_core.layouts import wgmma
from mla_core.stages.triton_softmax import split_scale
from mla_core.target import Target
from mla_prefill.hopper import schedule
from mla_prefill.hopper.config import BLOCK_M, BLOCK_N, CONSUMERS, HopperPrefillConfig
from mla_prefill.hopper.geometry import Geometry, RowView
from mla_prefill.hopper.pipeline import mla_prefill_hopper
from mla_prefill.hopper.planner import plan_tiles, table_shape
from mla_prefill.plan import PrefillPlan
from mla_prefill.problem import QK_NOPE_HEAD_DIM, QK_ROPE_HEAD_DIM, V_HEAD_DIM, PrefillProblem

RECORDS = 256
"""Records that a planner program writes in one step."""

SEQUENCES = 256
"""Sequences that a planner program looks at in one step."""

WARPS = 4
"""Warps of a planner program, and of the warpgroup that the main kernel starts with."""


def describe(view: RowView, tensor: torch.Tensor, box: tuple[int, int]) -> TensorDescriptor:
    """The descriptor of `tensor` for bulk copies of boxes `[rows, columns]`."""
    return TensorDescriptor(tensor, [view.rows, view.columns], [view.row_stride, 1], list(box), wgmma.swizzled_tile())


class HopperPrefillProgram:
    """Two kernels: the planner orders the tiles, the persistent kernel computes them and starts beside it."""

    def __init__(self, problem: PrefillProblem, target: Target, config: HopperPrefillConfig) -> None:
        self.problem, self.target, self.config = problem, target, config
        self.views = RowView.of_problem(problem)
        self.geometry = Geometry.of(problem)
        q_rows = BLOCK_M // CONSUMERS
        self.boxes = {
            "q_nope_desc": (q_rows, QK_NOPE_HEAD_DIM),
            "q_rope_desc": (q_rows, QK_ROPE_HEAD_DIM),
            "k_nope_desc": (BLOCK_N, QK_NOPE_HEAD_DIM),
            "k_rope_desc": (BLOCK_N, QK_ROPE_HEAD_DIM),
            "v_desc": (BLOCK_N, V_HEAD_DIM),
        }
        self.table_shape = table_shape(problem.total_q, problem.batch, problem.heads, BLOCK_M)
        self.grid = (min(target.compute_units, self.table_shape[0] - 2),)
        records = -(-problem.max_seqlen_q // BLOCK_M) * problem.heads
        programs = max(1, 8 * target.compute_units // problem.batch)
        self.plan_grid = (problem.batch, min(max(1, -(-records // RECORDS)), programs))
        self.section_tokens = schedule.section_tokens(target)
        self.tail_blocks = schedule.tail_blocks(problem, target, BLOCK_N)
        self.plan_constants = {
            "HEADS": problem.heads,
            "KV_HEADS": problem.kv_heads,
            "IS_CAUSAL": problem.is_causal,
            "BLOCK_M": BLOCK_M,
            "BLOCK_N": BLOCK_N,
            "SEQUENCES": SEQUENCES,
            "RECORDS": RECORDS,
        }

    @property
    def plan_key(self) -> tuple[Any, ...]:
        """What a plan depends on besides the lengths; equal keys mean that a plan may be shared."""
        problem = self.problem
        return ("hopper", problem.batch, self.table_shape, problem.heads, problem.kv_heads, problem.is_causal)

    def make_plan(self, device: torch.device) -> PrefillPlan:
        """An unfilled plan: its size depends on the batch and the tokens in all, not on the lengths."""
        return PrefillPlan(key=self.plan_key, words=torch.empty(self.table_shape, dtype=torch.int32, device=device))

    def fill_plan(self, plan: PrefillPlan, cu_seqlens_q: torch.Tensor, cu_seqlens_kv: torch.Tensor) -> None:
        """Enqueues the planner, which fills `plan` in place."""
        plan_tiles[self.plan_grid](
            plan.words, cu_seqlens_q, cu_seqlens_kv, self.problem.batch, self.section_tokens, self.tail_blocks,
            **self.plan_constants, num_warps=WARPS,
        )  # fmt: skip

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
        plan: PrefillPlan | None = None,
    ) -> None:
        """Writes out and, where given, lse, in rows that belong to a sequence. Without a plan, makes one.

        Never waits for the device. The main kernel waits for all earlier work of the stream by itself, and is launched
        before that has ended (programmatic dependent launch).
        """
        if plan is None:
            plan = self.make_plan(q.device)
            self.fill_plan(plan, cu_seqlens_q, cu_seqlens_kv)
        scale_log2, negate = split_scale(softmax_scale)
        tensors = {"q": q, "k": k, "v": v}
        described = [(self.views[name[0]], tensors[name[0]], box) for name, box in self.boxes.items()]
        mla_prefill_hopper[self.grid](
            *(describe(view, tensor, box) for view, tensor, box in described),
            out, lse, plan.words, scale_log2,
            cfg=self.config, geo=attrs.evolve(self.geometry, negate=negate), num_warps=WARPS, launch_pdl=True,
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
        constants: dict[str, Any] = {"cfg": self.config, "geo": self.geometry}
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
