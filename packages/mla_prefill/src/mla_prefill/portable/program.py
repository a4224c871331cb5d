"""Program of the `triton` prefill solution: from a Problem, a Target and a Config to strides, grid and launch."""

from __future__ import annotations

from typing import Any

import attrs
import torch

from mla_core.compile import KernelSpec
from mla_core.errors import ConfigError
from mla_core.stages.triton_softmax import split_scale
from mla_core.target import Target
from mla_prefill.portable.config import TritonPrefillConfig
from mla_prefill.portable.pipeline import prefill_kernel
from mla_prefill.problem import QK_NOPE_HEAD_DIM, QK_ROPE_HEAD_DIM, V_HEAD_DIM, PrefillProblem


@attrs.frozen(kw_only=True)
class PrefillShape:
    """What a model fixes, and the kernel therefore compiles in. Strides in elements; group: heads of a key head."""

    heads: int
    group: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    is_causal: bool
    return_lse: bool
    q_stride_token: int
    q_stride_head: int
    k_stride_token: int
    k_stride_head: int
    v_stride_token: int
    v_stride_head: int
    out_stride_token: int
    out_stride_head: int

    @staticmethod
    def of(problem: PrefillProblem) -> PrefillShape:
        """The compiled-in part of a Problem."""
        return PrefillShape(
            heads=problem.heads,
            group=problem.group,
            nope_dim=QK_NOPE_HEAD_DIM,
            rope_dim=QK_ROPE_HEAD_DIM,
            v_dim=V_HEAD_DIM,
            is_causal=problem.is_causal,
            return_lse=problem.return_lse,
            q_stride_token=problem.q_strides[0],
            q_stride_head=problem.q_strides[1],
            k_stride_token=problem.k_strides[0],
            k_stride_head=problem.k_strides[1],
            v_stride_token=problem.v_strides[0],
            v_stride_head=problem.v_strides[1],
            out_stride_token=problem.out_strides[0],
            out_stride_head=problem.out_strides[1],
        )


class TritonPrefillProgram:
    """One launch over heads and query tiles.

    Raises ConfigError where `config.within_2gb` claims what the tensors do not keep.
    """

    def __init__(self, problem: PrefillProblem, target: Target, config: TritonPrefillConfig) -> None:
        if config.within_2gb and not problem.within_2gb:
            raise ConfigError("within_2gb", True, "False for a q, k, v or out that reaches beyond 2 GiB")
        self.problem, self.target, self.config = problem, target, config
        self.shape = PrefillShape.of(problem)
        self.tiles = problem.total_q // config.block_m + problem.batch

    @property
    def grid(self) -> tuple[int]:
        """Workgroups: heads x query tiles, as many as sequences of any lengths can need."""
        return (self.problem.heads * self.tiles,)

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
        """Enqueues the kernel on the current stream."""
        scale_log2, negate = split_scale(softmax_scale)
        prefill_kernel[self.grid](
            q,
            k,
            v,
            cu_seqlens_q,
            cu_seqlens_kv,
            out,
            lse,
            scale_log2,
            self.problem.batch,
            self.tiles,
            negate=negate,
            shape=self.shape,
            cfg=self.config,
            num_warps=self.config.num_warps,
            num_stages=self.config.num_stages,
        )

    def kernels(self) -> list[KernelSpec]:
        """The kernel as a compiler needs it."""
        problem = self.problem
        signature = {
            "q_ptr": f"*{problem.dtype}",
            "k_ptr": f"*{problem.dtype}",
            "v_ptr": f"*{problem.dtype}",
            "cu_seqlens_q_ptr": "*i32",
            "cu_seqlens_kv_ptr": "*i32",
            "out_ptr": f"*{problem.dtype}",
            "lse_ptr": "*fp32",
            "scale_log2": "fp32",
            "batch": "i32",
            "tiles": "i32",
        }
        constexprs: dict[str, Any] = {"negate": False, "shape": self.shape, "cfg": self.config}
        if not problem.return_lse:
            del signature["lse_ptr"]
            constexprs["lse_ptr"] = None
        return [
            KernelSpec(
                name="prefill",
                fn=prefill_kernel,
                signature=signature,
                constexprs=constexprs,
                divisible=("q_ptr", "k_ptr", "v_ptr", "out_ptr") if problem.aligned else (),
                num_warps=self.config.num_warps,
                options={"num_stages": self.config.num_stages},
            )
        ]
