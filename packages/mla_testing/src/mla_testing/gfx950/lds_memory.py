"""LDS of the resident workgroups, with its race and in-flight shadow.

Every dword has two shadow stamps, the last writer and the last reader. A stamp is ``interval * 1024 + wave + 1``,
where ``interval`` counts the barriers that the workgroup has passed, so "touched by another wave in this barrier
interval" is two comparisons. A dword that a direct-to-LDS load will fill carries ``IN_FLIGHT + step`` until the wait
that retires the load; touching it before is an error whoever does it.

Waves that write the *same value* to one place do not race: Triton lets redundant threads do so. Elements narrower than
a dword have a second shadow per byte, since neighbours may belong to different waves.
"""

from typing import Any

import numpy as np

from .errors import LdsRaceError, MisalignedAccessError, OutOfBoundsError, PendingAccessError
from .hazards import Footprint, LdsTouch

STAMP_WAVES = 1024
MANY = STAMP_WAVES - 1  # wave code: several waves
IN_FLIGHT = 1 << 30
_DTYPE: dict[int, Any] = {4: np.uint32, 8: np.uint64, 16: np.complex128}
_NARROW: dict[int, Any] = {1: np.uint8, 2: np.uint16}


class LdsMemory:
    """``bytes_per_workgroup`` of LDS for each of ``workgroups``; ``poison`` is the initial pattern."""

    def __init__(self, workgroups: int, bytes_per_workgroup: int, poison: int, race: bool, strict: bool):
        self.size = bytes_per_workgroup
        self.words = (bytes_per_workgroup + 15) // 16 * 4  # per workgroup
        self.race, self.strict = race, strict
        total = max(self.words * workgroups, 4)
        self.data = np.full(total, poison, np.uint32)
        self.writer = np.zeros(total, np.int32)
        self.reader = np.zeros(total, np.int32)
        self._byte_writer = np.zeros(total * 4 if race else 0, np.int32)
        self._data: dict[int, Any] = {width: self.data.view(dtype) for width, dtype in _DTYPE.items()}
        self._writer: dict[int, Any] = {width: self.writer.view(dtype) for width, dtype in _DTYPE.items()}
        self._reader: dict[int, Any] = {width: self.reader.view(dtype) for width, dtype in _DTYPE.items()}

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
        """Every access must lie within the workgroup's allocation."""
        if len(address) and (int(address.max()) + size > self.size or int(address.min()) < 0):
            bad = int(address.max()) if int(address.min()) >= 0 else int(address.min())
            raise OutOfBoundsError(
                f"LDS access of {size} bytes at byte {bad}, but the allocation has {self.size} bytes"
            )

    # ------------------------------------------------------------------ access

    def read(self, index: np.ndarray, width: int, stamp: np.ndarray) -> np.ndarray:
        """uint32[k, n] for indices [k] or [k, m]; ``stamp`` int32[k] says who reads."""
        self._note_read(index, width, stamp)
        return self._data[width][index].view(np.uint32).reshape(len(index), -1)

    def write(self, index: np.ndarray, width: int, value: np.ndarray, stamp: np.ndarray, step: int | None) -> None:
        """Write uint32[k, n]; with ``step``, by a direct-to-LDS load which stays in flight from that instruction on."""
        table = self._data[width]
        value = np.ascontiguousarray(value)
        if not (self.race or self.strict):
            table[index] = value.view(table.dtype).reshape(index.shape)
            return
        stamp, interval = _columns(stamp)
        writer = _dwords(self._writer[width][index], index)
        other = (writer >= interval) & (writer != stamp)
        shared = False
        if other.any():
            clash = other & ((value.view(np.int32) != _dwords(table[index], index)) | (writer >= IN_FLIGHT))
            if clash.any():
                self._complain(clash, writer, stamp, "writes", "written")
            shared = True
        if self.race:
            self._check_readers(index, width, stamp, interval)
        table[index] = value.view(table.dtype).reshape(index.shape)
        if step is not None and self.strict:
            self._set(self._writer[width], index, np.array([[IN_FLIGHT + step]], np.int32), width)
            return
        mine = np.where(other, interval + MANY, stamp) if shared else stamp
        now = self._set(self._writer[width], index, mine, width)
        lost = now != mine
        if self.race and lost.any():
            # Several waves wrote the same dword in this very instruction; the data shows whether they agreed.
            clash = lost & (_dwords(table[index], index) != value.view(np.int32))
            if clash.any():
                self._complain(clash, now, stamp, "writes", "written")
            self._set_many(self._writer[width], index, lost, now, interval)

    def write_narrow(self, byte: np.ndarray, size: int, value: np.ndarray, stamp: np.ndarray) -> None:
        """Write 1 or 2 bytes at ``byte`` int64[k], an index into the LDS of all workgroups; value uint32[k]."""
        dtype = _NARROW[size]
        place, value = byte // size, value.astype(dtype)
        table = self.data.view(dtype)
        if not (self.race or self.strict):
            table[place] = value
            return
        column, interval = _columns(stamp)
        word = byte // 4
        writer = _dwords(self.writer[word], word)
        flying = writer >= IN_FLIGHT
        if flying.any():
            self._complain(flying, writer, column, "writes", "written")
        if self.race:
            self._check_readers(word, 4, column, interval)
            old = self._byte_writer[byte][:, None]
            clash = (old >= interval) & (old != column) & (table[place] != value)[:, None]
            if clash.any():
                self._complain(clash, old, column, "writes", "written")
        table[place] = value
        if self.race:
            self._byte_writer[byte] = stamp
            now = self._byte_writer[byte][:, None]
            clash = (now != column) & (table[place] != value)[:, None]
            if clash.any():
                self._complain(clash, now, column, "writes", "written")
        other = (writer >= interval) & (writer != column)
        mine = np.where(other, interval + MANY, column)
        now = self._set(self.writer, word, mine, 4)
        self._set_many(self.writer, word, now != mine, now, interval)

    # ------------------------------------------------------------------ waits and barriers

    def land(self, touch: LdsTouch, stamp: np.ndarray) -> None:
        """A direct-to-LDS load retires, in the current barrier interval of its wave."""
        self._set(self._writer[touch.width], touch.index, _columns(stamp)[0], touch.width)

    def carry_over(self, touch: LdsTouch, stamp: np.ndarray) -> None:
        """An LDS access that was not waited for before a barrier may still happen after it."""
        if touch.what is Footprint.READ:
            self._note_read(touch.index, touch.width, stamp)
        elif touch.what is Footprint.WRITE:
            self._set(self._writer[touch.width], touch.index, _columns(stamp)[0], touch.width)

    # ------------------------------------------------------------------ shadow

    def _note_read(self, index: np.ndarray, width: int, stamp: np.ndarray) -> None:
        if not (self.race or self.strict):
            return
        stamp, interval = _columns(stamp)
        writer = _dwords(self._writer[width][index], index)
        clash = (writer >= interval) & (writer != stamp)
        if clash.any():
            self._complain(clash, writer, stamp, "reads", "written")
        if not self.race:
            return
        table = self._reader[width]
        seen = _dwords(table[index], index)
        other = (seen >= interval) & (seen != stamp)
        mine = np.where(other, interval + MANY, stamp) if other.any() else stamp
        now = self._set(table, index, mine, width)
        self._set_many(table, index, now != mine, now, interval)

    def _check_readers(self, index: np.ndarray, width: int, stamp: np.ndarray, interval: np.ndarray) -> None:
        reader = _dwords(self._reader[width][index], index)
        clash = (reader >= interval) & (reader != stamp)
        if clash.any():
            self._complain(clash, reader, stamp, "overwrites", "read")

    def _set(self, table: np.ndarray, index: np.ndarray, stamp: np.ndarray, width: int) -> np.ndarray:
        """Stamp elements; returns the stamps then found, int32[k, dwords] (they differ where lanes collide)."""
        dwords = width // 4 * (index.shape[1] if index.ndim == 2 else 1)
        full = np.ascontiguousarray(np.broadcast_to(stamp, (len(index), dwords)), np.int32)
        table[index] = full.view(table.dtype).reshape(index.shape)
        return _dwords(table[index], index)

    def _set_many(self, table: np.ndarray, index: np.ndarray, lost: np.ndarray, now: np.ndarray, interval) -> None:
        """Mark dwords that several waves touched in one instruction."""
        rows = _any_column(lost)
        if rows.any():
            both = np.where(lost[rows], (interval + MANY)[rows], now[rows])
            table[index[rows]] = both.view(table.dtype).reshape(index[rows].shape)

    def _complain(self, clash: np.ndarray, other: np.ndarray, stamp: np.ndarray, verb: str, done: str) -> None:
        row, column = np.argwhere(clash)[0]
        found = int(other[row, column])
        if found >= IN_FLIGHT:
            raise PendingAccessError(InFlight(found - IN_FLIGHT, verb))
        if not self.race:
            return
        wave = int(np.broadcast_to(stamp, other.shape)[row, column]) % STAMP_WAVES - 1
        code = found % STAMP_WAVES
        who = "several waves have" if code == MANY else f"wave {code - 1} has"
        raise LdsRaceError(f"wave {wave} {verb} LDS that {who} {done} since the last barrier")


class InFlight(str):
    """Message about a touched in-flight dword; ``step`` is the load, whose text the scheduler adds."""

    step: int

    def __new__(cls, step: int, verb: str) -> "InFlight":
        text = super().__new__(cls, f"{verb} LDS that a direct-to-LDS load has not filled yet")
        text.step = step
        return text


def _columns(stamp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stamps int32[k] as a column, and the first stamp of each one's interval."""
    column = stamp.reshape(-1, 1)
    return column, column & np.int32(-STAMP_WAVES)


def _dwords(elements: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Gathered elements as int32[k, dwords]."""
    return elements.view(np.int32).reshape(len(index), -1)


def _any_column(flags: np.ndarray) -> np.ndarray:
    """``flags.any(axis=1)`` for bool[k, n], much faster for the small n of a dword, two or four."""
    flags = np.ascontiguousarray(flags)
    packed = {1: np.uint8, 2: np.uint16, 4: np.uint32}.get(flags.shape[1])
    return np.any(flags, axis=1) if packed is None else np.not_equal(flags.view(packed)[:, 0], 0)
