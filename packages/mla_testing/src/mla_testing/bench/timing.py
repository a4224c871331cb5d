"""How long work on a GPU takes: replays of a captured graph with cold caches, and the median of them.

A replay launches without the host's part of the call, which a serving engine hides the same way. Before each one a
buffer larger than every cache is overwritten, so that the inputs come from memory; that write also gives the host time
to enqueue the events and the replay behind it, so that no launch gap is measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

FLUSH_BYTES = 512 * 2**20
"""Twice the largest last-level cache of the targets (256 MB: AMD CDNA 4 white paper, Infinity Cache), bytes."""

WARMUP_CALLS = 2
"""Calls before capture: the first compiles, and none may allocate for the first time while capturing."""


class GraphTimer:
    """Times work on the current GPU.

    Args:
        budget_ms: measuring time for one piece of work, about.
        least, most: replays to take the median of, whatever the budget.
    """

    def __init__(self, *, budget_ms: float = 60.0, least: int = 7, most: int = 60) -> None:
        if least < 1 or most < least:
            raise ValueError(f"least is {least} and most {most}; allowed: 1 <= least <= most")
        self.budget_ms, self.least, self.most = budget_ms, least, most
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")

    def median_us(self, work: Callable[[], Any]) -> float:
        """Median time of one replay of `work`, microseconds. `work` must be capturable: no wait for the device."""
        return self.replay_us(capture(work))

    def replay_us(self, graph: torch.cuda.CUDAGraph) -> float:
        """Median time of one replay of a captured graph, microseconds."""
        once = self._replay_ms(graph, 1)[0]
        replays = min(max(int(self.budget_ms / max(once, 1e-3)), self.least), self.most)
        return statistics.median(self._replay_ms(graph, replays)) * 1e3

    def _replay_ms(self, graph: torch.cuda.CUDAGraph, replays: int) -> list[float]:
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(replays)]
        for start, end in events:
            self._flush.zero_()
            start.record()
            graph.replay()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]


def capture(work: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """A graph of one call of `work`, warmed up on a stream of its own."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMUP_CALLS):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph
