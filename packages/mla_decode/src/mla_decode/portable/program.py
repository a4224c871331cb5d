"""Program of the `triton` decode solution: from Problem, Target and Config to strides, grid, scratch and launch."""

from __future__ import annotations

from typing import Any

import attrs
import torch

from mla_core.compile import KernelSpec
from mla_core.errors import ConfigError
from mla_core.problem import MAX_INT32
from mla_core.stages.triton_softmax import split_scale
from mla_core.target import Target
from mla_decode.merge import SplitMerge
from mla_decode.portable.config import TritonDecodeConfig
from mla_decode.portable.pipeline import decode_kernel
from mla_decode.portable.schedule import plan_splits
from mla_decode.problem import DecodeProblem


@attrs.frozen(kw_only=True)
class DecodeShape:
    """What a model and its pool fix, and the kernel therefore compiles in. Strides in elements."""

    rows: int
    heads: int
    q_len: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    causal: bool
    return_lse: bool
    page_size: int
    kv_stride_page: int
    kv_stride_token: int
    q_stride_request: int
    q_stride_token: int
    q_stride_head: int
    out_stride_request: int
    out_stride_token: int
    out_stride_head: int

    @staticmethod
    def of(problem: DecodeProblem) -> DecodeShape:
        """The compiled-in part of a Problem."""
        return DecodeShape(
            rows=problem.rows,
            heads=problem.heads,
            q_len=problem.q_len,
            kv_lora_rank=problem.kv_lora_rank,
            qk_rope_head_dim=problem.qk_rope_head_dim,
            causal=problem.causal,
            return_lse=problem.return_lse,
            page_size=problem.kv.page_size,
            kv_stride_page=problem.kv.stride_page,
            kv_stride_token=problem.kv.stride_token,
            q_stride_request=problem.q_strides[0],
            q_stride_token=problem.q_strides[1],
            q_stride_head=problem.q_strides[2],
            out_stride_request=problem.out_strides[0],
            out_stride_token=problem.out_strides[1],
            out_stride_head=problem.out_strides[2],
        )


class TritonDecodeProgram:
    """One launch for the attention, and one for the merge where KV is split.

    Raises ConfigError where `config.within_2gb` claims what the pool does not keep.
    """

    def __init__(self, problem: DecodeProblem, target: Target, config: TritonDecodeConfig) -> None:
        if config.within_2gb and not problem.kv.within_2gb:
            raise ConfigError("within_2gb", True, f"False for a pool of {problem.kv.max_byte_offset + 1} bytes")
        self.problem, self.target, self.config = problem, target, config
        self.shape = DecodeShape.of(problem)
        self.row_blocks = -(-problem.rows // config.block_m)
        self.num_splits, self.split_tokens = plan_splits(problem, target, config)
        self.merge = SplitMerge(problem, self.num_splits, config.interpreted) if self.num_splits > 1 else None

    @property
    def grid(self) -> tuple[int]:
        """Workgroups: requests x splits x row blocks."""
        return (self.problem.batch * self.num_splits * self.row_blocks,)

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
        """Enqueues attention, and merge where KV is split, on the current stream."""
        scale_log2, negate = split_scale(softmax_scale)
        scratch = None if self.merge is None else self.merge.scratch(q.device)
        attended, attended_lse = (out, lse) if scratch is None else scratch
        decode_kernel[self.grid](
            q,
            kv_cache,
            page_table,
            cache_seqlens,
            attended,
            attended_lse,
            scale_log2,
            page_table.stride(0),
            min(self.problem.max_kv_tokens, MAX_INT32),
            self.num_splits,
            self.split_tokens,
            is_split=self.merge is not None,
            negate=negate,
            shape=self.shape,
            cfg=self.config,
            num_warps=self.config.num_warps,
            num_stages=self.config.num_stages,
        )
        if self.merge is not None and scratch is not None:
            self.merge.launch(*scratch, out, lse)

    def kernels(self) -> list[KernelSpec]:
        """The attention kernel, and the merge where KV is split."""
        problem, is_split = self.problem, self.merge is not None
        signature = {
            "q_ptr": f"*{problem.dtype}",
            "kv_ptr": f"*{problem.dtype}",
            "page_table_ptr": "*i32",
            "cache_seqlens_ptr": "*i32",
            "out_ptr": "*fp32" if is_split else f"*{problem.dtype}",
            "lse_ptr": "*fp32",
            "scale_log2": "fp32",
            "page_table_stride": "i32",
            "max_kv_tokens": "i32",
            "num_splits": "i32",
            "split_tokens": "i32",
        }
        constexprs: dict[str, Any] = {"is_split": is_split, "negate": False, "shape": self.shape, "cfg": self.config}
        if not is_split and not problem.return_lse:
            del signature["lse_ptr"]
            constexprs["lse_ptr"] = None
        attend = KernelSpec(
            name="decode_split" if is_split else "decode",
            fn=decode_kernel,
            signature=signature,
            constexprs=constexprs,
            divisible=("q_ptr", "kv_ptr", "out_ptr") if problem.aligned else (),
            num_warps=self.config.num_warps,
            options={"num_stages": self.config.num_stages},
        )
        return [attend, *(self.merge.kernels() if self.merge is not None else [])]
