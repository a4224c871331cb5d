"""Recognise waves that wait in a loop for memory to change.

The emulator is deterministic: if registers (and, across barriers, LDS) are exactly what they were at an earlier visit
of the same place, nothing will change until somebody writes global memory. Places are compared with snapshots taken at
visit numbers that are powers of two (Brent's cycle detection), so loops within loops are found too, and loops that do
make progress pay almost nothing.
"""

from collections.abc import Hashable

import numpy as np

from .errors import EmulationError

PATIENCE = 64  # visits before the first snapshot; a power of two


class _Snapshot:
    def __init__(self, place: int, state: list[np.ndarray], progress: int):
        self.place = place
        self.state = [array.copy() for array in state]
        self.progress = progress

    def equals(self, place: int, state: list[np.ndarray]) -> bool:
        return self.place == place and all(np.array_equal(old, new) for old, new in zip(self.state, state, strict=True))


class SpinWatch:
    """One per machine. A *watched* thing is a group of waves (by its wave slots) or a workgroup."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._visits: dict[Hashable, int] = {}
        self._snapshots: dict[Hashable, _Snapshot] = {}

    def visit(self, watched: Hashable, place: int, state: list[np.ndarray], progress: int) -> int | None:
        """Called at every backward jump or barrier.

        Returns None while ``watched`` may still be getting somewhere; otherwise the value of ``progress`` at the
        earlier visit with the same state: memory written since then might release it.
        """
        count = self._visits.get(watched, 0) + 1
        self._visits[watched] = count
        if self.limit is not None and count > self.limit:
            raise EmulationError(f"has looped {count} times, more than the limit")
        if count < PATIENCE:
            return None
        snapshot = self._snapshots.get(watched)
        since = snapshot.progress if snapshot is not None and snapshot.equals(place, state) else None
        if since is not None or count & (count - 1) == 0:
            self._snapshots[watched] = _Snapshot(place, state, progress)
        return since
