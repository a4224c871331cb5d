"""The `torch` decode solution: plain torch on any device, the one that dispatch ends with where no kernel can run."""

from __future__ import annotations

import torch

from mla_core.dispatch import YES, Solution, Verdict
from mla_core.target import Target
from mla_core.torch_attention import TorchConfig, attend
from mla_decode.problem import DecodeProblem


class TorchDecodeProgram:
    """One request after another: gathers its KV rows, then attends with all its rows at once."""

    def __init__(self, problem: DecodeProblem, target: Target, config: TorchConfig) -> None:
        self.problem, self.target, self.config = problem, target, config

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
        """Writes out and, where given, lse. Reads lengths on the host only where they already are there."""
        problem, dtype = self.problem, self.config.dtype
        seqlens = cache_seqlens.long().clamp(0, problem.max_kv_tokens)  # the bound may exceed an int32
        keys = int(seqlens.max()) if q.device.type == "cpu" else problem.max_kv_tokens
        token = torch.arange(keys, device=q.device)
        page_slot, offset = token // problem.kv.page_size, token % problem.kv.page_size
        behind = torch.arange(problem.q_len, device=q.device).view(-1, 1, 1) - (problem.q_len - 1)
        for request in range(problem.batch):
            valid = token < seqlens[request]
            page = torch.where(valid, page_table[request, page_slot], 0)
            rows = torch.where(valid[:, None], kv_cache[page, offset], 0).to(dtype)
            limit = seqlens[request] + behind if problem.causal else seqlens[request]
            visible = (token < limit).expand(problem.q_len, 1, keys)
            result, result_lse = attend(
                q[request].to(dtype), rows, rows[:, : problem.kv_lora_rank], visible, softmax_scale
            )
            out[request] = result.to(out.dtype)
            if lse is not None:
                lse[request] = result_lse.to(lse.dtype)

    def kernels(self) -> list[object]:
        """No kernel of its own."""
        return []


def supports(problem: DecodeProblem, target: Target) -> Verdict:
    """Everything that passes validation, on every machine."""
    return YES


def choose(problem: DecodeProblem, target: Target) -> TorchConfig:
    """The default Config."""
    return TorchConfig()


SOLUTION = Solution(
    operation=DecodeProblem.operation,
    name="torch",
    priority=0,
    config_type=TorchConfig,
    supports=supports,
    choose=choose,
    build=TorchDecodeProgram,
)
