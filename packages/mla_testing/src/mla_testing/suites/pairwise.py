"""Combinations of factors in which every pair of values of two factors occurs at least once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

Pair = tuple[tuple[str, Any], tuple[str, Any]]

ATTEMPTS = 30
"""Random completions tried for each combination; the one with the most new pairs is kept."""


def pairwise(factors: Mapping[str, Sequence[Any]], seed: int = 0) -> list[dict[str, Any]]:
    """A small list of combinations (name -> value) that covers all pairs; the same list for the same arguments."""
    draw = random.Random(seed)
    missing: dict[Pair, None] = {}  # in the order of discovery, so that the result does not depend on hashing
    for first, second in itertools.combinations(factors, 2):
        for values in itertools.product(factors[first], factors[second]):
            missing[((first, values[0]), (second, values[1]))] = None
    chosen: list[dict[str, Any]] = []
    while missing:
        start = dict(next(iter(missing)))
        candidates = [
            {name: start.get(name, draw.choice(list(values))) for name, values in factors.items()}
            for _ in range(ATTEMPTS)
        ]
        best = max(candidates, key=lambda candidate: sum(pair in missing for pair in pairs_of(candidate)))
        for pair in pairs_of(best):
            missing.pop(pair, None)
        chosen.append(best)
    return chosen


def pairs_of(combination: Mapping[str, Any]) -> list[Pair]:
    """The pairs that one combination covers."""
    return list(itertools.combinations(combination.items(), 2))
