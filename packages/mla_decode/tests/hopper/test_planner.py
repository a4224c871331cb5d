"""The device planner, run by Triton's interpreter on the CPU: every block is covered once, loads are even."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from mla_core import triton_support
from mla_core.target import Target

pytestmark = pytest.mark.skipif(bool(triton_support.missing()), reason=triton_support.missing() or "Triton is there")

BATCHES = {
    "one long": [32768],
    "one short": [1],
    "all empty": [0, 0, 0],
    "empty first and last": [0, 5000, 0, 64, 0],
    "uniform": [4096] * 128,
    "ragged": [1024 + 24 * i for i in range(128)],
    "one long among short": [64] * 40 + [100000] + [64] * 40,
    "more requests than parts": [random.Random(7).randrange(0, 900) for _ in range(700)],
    "few of a few blocks": [64 * n for n in (1, 5, 32, 32, 31, 2, 0, 32)],
    "beyond the table": [10**6, -5, 2**31 - 1],
}


def run_planner(heads: int, seqlens: list[int], max_tokens: int = 1 << 17) -> tuple[object, object]:
    """(geometry, words) of a plan made by the interpreter, which has to be on before any kernel is defined."""
    import torch

    from mla_decode.hopper.config import BLOCK_N
    from mla_decode.hopper.program import HopperDecodeProgram
    from mla_decode.hopper.schedule import choose
    from mla_decode.problem import DecodeProblem

    target = Target.named("sm_90")
    problem = DecodeProblem.make(batch=len(seqlens), heads=heads, max_seqlen_k=max_tokens, page_size=BLOCK_N)
    program = HopperDecodeProgram(problem, target, choose(problem, target))
    plan = program.make_plan(torch.device("cpu"))
    plan.words.fill_(-7)
    program.fill_plan(plan, torch.tensor(seqlens, dtype=torch.int32))
    return program, plan.words.tolist()


def check_plan(heads: int, seqlens: list[int]) -> None:
    """Raises AssertionError where the parts do not cover each block of each request exactly once."""
    from mla_decode.hopper import planner
    from mla_decode.hopper.config import BLOCK_N
    from mla_decode.hopper.geometry import ARRIVAL_WORDS

    max_tokens = 1 << 17
    program, words = run_planner(heads, seqlens, max_tokens)
    g, config = program.geometry, program.config
    blocks = [-(-min(max(n, 0), max_tokens) // BLOCK_N) for n in seqlens]
    assert words[g.tokens_at : g.tokens_at + len(seqlens)] == [min(max(n, 0), max_tokens) for n in seqlens]
    assert words[g.arrivals_at : g.tokens_at] == [0] * (ARRIVAL_WORDS * g.parts * g.row_tiles)
    pieces: dict[int, list[tuple[int, int, int]]] = {request: [] for request in range(len(seqlens))}
    told: dict[int, set[tuple[int, int]]] = {request: set() for request in range(len(seqlens))}
    loads = []
    for part in range(g.parts):
        record = words[g.records_at + part * planner.WORDS.value :][: planner.WORDS.value]
        first, last = record[planner.FIRST_REQUEST.value], record[planner.LAST_REQUEST.value]
        load = 0
        for request in range(first, last + 1):
            begin = record[planner.FIRST_BLOCK.value] if request == first else 0
            end = record[planner.LAST_END.value] if request == last else blocks[request]
            if request == first:
                assert record[planner.FIRST_END.value] == end
            kind = (
                (planner.FIRST_SLOT, planner.FIRST_PIECES)
                if request == first
                else (planner.LAST_SLOT, planner.LAST_PIECES)
            )
            if request in (first, last):
                told[request].add(tuple(record[word.value] for word in kind))
            else:
                told[request].add((2 * part + 1, 1))
            pieces[request].append((begin, end, 2 * part + (request != first)))
            load += end - begin + config.item_cost
        loads.append(load)
    for request, spans in pieces.items():
        assert [span[0] for span in spans] == [0, *(span[1] for span in spans[:-1])], (request, spans)
        assert spans[-1][1] == blocks[request]
        assert all(end > begin for begin, end, _ in spans) or blocks[request] == 0
        assert told[request] == {(spans[0][2], len(spans))}, (request, spans, told[request])
        parts = [slot // 2 for _, _, slot in spans]
        assert parts == list(range(parts[0], parts[0] + len(parts)))
        assert [slot for _, _, slot in spans[1:]] == [2 * part for part in parts[1:]]
    share = sum(count + config.item_cost for count in blocks) / g.parts
    # A part has at most its share, a cut's worth of rounding at each end, and the cost of the request it starts within.
    slack = 1.04 * share + 3 + 2 * (config.min_blocks + config.item_cost)
    assert max(loads) <= slack, (max(loads), share)


@pytest.mark.parametrize("heads", [16, 64, 128])
@pytest.mark.parametrize("name", BATCHES)
def test_every_block_belongs_to_one_part(name: str, heads: int) -> None:
    here = os.path.dirname(__file__)
    call = f"check_plan({heads}, BATCHES[{name!r}])"
    source = f"import sys; sys.path.insert(0, {here!r}); from test_planner import *; {call}"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
