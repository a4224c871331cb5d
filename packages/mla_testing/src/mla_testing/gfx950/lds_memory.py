"""LDS of the resident workgroups, with its race and in-flight shadow.

Every dword has two shadow stamps, the last writer and the last reader. A stamp is ``interval * 1024 + wave + 1``,
where ``interval`` counts the barriers that the workgroup has passed, so "touched by another wave in this barrier
interval" is two comparisons. A dword that a direct-to-LDS load will fill carries ``IN_FLIGHT + step`` until the wait
that retires the load; touching it before is an error whoever does it.
"""

import numpy as np

from .errors import LdsRaceError, MisalignedAccessError, OutOfBoundsError, PendingAccessError
from .hazards import Footprint, LdsTouch

STAMP_WAVES = 1024
MANY_READERS = STAMP_WAVES - 1
IN_FLIGHT = 1 << 30
_DTYPE = {4: np.uint32, 8: np.uint64, 16: np.complex128}


class LdsMemory:
    """``bytes_per_workgroup`` of LDS for each of ``workgroups``; ``poison`` is the initial pattern."""

    def __init__(self, workgroups: int, bytes_per_workgroup: int, poison: int, race: bool, strict: bool):
        self.size = bytes_per_workgroup
        self.words = (bytes_per_workgroup + 15) // 16 * 4
        self.race, self.strict = race, strict
        total = max(self.words * workgroups, 4)
        self.data = np.full(total, poison, np.uint32)
        self.writer = np.zeros(total, np.int32)
        self.reader = np.zeros(total, np.int32)
        self._data = {width: self.data.view(dtype) for width, dtype in _DTYPE.items()}
        self._writer = {width: self.writer.view(dtype) for width, dtype in _DTYPE.items()}
        self._reader = {width: self.reader.view(dtype) for width, dtype in _DTYPE.items()}
        self.bytes = self.data.view(np.uint8)

    # ------------------------------------------------------------------ addresses

    def elements(self, address: np.ndarray, size: int, base_words: np.ndarray) -> tuple[np.ndarray, int]:
        """Byte addresses int64[k] within a workgroup to (indices [k] or [k, n], element width in bytes).

        ``size`` bytes per address are covered by elements of the widest kind that the alignment permits.
        """
        self.check(address, size)
        union = int(np.bitwise_or.reduce(address)) if len(address) else 0
        width = size & -size
        while union & (width - 1):
            width //= 2
        if width < 4:
            raise MisalignedAccessError(f"LDS access of {size} bytes at an address that is not a multiple of 4")
        index = (address + base_words * 4) // width
        if width != size:
            index = index[:, None] + np.arange(size // width)
        return index, width

    def check(self, address: np.ndarray, size: int) -> None:
        if len(address) and (int(address.max()) + size > self.size or int(address.min()) < 0):
            bad = int(address.max()) if int(address.min()) >= 0 else int(address.min())
            raise OutOfBoundsError(f"LDS access of {size} bytes at byte {bad}, but the allocation has {self.size} bytes")

    # ------------------------------------------------------------------ data

    def read(self, index: np.ndarray, width: int) -> np.ndarray:
        """uint32[k, n] for indices [k] or [k, m]."""
        return self._data[width][index].view(np.uint32).reshape(len(index), -1)

    def write(self, index: np.ndarray, width: int, value: np.ndarray) -> None:
        elements = np.ascontiguousarray(value).view(_DTYPE[width])
        self._data[width][index] = elements.reshape(index.shape)

    # ------------------------------------------------------------------ shadow

    def note_read(self, index: np.ndarray, width: int, stamp: np.ndarray) -> None:
        """Lanes with ``stamp`` int32[k] read these elements."""
        stamp, interval = _columns(stamp, index)
        writer = _as_stamps(self._writer[width][index], index)
        clash = (writer >= interval) & (writer != stamp)
        if clash.any():
            self._complain(clash, writer, stamp, "reads", "written")
        if not self.race:
            return
        table = self._reader[width]
        seen = _as_stamps(table[index], index)
        several = (seen >= interval) & (seen != stamp)
        new = np.where(several, interval + MANY_READERS, stamp) if several.any() else stamp
        new = np.ascontiguousarray(np.broadcast_to(new, seen.shape))
        table[index] = new.view(table.dtype).reshape(index.shape)
        # Waves that read the same element in this very instruction overwrote each other's stamp.
        lost = _as_stamps(table[index], index) != new
        if lost.any():
            both = np.where(lost, interval + MANY_READERS, _as_stamps(table[index], index))
            rows = lost.any(axis=1)
            table[index[rows]] = np.ascontiguousarray(both[rows]).view(table.dtype).reshape(index[rows].shape)

    def note_write(self, index: np.ndarray, width: int, stamp: np.ndarray, step: int | None = None) -> None:
        """Lanes write these elements; with ``step``, by a direct-to-LDS load that is now in flight."""
        stamp, interval = _columns(stamp, index)
        writer = _as_stamps(self._writer[width][index], index)
        clash = (writer >= interval) & (writer != stamp)
        if clash.any():
            self._complain(clash, writer, stamp, "writes", "written")
        if self.race:
            reader = _as_stamps(self._reader[width][index], index)
            clash = (reader >= interval) & (reader != stamp)
            if clash.any():
                self._complain(clash, reader, stamp, "overwrites", "read")
        self._stamp_writer(index, width, stamp)
        if step is not None and self.strict:
            self._stamp_writer(index, width, np.int32(IN_FLIGHT + step), check=False)

    def land(self, touch: LdsTouch, stamp: np.ndarray) -> None:
        """A direct-to-LDS load retires in the current barrier interval of its wave."""
        stamp, _ = _columns(stamp, touch.index)
        self._stamp_writer(touch.index, touch.width, stamp, check=False)

    def carry_over(self, touch: LdsTouch, stamp: np.ndarray) -> None:
        """An LDS access that was not waited for before the barrier may still happen after it."""
        if touch.what is Footprint.READ:
            self.note_read(touch.index, touch.width, stamp)
        elif touch.what is Footprint.WRITE:
            self.note_write(touch.index, touch.width, stamp)

    def _stamp_writer(self, index: np.ndarray, width: int, stamp: np.ndarray, check: bool = True) -> None:
        table = self._writer[width]
        lanes = width // 4 * (index.shape[1] if index.ndim == 2 else 1)
        full = np.ascontiguousarray(np.broadcast_to(stamp, (len(index), lanes)), np.int32)
        table[index] = full.view(table.dtype).reshape(index.shape)
        if check and self.race:
            now = _as_stamps(table[index], index)
            clash = now != full
            if clash.any():
                self._complain(clash, now, full, "writes", "written")

    def _complain(self, clash: np.ndarray, other: np.ndarray, stamp: np.ndarray, verb: str, done: str) -> None:
        row, column = np.argwhere(clash)[0]
        found = int(other[row, column])
        if found >= IN_FLIGHT:
            raise PendingAccessError(_InFlight(found - IN_FLIGHT, verb))
        if not self.race:
            return
        wave = int(np.broadcast_to(stamp, other.shape)[row, column]) % STAMP_WAVES - 1
        code = found % STAMP_WAVES
        who = "several waves" if code == MANY_READERS else f"wave {code - 1}"
        raise LdsRaceError(f"wave {wave} {verb} LDS that {who} has {done} since the last barrier")


class _InFlight(str):
    """Message of a touched in-flight dword; the scheduler adds the text of the load it names."""

    step: int

    def __new__(cls, step: int, verb: str) -> "_InFlight":
        text = super().__new__(cls, f"{verb} LDS that a direct-to-LDS load has not filled yet")
        text.step = step
        return text


def _columns(stamp: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stamps int32[k] to a column, with the first stamp value of each one's interval."""
    column = stamp.reshape(-1, 1)
    return column, column & np.int32(-STAMP_WAVES)


def _as_stamps(elements: np.ndarray, index: np.ndarray) -> np.ndarray:
    return elements.view(np.int32).reshape(len(index), -1)
