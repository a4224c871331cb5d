"""From (Problem, Target, Config) to everything a launch needs: constants, grid, scratch, arguments."""

from __future__ import annotations

import math
from typing import Any

import torch

from mla_core.compile import KernelSpec
from mla_core.errors import ConfigError
from mla_core.problem import MAX_INT32
from mla_core.target import Target
from mla_decode.cdna4 import schedule
from mla_decode.cdna4.config import CDNA4DecodeConfig
from mla_decode.cdna4.geometry import Geometry
from mla_decode.cdna4.kernel import decode
from mla_decode.cdna4.merge import MERGE_WARPS, merge
from mla_decode.problem import DecodeProblem

ROWS_PER_MERGE = 4
"""Rows that a merge workgroup takes one after another, so that large batches do not launch a workgroup a row."""

MAX_TOKENS = MAX_INT32 - 2**16
"""Longest sequence: leaves room for the kernel to round positions up to whole steps in 32 bits."""


class CDNA4DecodeProgram:
    """Builds and launches the gfx950 decode kernel and, where sequences can be cut, the merge of partial results.

    Raises ConfigError where the Config contradicts the Problem: a page id that would serve tokens of another page, or
    32-bit offsets that would overflow.
    """

    def __init__(self, problem: DecodeProblem, target: Target, config: CDNA4DecodeConfig) -> None:
        widest = ("page_per_token", "page_per_wave", "page_per_tile")
        allowed = widest[: widest.index(schedule.choose_paging(problem.kv.page_size)) + 1]
        if config.paging not in allowed:
            raise ConfigError("paging", config.paging, f"{' or '.join(allowed)} for page size {problem.kv.page_size}")
        if config.within_2gb and not schedule.offsets_fit(problem, config.paging):
            raise ConfigError("within_2gb", True, f"False: the pool spans {problem.kv.max_byte_offset + 1} bytes")
        self.problem, self.target, self.config = problem, target, config
        self.geometry = Geometry.of(problem)
        self.row_blocks = schedule.row_blocks(problem, config)
        self.slots = schedule.slots(problem, target, config)
        self.items = schedule.scratch_items(problem, target, config)
        # See `partials`: the item ranges, rounded up to 16 bytes, then the partial rows.
        self.scratch_elements = (
            -(-2 * problem.batch // 4) * 4 + self.items * problem.rows * self.geometry.partial_stride
        )
        self.grid = (target.xcds, self.row_blocks, self.slots // target.xcds)
        self.merge_grid = (-(-problem.rows // ROWS_PER_MERGE), problem.batch)

    def launch(
        self,
        q: torch.Tensor,
        kv_cache: torch.Tensor,
        page_table: torch.Tensor,
        cache_seqlens: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor | None,
        softmax_scale: float,
    ) -> None:
        """Enqueues one or two kernels on the current stream; scratch is allocated from torch's pool."""
        problem, geometry = self.problem, self.geometry
        scratch = torch.empty((self.scratch_elements,), dtype=torch.float32, device=q.device)
        decode[self.grid](
            q,
            kv_cache,
            page_table,
            cache_seqlens,
            out,
            lse,
            scratch,
            problem.batch,
            min(problem.max_kv_tokens, MAX_TOKENS),
            page_table.stride(0),
            softmax_scale * math.log2(math.e),
            cfg=self.config,
            geo=geometry,
            num_warps=self.config.num_warps,
            **self.config.options,
        )
        if self.items:
            merge[self.merge_grid](
                scratch,
                problem.batch,
                out,
                lse,
                ROWS_PER_MERGE,
                geo=geometry,
                num_warps=MERGE_WARPS,
            )

    def kernels(self) -> list[KernelSpec]:
        """The decode kernel and, where sequences can be cut, the merge."""
        element = f"*{self.problem.dtype}"
        shared = {"out": element, "lse": "*fp32", "scratch": "*fp32", "batch": "i32"}
        constants: dict[str, Any] = {"geo": self.geometry}
        if not self.problem.return_lse:
            del shared["lse"]
            constants["lse"] = None
        specs = [
            KernelSpec(
                name=f"decode_{self.config.regime}",
                fn=decode,
                signature={
                    "q": element,
                    "kv_cache": element,
                    "page_table": "*i32",
                    "cache_seqlens": "*i32",
                    "max_tokens": "i32",
                    "page_table_stride": "i32",
                    "scale_log2": "fp32",
                    **shared,
                },
                constexprs={"cfg": self.config, **constants},
                divisible=("q", "kv_cache", "out", "scratch"),
                num_warps=self.config.num_warps,
                options=self.config.options,
            )
        ]
        if self.items:
            specs.append(
                KernelSpec(
                    name="merge",
                    fn=merge,
                    signature={"rows_per_workgroup": "i32", **shared},
                    constexprs=constants,
                    divisible=("out", "scratch"),
                    num_warps=MERGE_WARPS,
                )
            )
        return specs
