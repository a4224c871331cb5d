"""Patterns of sequence lengths, by the name that a case spells."""

from __future__ import annotations

import random
from collections.abc import Callable

EDGES = (0, 1, 63, 64, 65, 127, 128, 129)
"""Lengths around the tile sizes of the kernels."""

HUGE_BATCH = 2**16 + 3
"""More than the y and z dimensions of a CUDA grid may count (65535)."""

LONG = 1027
"""Enough keys for several splits and many tiles, and a multiple of nothing."""


def edges(batch: int, page_size: int) -> tuple[int, ...]:
    """Tile and page boundaries in turn, the longest first."""
    around = {max(page_size + step, 0) for step in (-1, 0, 1)}
    values = sorted({*EDGES, *around}, reverse=True)
    return tuple(values[request % len(values)] for request in range(batch))


def ragged(batch: int, page_size: int) -> tuple[int, ...]:
    """Anything from 1 to 300, as a busy server sees."""
    draw = random.Random(batch * 1000 + page_size)
    return tuple(draw.randint(1, 300) for _ in range(batch))


def one_long(batch: int, page_size: int) -> tuple[int, ...]:
    """One long request between short ones."""
    return tuple(LONG if request == batch // 2 else 1 + 37 * request % 130 for request in range(batch))


def equal(batch: int, page_size: int) -> tuple[int, ...]:
    """All alike, ending on a tile boundary."""
    return (192,) * batch


def clamped(batch: int, page_size: int) -> tuple[int, ...]:
    """Lengths that no table can hold: negative, and far beyond what it names."""
    return tuple((10**6, -1, 130, -(2**31), 2**31 - 1)[request % 5] for request in range(batch))


def all_empty(batch: int, page_size: int) -> tuple[int, ...]:
    """No request has a key."""
    return (0,) * batch


def very_long(batch: int, page_size: int) -> tuple[int, ...]:
    """The context that DeepSeek-V3 is served with (128 Ki tokens), less a ragged end, and shorter ones."""
    return tuple(131072 // (request + 1) - 17 for request in range(batch))


PATTERNS: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "edges": edges,
    "ragged": ragged,
    "one_long": one_long,
    "equal": equal,
    "clamped": clamped,
    "all_empty": all_empty,
    "very_long": very_long,
}
