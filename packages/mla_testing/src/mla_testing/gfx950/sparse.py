"""Arrays as large as the tensors they shadow, that take memory only where they are touched."""

from typing import Any

import numpy as np

CHUNK_BITS = 14
_WITHIN = (1 << CHUNK_BITS) - 1


class SparseArray:
    """``count`` zeros of ``dtype``, allocated in chunks of 2**14 elements on first access.

    Indexed with int64 arrays only. Where an index repeats in an assignment the last value stays.
    """

    def __init__(self, count: int, dtype: Any):
        self._slot = np.full((count >> CHUNK_BITS) + 1, -1, np.int64)  # chunk -> position among the allocated ones
        self._used = 0
        self._data = np.zeros(0, dtype)

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        place = self._place(index)
        return self._data[place]

    def __setitem__(self, index: np.ndarray, value: Any) -> None:
        place = self._place(index)
        self._data[place] = value

    def count_nonzero(self) -> int:
        """Number of elements that are not zero."""
        return int(np.count_nonzero(self._data))

    def _place(self, index: np.ndarray) -> np.ndarray:
        chunk = index >> CHUNK_BITS
        slot = self._slot[chunk]
        if slot.min(initial=0) < 0:
            new = np.unique(chunk[slot < 0])
            self._slot[new] = np.arange(self._used, self._used + len(new))
            self._used += len(new)
            if self._used << CHUNK_BITS > len(self._data):
                grown = np.zeros(max(self._used, 2 * len(self._data) >> CHUNK_BITS) << CHUNK_BITS, self._data.dtype)
                grown[: len(self._data)] = self._data
                self._data = grown
            slot = self._slot[chunk]
        return (slot << CHUNK_BITS) | (index & _WITHIN)
