"""The `torch` prefill solution: plain torch on any device, the one that dispatch ends with where no kernel can run."""

from __future__ import annotations

import torch

from mla_core.dispatch import YES, Solution, Verdict
from mla_core.target import Target
from mla_core.torch_attention import TorchConfig, attend
from mla_prefill.problem import PrefillProblem

QUERY_BLOCK = 256
"""Queries at a time: bounds the logits of one step to QUERY_BLOCK x total_kv for each head."""


class TorchPrefillProgram:
    """Blocks of queries against the keys of their sequences.

    Lengths are read on the host only where they already are there; on a device every block meets all keys, masked.
    """

    def __init__(self, problem: PrefillProblem, target: Target, config: TorchConfig) -> None:
        self.problem, self.target, self.config = problem, target, config

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
        """Writes out and, where given, lse, in rows that belong to a sequence."""
        problem, dtype = self.problem, self.config.dtype
        q_start = cu_seqlens_q.long().clamp(0, problem.total_q)
        kv_start = cu_seqlens_kv.long().clamp(0, problem.total_kv)
        key = torch.arange(problem.total_kv, device=q.device)
        keys, values = k.to(dtype).transpose(0, 1), v.to(dtype).transpose(0, 1)
        for first in range(0, problem.total_q, QUERY_BLOCK):
            rows = slice(first, min(first + QUERY_BLOCK, problem.total_q))
            token = torch.arange(rows.start, rows.stop, device=q.device)
            sequence = torch.searchsorted(q_start, token, right=True) - 1
            owned = (sequence >= 0) & (sequence < problem.batch)
            sequence = sequence.clamp(0, problem.batch - 1)
            low, high = kv_start[sequence], kv_start[sequence + 1]
            if problem.is_causal:
                high = torch.minimum(high, high - (q_start[sequence + 1] - token) + 1)
            span = slice(0, problem.total_kv)
            if q.device.type == "cpu":
                span = slice(int(low.min()), max(int(high.max()), 0))
            visible = (key[span] >= low[:, None]) & (key[span] < high[:, None]) & owned[:, None]
            queries = q[rows].to(dtype).transpose(0, 1)
            result, result_lse = attend(
                queries.unflatten(0, (problem.kv_heads, problem.group)),
                keys[:, span].unsqueeze(1),
                values[:, span].unsqueeze(1),
                visible,
                softmax_scale,
            )
            result = result.flatten(0, 1).transpose(0, 1).to(out.dtype)
            out[rows] = torch.where(owned[:, None, None], result, out[rows])
            if lse is not None:
                lse[rows] = torch.where(owned[:, None], result_lse.flatten(0, 1).transpose(0, 1), lse[rows])

    def kernels(self) -> list[object]:
        """No kernel of its own."""
        return []


def supports(problem: PrefillProblem, target: Target) -> Verdict:
    """Everything that passes validation, on every machine."""
    return YES


def choose(problem: PrefillProblem, target: Target) -> TorchConfig:
    """The default Config."""
    return TorchConfig()


SOLUTION = Solution(
    operation=PrefillProblem.operation,
    name="torch",
    priority=0,
    config_type=TorchConfig,
    supports=supports,
    choose=choose,
    build=TorchPrefillProgram,
)
