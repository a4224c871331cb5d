"""The Hopper decode Program: what follows from (DecodeProblem, Target, HopperDecodeConfig), and the launch."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from mla_core.compile import KernelSpec
from mla_core.problem import MAX_INT32
from mla_core.stages.triton_softmax import split_scale
from mla_core.target import Target
from mla_decode.hopper import narrow, wide
from mla_decode.hopper.config import BLOCK_N, HopperDecodeConfig
from mla_decode.hopper.geometry import Geometry
from mla_decode.hopper.launcher import LAYOUT, Launcher, View
from mla_decode.hopper.planner import PLANNER_WARPS, REQUEST_CHUNK, plan_decode
from mla_decode.plan import DecodePlan
from mla_decode.problem import KV_LORA_RANK, QK_ROPE_HEAD_DIM, DecodeProblem

WARPS = 4
"""Warps that the main kernels start with: one warpgroup; the other partitions add theirs."""

PLANNER_MARGIN = 256
"""Blocks that bound what a request or a part takes besides its keys in the planner's sums."""

PIECE = 128
"""Latent columns that one bulk copy brings."""

OPTIONS = {"num_warps": WARPS, "launch_cooperative_grid": True}
"""The parts of a request wait for each other before they merge: all must be running, which a cooperative launch ensures."""


class HopperDecodeProgram:
    """Two kernels: the planner cuts the batch into equal parts, the main kernel computes and merges them."""

    def __init__(self, problem: DecodeProblem, target: Target, config: HopperDecodeConfig) -> None:
        self.problem, self.target, self.config = problem, target, config
        self.geometry = Geometry.of(problem, config.block_m, target.compute_units)
        head_dim, kv = problem.head_dim, problem.kv
        self.pool = View((kv.num_pages, kv.page_size, head_dim), kv.stride_page, kv.stride_token)
        request, token, head = problem.q_strides
        head = head if problem.heads > 1 else token if problem.q_len > 1 else head_dim
        self.q_copied = problem.q_len > 1 and problem.heads > 1 and token != problem.heads * head
        if self.q_copied:
            request, head = problem.rows * head_dim, head_dim
        self.q = View((problem.batch, problem.rows, head_dim), request, head)
        self.grid = (self.geometry.parts * self.geometry.row_tiles, 1, 1)
        self.max_tokens = min(problem.max_kv_tokens, MAX_INT32 - BLOCK_N)
        parts = self.geometry.parts
        self.plan_constants = {
            "GEOMETRY": self.geometry,
            "ITEM_COST": config.item_cost,
            "MIN_BLOCKS": config.min_blocks,
            "PARTS": 1 << parts.bit_length(),
            "STEPS": parts.bit_length(),
            "CHUNK": REQUEST_CHUNK,
            "LONG": (problem.batch + parts) * (self.max_tokens // BLOCK_N + PLANNER_MARGIN) > MAX_INT32 // 100,
        }
        self._plan = Launcher(plan_decode, (1, 1, 1), self.plan_constants, {"num_warps": PLANNER_WARPS})
        self.fn = narrow.decode_narrow if config.regime == "narrow" else wide.decode_wide
        self._decode = {
            negate: Launcher(self.fn, self.grid, self._constants(negate), OPTIONS) for negate in (False, True)
        }

    def _constants(self, negate: bool) -> dict[str, Any]:
        constants: dict[str, Any] = {"GEOMETRY": self.geometry, "NEGATE": negate}
        if self.config.regime == "wide":
            constants |= {"SOFTMAX_REGS": wide.SOFTMAX_REGISTERS, "OUTPUT_REGS": wide.OUTPUT_REGISTERS}
        return constants

    @property
    def plan_key(self) -> tuple[Any, ...]:
        """What a plan depends on besides the lengths; equal keys mean that a plan may be shared."""
        return (
            "hopper",
            self.problem.batch,
            self.max_tokens,
            self.geometry.parts,
            self.geometry.row_tiles,
            self.config,
        )

    def make_plan(self, device: torch.device) -> DecodePlan:
        """An unfilled plan: its size depends on the batch and the machine, not on lengths."""
        words = torch.empty(self.geometry.tokens_at + self.problem.batch, dtype=torch.int32, device=device)
        scratch = torch.empty(self.geometry.scratch_rows * (KV_LORA_RANK + 1), dtype=torch.float32, device=device)
        return DecodePlan(key=self.plan_key, words=words, scratch=scratch)

    def fill_plan(self, plan: DecodePlan, cache_seqlens: torch.Tensor) -> None:
        """Enqueues the planner, which fills `plan` in place."""
        with _on_device(cache_seqlens):
            self._plan(cache_seqlens, plan.words, self.problem.batch, self.max_tokens)

    def launch(
        self,
        q: torch.Tensor,
        kv_cache: torch.Tensor,
        page_table: torch.Tensor,
        cache_seqlens: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor | None,
        softmax_scale: float,
        plan: DecodePlan | None = None,
    ) -> None:
        """Writes out and, where given, lse. Without a plan, makes one. Never waits for the device."""
        if plan is None:
            plan = self.make_plan(q.device)
            self.fill_plan(plan, cache_seqlens)
        if self.q_copied:
            q = q.contiguous()
        scale_log2, negate = split_scale(softmax_scale)
        block_m = self.config.block_m
        with _on_device(q):
            self._decode[negate](
                self.q.describe(q, block_m, PIECE),
                self.q.describe(q, block_m, QK_ROPE_HEAD_DIM),
                self.pool.describe(kv_cache, BLOCK_N, PIECE),
                self.pool.describe(kv_cache, BLOCK_N, QK_ROPE_HEAD_DIM),
                page_table,
                page_table.stride(0),
                plan.words,
                out,
                plan.scratch if lse is None else lse,
                plan.scratch,
                scale_log2,
                0,
            )

    def kernels(self) -> list[KernelSpec]:
        """What `launch` enqueues, with a positive softmax_scale."""
        element, block_m = self.problem.dtype, self.config.block_m
        boxes = {
            "q_desc": (block_m, PIECE),
            "q_rope_desc": (block_m, QK_ROPE_HEAD_DIM),
            "piece_desc": (BLOCK_N, PIECE),
            "rope_desc": (BLOCK_N, QK_ROPE_HEAD_DIM),
        }
        signature = {
            name: f"tensordesc<{element}[1,{rows},{columns}],{LAYOUT!r}>" for name, (rows, columns) in boxes.items()
        }
        signature |= {
            "page_table_ptr": "*i32",
            "page_table_stride": "i32",
            "plan_ptr": "*i32",
            "out_ptr": f"*{element}",
        }
        signature |= {"lse_ptr": "*fp32", "scratch_ptr": "*fp32", "scale_log2": "fp32", "zero": "i32"}
        return [
            KernelSpec(
                name="plan_decode",
                fn=plan_decode,
                signature={"seqlens_ptr": "*i32", "plan_ptr": "*i32", "batch": "i32", "max_tokens": "i32"},
                constexprs=self.plan_constants,
                divisible=("plan_ptr",),
                num_warps=PLANNER_WARPS,
            ),
            KernelSpec(
                name=f"decode_{self.config.regime}",
                fn=self.fn,
                signature=signature,
                constexprs=self._constants(False),
                divisible=("plan_ptr", "out_ptr", "scratch_ptr"),
                num_warps=WARPS,
                options={"launch_cooperative_grid": True},
            ),
        ]


def _on_device(tensor: torch.Tensor) -> contextlib.AbstractContextManager[Any]:
    """Makes the tensor's GPU the current one, which Triton launches on, where it is not."""
    if tensor.is_cuda and tensor.device.index != torch.cuda.current_device():
        return torch.cuda.device(tensor.device)
    return contextlib.nullcontext()
