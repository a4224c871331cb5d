"""Program of the gfx950 prefill solution: from a Problem, a Target and a Config to strides, grid and launch."""

from __future__ import annotations

from typing import Any

import torch
from triton.backends.amd.compiler import HIPOptions

from mla_core.compile import KernelSpec
from mla_core.layouts.cdna4 import COPY_ELEMENTS
from mla_core.stages.triton_softmax import split_scale
from mla_core.target import Target
from mla_prefill.cdna4.config import CDNA4PrefillConfig
from mla_prefill.cdna4.geometry import used_strides
from mla_prefill.cdna4.pipeline import prefill
from mla_prefill.problem import PrefillProblem


def scheduling_options(strategy: str) -> dict[str, Any]:
    """Compile options that choose LLVM's scheduling strategy; none for the default, and none before Triton 3.9."""
    if not strategy or "llvm_fn_attrs" not in HIPOptions.__dataclass_fields__:
        return {}
    return {"llvm_fn_attrs": (("amdgpu-sched-strategy", strategy),)}


class CDNA4PrefillProgram:
    """One persistent launch. One binary serves every batch and all lengths."""

    def __init__(self, problem: PrefillProblem, target: Target, config: CDNA4PrefillConfig) -> None:
        self.problem, self.target, self.config = problem, target, config
        strides = used_strides(problem)
        self.token_strides = {name: token for name, (token, _) in strides.items()}
        self.token_pieces = {name: token // COPY_ELEMENTS for name, (token, _) in strides.items()}
        self.head_pieces = {name: head // COPY_ELEMENTS for name, (_, head) in strides.items()}

    @property
    def grid(self) -> tuple[int]:
        """A workgroup a compute unit, whose LDS it fills; fewer where there cannot be so many tiles."""
        tiles = (self.problem.total_q // self.config.block_m + self.problem.batch) * self.problem.heads
        whole = self.target.compute_units // self.dies * self.dies
        return (min(whole, -(-tiles // self.dies) * self.dies),)

    @property
    def dies(self) -> int:
        """Dies that the workgroups of the grid go round-robin over; 1 where they do not divide the compute units."""
        return self.target.xcds if self.target.compute_units % self.target.xcds == 0 else 1

    def _constexprs(self, negate: bool) -> dict[str, Any]:
        return {
            "cfg": self.config,
            "HEADS": self.problem.heads,
            "GROUP": self.problem.group,
            "K_STRIDE": self.token_strides["k"],
            "V_STRIDE": self.token_strides["v"],
            "IS_CAUSAL": self.problem.is_causal,
            "RETURN_LSE": self.problem.return_lse,
            "NEGATE": negate,
            "DIES": self.dies,
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
        """Enqueues the kernel on the current stream; the lengths are read on the device."""
        scale_log2, negate = split_scale(softmax_scale)
        tokens, heads = self.token_pieces, self.head_pieces
        prefill[self.grid](
            q,
            k,
            v,
            out,
            lse,
            cu_seqlens_q,
            cu_seqlens_kv,
            self.problem.batch,
            tokens["q"],
            heads["q"],
            heads["k"],
            heads["v"],
            tokens["out"],
            heads["out"],
            scale_log2,
            **self._constexprs(negate),
            num_warps=self.config.num_warps,
            **scheduling_options(self.config.scheduling),
        )

    def kernels(self) -> list[KernelSpec]:
        """The kernel as a compiler needs it."""
        element = f"*{self.problem.dtype}"
        signature = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), element)
        signature |= {"lse_ptr": "*fp32", "cu_seqlens_q_ptr": "*i32", "cu_seqlens_kv_ptr": "*i32", "batch": "i32"}
        signature |= dict.fromkeys(("q_token", "q_head", "k_head", "v_head", "out_token", "out_head"), "i32")
        signature["scale_log2"] = "fp32"
        constexprs = self._constexprs(negate=False)
        if not self.problem.return_lse:
            del signature["lse_ptr"]
            constexprs["lse_ptr"] = None
        return [
            KernelSpec(
                name="prefill",
                fn=prefill,
                signature=signature,
                constexprs=constexprs,
                divisible=("q_ptr", "k_ptr", "v_ptr", "out_ptr"),
                num_warps=self.config.num_warps,
                options=scheduling_options(self.config.scheduling),
            )
        ]
