"""Merge of the partial results of KV splits, shared by every decode solution that splits.

Scratch layout, fp32, contiguous (`SplitMerge.scratch` allocates it):

    partial_out  [batch, num_splits, rows, kv_lora_rank]   softmax-normalised within the split
    partial_lse  [batch, num_splits, rows]                 natural log-sum-exp of the split's scaled logits

with rows = q_len x heads, token-major. Every split writes its partial_lse. Where it is -inf the split saw no key of
the row, and its partial_out is neither read nor multiplied: it may hold anything, NaN included.

For each row, with m the largest partial_lse:

    weight_s = exp(lse_s - m);  out = sum_s weight_s out_s / sum_s weight_s;  lse = m + log(sum_s weight_s)

A row whose partial_lse are all -inf gets out 0 and lse -inf.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch
import triton
import triton.language as tl

from mla_core.compile import KernelSpec
from mla_core.stages.interpreted import round_to
from mla_decode.problem import DecodeProblem

SPLIT_TILES = (2, 8, 32, 128)
"""Splits that a tile spans: the smallest that holds all splits is used, so that few binaries serve every batch."""

MAX_SPLITS = SPLIT_TILES[-1]
"""Most splits that can be merged."""

TILE_ELEMENTS = 8192
"""fp32 elements of a tile, at most: 64 registers in each of 128 lanes."""

NUM_WARPS = 4


@triton.jit(do_not_specialize=["num_splits"])
def merge_kernel(
    partial_out_ptr,
    partial_lse_ptr,
    out_ptr,
    lse_ptr,
    num_splits,
    rows: tl.constexpr,
    heads: tl.constexpr,
    out_stride_request: tl.constexpr,
    out_stride_token: tl.constexpr,
    out_stride_head: tl.constexpr,
    columns: tl.constexpr,
    split_tile: tl.constexpr,
    column_tile: tl.constexpr,
    interpreted: tl.constexpr,
):
    """One row and `column_tile` of its columns; all splits are loaded at once. Grid (batch * rows, column tiles)."""
    request = (tl.program_id(0) // rows).to(tl.int64)
    row = tl.program_id(0) % rows
    split = tl.arange(0, split_tile)
    column = tl.program_id(1) * column_tile + tl.arange(0, column_tile)

    slot = (request * num_splits + split) * rows + row
    lse = tl.load(partial_lse_ptr + slot, mask=split < num_splits, other=float("-inf"))
    filled = lse != float("-inf")
    partial = tl.load(partial_out_ptr + slot[:, None] * columns + column[None, :], mask=filled[:, None], other=0.0)

    largest = tl.max(lse, axis=0)
    empty = largest == float("-inf")
    weight = tl.where(filled, tl.exp(lse - tl.where(empty, 0.0, largest)), 0.0)
    total = tl.sum(weight, axis=0)
    divisor = tl.where(empty, 1.0, total)
    out = tl.sum(tl.where(filled[:, None], weight[:, None] * partial, 0.0), axis=0) / divisor

    token = row // heads
    head = row % heads
    base = request * out_stride_request + token.to(tl.int64) * out_stride_token + head.to(tl.int64) * out_stride_head
    tl.store(out_ptr + base + column, round_to(out, out_ptr.dtype.element_ty, interpreted))
    if lse_ptr is not None:
        merged = tl.where(empty, float("-inf"), largest + tl.log(divisor))
        tl.store(lse_ptr + request * rows + row, merged, mask=tl.program_id(1) == 0)


@attrs.frozen
class SplitMerge:
    """The merge of one decode Problem whose KV is split `num_splits` ways, 2 to MAX_SPLITS.

    `interpreted` says that Triton's interpreter runs it.
    """

    problem: DecodeProblem
    num_splits: int = attrs.field(validator=[attrs.validators.ge(2), attrs.validators.le(MAX_SPLITS)])
    interpreted: bool = False

    @property
    def split_tile(self) -> int:
        """Splits of a tile, those beyond `num_splits` masked."""
        return next(tile for tile in SPLIT_TILES if tile >= self.num_splits)

    @property
    def column_tile(self) -> int:
        """Columns of a tile."""
        return min(self.problem.kv_lora_rank, TILE_ELEMENTS // self.split_tile)

    def scratch(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Uninitialised (partial_out, partial_lse) in the layout above."""
        shape = (self.problem.batch, self.num_splits, self.problem.rows)
        return (
            torch.empty((*shape, self.problem.kv_lora_rank), dtype=torch.float32, device=device),
            torch.empty(shape, dtype=torch.float32, device=device),
        )

    def launch(
        self, partial_out: torch.Tensor, partial_lse: torch.Tensor, out: torch.Tensor, lse: torch.Tensor | None
    ) -> None:
        """Enqueues the merge into out `[batch, q_len, heads, kv_lora_rank]` and, where given, lse."""
        problem = self.problem
        grid = (problem.batch * problem.rows, problem.kv_lora_rank // self.column_tile)
        merge_kernel[grid](
            partial_out, partial_lse, out, lse, self.num_splits, **self._constexprs(), num_warps=NUM_WARPS
        )  # fmt: skip

    def kernels(self) -> list[KernelSpec]:
        """The merge kernel as a compiler needs it."""
        problem = self.problem
        signature = {
            "partial_out_ptr": "*fp32",
            "partial_lse_ptr": "*fp32",
            "out_ptr": f"*{problem.dtype}",
            "lse_ptr": "*fp32",
            "num_splits": "i32",
        }
        constexprs = self._constexprs()
        if not problem.return_lse:
            del signature["lse_ptr"]
            constexprs["lse_ptr"] = None
        return [
            KernelSpec(
                name=f"merge_{self.split_tile}",
                fn=merge_kernel,
                signature=signature,
                constexprs=constexprs,
                divisible=("partial_out_ptr", "partial_lse_ptr", *(("out_ptr",) if problem.aligned else ())),
                num_warps=NUM_WARPS,
            )
        ]

    def _constexprs(self) -> dict[str, Any]:
        problem = self.problem
        request, token, head = problem.out_strides
        return {
            "rows": problem.rows,
            "heads": problem.heads,
            "out_stride_request": request,
            "out_stride_token": token,
            "out_stride_head": head,
            "columns": problem.kv_lora_rank,
            "split_tile": self.split_tile,
            "column_tile": self.column_tile,
            "interpreted": self.interpreted,
        }
