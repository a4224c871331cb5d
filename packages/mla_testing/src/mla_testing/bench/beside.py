"""Prefill beside other implementations: all in one process, replayed in turn, because a GPU's clock moves with its power.

    python -m mla_testing.bench.beside --rows 1x4096x128xcausal --beside theirs=package.module:function

`function(q, k, v, cu_seqlens, max_seqlen, softmax_scale, causal)` makes what may be made ahead, and returns either a
callable that computes `(out, lse)`, or an object with `run()`, and `result(returned)` that turns what it returned into
`(out, lse)`. Rows are as `mla bench` spells them; `ragged:SEQUENCESxLONGESTxHEADS` has causal sequences from a tenth of
the longest up.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import torch

from mla_prefill import mla_prefill, mla_prefill_plan
from mla_prefill.problem import QK_HEAD_DIM, V_HEAD_DIM
from mla_testing.bench.grids import parse_shape
from mla_testing.bench.timing import GraphTimer, capture

SOFTMAX_SCALE = QK_HEAD_DIM**-0.5

TOLERANCE = 6e-3
"""Largest relative difference in the Frobenius norm between two bf16 results: two roundings to 2^-8 of each."""

Work = Callable[[], Any]
Outcome = Callable[[Any], tuple[torch.Tensor, torch.Tensor]]


@attrs.frozen
class Row:
    """One problem. seqlens: of the sequences, queries and keys alike."""

    label: str
    seqlens: tuple[int, ...]
    heads: int
    is_causal: bool

    @staticmethod
    def parse(text: str) -> Row:
        """Reads a row as the module docstring spells it."""
        if text.startswith("ragged:"):
            sequences, longest, heads = map(int, text.removeprefix("ragged:").split("x"))
            shares = [1.0] if sequences == 1 else [0.1 + 0.9 * index / (sequences - 1) for index in range(sequences)]
            return Row(text, tuple(int(longest * share) for share in shares), heads, True)
        shape: Any = parse_shape("prefill", text)
        return Row(text, (shape.seqlen,) * shape.batch, shape.heads, shape.causal)


@attrs.frozen
class Inputs:
    """Random tensors of a row."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    cu_seqlens: torch.Tensor
    row: Row

    @staticmethod
    def of(row: Row, device: str) -> Inputs:
        """The same for the same row."""
        torch.manual_seed(0)
        tokens = sum(row.seqlens)
        q, k, v = (
            torch.randn(tokens, row.heads, dim, device=device, dtype=torch.bfloat16)
            for dim in (QK_HEAD_DIM, QK_HEAD_DIM, V_HEAD_DIM)
        )
        ends = torch.tensor([0, *row.seqlens]).cumsum(0).to(device, torch.int32)
        return Inputs(q, k, v, ends, row)


def ours(inputs: Inputs, solution: str | None, planned: bool) -> tuple[Work, Outcome]:
    """Our call; `planned`: with the plan made here, so that it is not timed."""
    tensors = (inputs.q, inputs.k, inputs.v, inputs.cu_seqlens, inputs.cu_seqlens)
    longest = max(inputs.row.seqlens)
    options: dict[str, Any] = {
        "max_seqlen_q": longest,
        "max_seqlen_kv": longest,
        "is_causal": inputs.row.is_causal,
        "return_lse": True,
        "solution": solution,
    }
    plan = mla_prefill_plan(*tensors, **options) if planned else None
    return lambda: mla_prefill(*tensors, **options, softmax_scale=SOFTMAX_SCALE, plan=plan), lambda returned: returned


def theirs(inputs: Inputs, function: Callable[..., Any]) -> tuple[Work, Outcome]:
    """Another implementation's call."""
    made = function(
        inputs.q, inputs.k, inputs.v, inputs.cu_seqlens, max(inputs.row.seqlens), SOFTMAX_SCALE, inputs.row.is_causal
    )
    if hasattr(made, "run"):
        return made.run, made.result
    return made, lambda returned: returned


def load(text: str) -> Callable[..., Any]:
    """The function that `module:name` names."""
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)


def differing(calls: Mapping[str, tuple[Work, Outcome]]) -> list[str]:
    """Names whose result is not that of the first."""
    results = {name: outcome(work()) for name, (work, outcome) in calls.items()}
    first_out, first_lse = next(iter(results.values()))
    scale = first_out.float().norm()
    wrong = []
    for name, (out, lse) in results.items():
        close = (out.float() - first_out.float()).norm() <= TOLERANCE * scale
        if not (close and (lse - first_lse).abs().max() <= 1e-3):
            wrong.append(name)
    return wrong


def medians(calls: Mapping[str, tuple[Work, Outcome]], timer: GraphTimer, rounds: int) -> dict[str, float]:
    """Microseconds of each: the median over rounds, the order turning round each time; the first round only warms up."""
    graphs = {name: capture(work) for name, (work, _) in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(rounds + 1):
        for name in list(graphs)[:: 1 if turn % 2 else -1]:
            times[name].append(timer.replay_us(graphs[name]))
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def main(arguments: list[str] | None = None) -> int:
    """Prints a line a row; 1 where a result differs."""
    parser = argparse.ArgumentParser(prog="python -m mla_testing.bench.beside", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", required=True, help="separated by commas")
    parser.add_argument("--beside", action="append", default=[], help="NAME=MODULE:FUNCTION (may be repeated)")
    parser.add_argument("--solution", help="of ours; default: dispatch chooses")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--budget-ms", type=float, default=14.0, help="of one kernel in one round")
    options = parser.parse_args(arguments)
    functions = {name: load(text) for name, _, text in (entry.partition("=") for entry in options.beside)}
    timer = GraphTimer(budget_ms=options.budget_ms, least=2)
    failed = False
    for text in options.rows.split(","):
        inputs = Inputs.of(Row.parse(text), "cuda")
        calls = {name: theirs(inputs, function) for name, function in functions.items()}
        calls["ours"] = ours(inputs, options.solution, planned=False)
        calls["planned"] = ours(inputs, options.solution, planned=True)
        wrong = differing(calls)
        failed |= bool(wrong)
        times = medians(calls, timer, options.rounds)
        best = min((times[name] for name in functions), default=float("nan"))
        figures = [f"{name} {value:.1f}" for name, value in times.items()]
        ratios = f"best/ours {best / times['ours']:.3f}, best/planned {best / times['planned']:.3f}"
        print(
            f"{text:24s} " + " | ".join(figures) + f" | {ratios}" + (f" DIFFERS: {wrong}" if wrong else ""), flush=True
        )
        del inputs, calls
        torch.cuda.empty_cache()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
