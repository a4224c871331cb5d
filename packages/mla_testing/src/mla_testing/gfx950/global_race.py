"""Races between workgroups on global memory, within one launch.

Two accesses of the same bytes by different workgroups, at least one of them a write, must be ordered by atomics.
Ordering is tracked with vector clocks. gfx950's L2 caches (one per die) are not coherent, so an atomic alone orders
nothing: a release is a write-back (``buffer_wbl2``), a wait for the stores, and then the atomic; an acquire is the
atomic and then an invalidation (``buffer_inv``). An atomic publishes what its workgroup did before, provided that all of
it was written back; an invalidation takes over what earlier atomics of the wave found published at their addresses.
The other waves of the workgroup take part through barriers, before the release and after the acquire; they need not
wait for their stores, since the waves of a workgroup share the path to L2 (LLVM AMDGPU usage guide, memory model
gfx942, threadgroup split mode off).

Most tensors are either only read or only written. Reads are therefore merely logged until the first write to the same
tensor, so inputs cost almost nothing.
"""

import attrs
import numpy as np

from .errors import GlobalRaceError
from .memory import Region
from .sparse import SparseArray

CLOCK_BITS = 24
MANY = (1 << 38) - 1  # workgroup code: several workgroups have read this
LOG_LIMIT = 1 << 23  # logged addresses per tensor before they are folded into the shadow


@attrs.frozen(eq=False)
class Owner:
    """Workgroups of the waves of an access, and which lanes took part (None: all, in wave order)."""

    workgroup: np.ndarray  # int64[waves]
    wave: np.ndarray  # int64[waves]: number within the workgroup
    active: np.ndarray | None  # bool[waves, 64]

    def per_address(self, values: np.ndarray, count: int) -> np.ndarray:
        """[count]: the value of the wave that each address belongs to."""
        if self.active is None:
            return np.repeat(values, count // len(self.workgroup))
        return values[np.nonzero(self.active)[0]]


class _Shadow:
    """Per element of a tensor: stamp of the last writer and reader, ``(workgroup + 1) << CLOCK_BITS | clock``."""

    def __init__(self, region: Region):
        self.region = region
        self.log: list[tuple[np.ndarray, int, Owner, np.ndarray]] = []
        self.logged = 0
        self.writer: SparseArray | None = None
        self._reader: SparseArray | None = None

    def reader(self) -> SparseArray:
        if self._reader is None:
            self._reader = SparseArray(len(self.region.raw) // self.region.unit, np.int64)
        return self._reader

    def elements(self, address: np.ndarray, size: int) -> np.ndarray:
        """int64[k, n]: the elements each access covers."""
        unit = self.region.unit
        return (address[:, None] - self.region.start) // unit + np.arange(max(1, size // unit))


class GlobalRaceDetector:
    """Shadow of all tensors of one launch, and the vector clocks of its workgroups."""

    def __init__(self, workgroups: int):
        self.workgroups = workgroups
        self.clock = np.ones(workgroups, np.int64)
        self._shadows: dict[int, _Shadow] = {}
        self._dirty = np.zeros(workgroups, bool)  # has stored since its last write-back
        # Clocks of the other workgroups: found published by a wave's atomics; acquired by a wave; and, by number of
        # the workgroup alone, acquired by a wave before the last barrier.
        self._found: dict[tuple[int, int], np.ndarray] = {}
        self._seen: dict[int | tuple[int, int], np.ndarray] = {}
        self._published: dict[int, np.ndarray] = {}  # atomic address -> clocks published there

    def _shadow(self, region: Region) -> _Shadow:
        shadow = self._shadows.get(id(region))
        if shadow is None:
            shadow = self._shadows[id(region)] = _Shadow(region)
        return shadow

    # ------------------------------------------------------------------ accesses

    def read(self, region: Region, address: np.ndarray, size: int, owner: Owner) -> None:
        shadow = self._shadow(region)
        if shadow.writer is None:
            shadow.log.append((address, size, owner, self.clock[owner.workgroup]))
            shadow.logged += len(address)
            if shadow.logged > LOG_LIMIT:
                self._fold(shadow)
            return
        workgroup = owner.per_address(owner.workgroup, len(address))
        elements = shadow.elements(address, size)
        self._check(shadow.writer[elements], owner, "reads what {} writes", region)
        self._mark_read(shadow, elements, workgroup, self.clock[workgroup])

    def write(self, region: Region, address: np.ndarray, size: int, owner: Owner) -> None:
        shadow = self._shadow(region)
        self._fold(shadow)
        if shadow.writer is None:
            shadow.writer = SparseArray(len(region.raw) // region.unit, np.int64)
        workgroup = owner.per_address(owner.workgroup, len(address))
        self._dirty[workgroup] = True
        elements = shadow.elements(address, size)
        if shadow._reader is not None:
            self._check(shadow._reader[elements], owner, "overwrites what {} reads", region)
        self._check(shadow.writer[elements], owner, "writes what {} writes", region)
        stamp = (((workgroup + 1) << CLOCK_BITS) | self.clock[workgroup])[:, None]
        shadow.writer[elements] = stamp
        self._check(shadow.writer[elements], owner, "writes what {} writes", region)

    # ------------------------------------------------------------------ synchronisation

    def atomic(self, address: int, workgroup: int, wave: int, complete: bool) -> None:
        """An atomic on ``address``: find what others have published, and publish.

        ``complete``: the wave has waited for its stores and write-back, and barriers order the other waves' stores.
        """
        published = self._published.setdefault(address, np.zeros(self.workgroups, np.int64))
        found = self._found.setdefault((workgroup, wave), np.zeros(self.workgroups, np.int64))
        np.maximum(found, published, out=found)
        if complete and not self._dirty[workgroup]:
            for key in (workgroup, (workgroup, wave)):
                if key in self._seen:
                    np.maximum(published, self._seen[key], out=published)
            published[workgroup] = self.clock[workgroup]
            self.clock[workgroup] += 1

    def release(self, workgroup: int) -> None:
        """buffer_wbl2 by a wave that knows of all stores of its workgroup."""
        self._dirty[workgroup] = False

    def acquire(self, workgroup: int, wave: int) -> None:
        """buffer_inv by a wave."""
        key = workgroup, wave
        if key in self._found:
            self._seen[key] = np.maximum(self._seen.get(key, 0), self._found[key])

    def barrier(self, workgroup: int) -> None:
        """What any wave has acquired now holds for all."""
        for key in [k for k in self._seen if isinstance(k, tuple) and k[0] == workgroup]:
            self._seen[workgroup] = np.maximum(self._seen.get(workgroup, 0), self._seen[key])

    # ------------------------------------------------------------------ helpers

    def _fold(self, shadow: _Shadow) -> None:
        for address, size, owner, clock in shadow.log:
            workgroup = owner.per_address(owner.workgroup, len(address))
            clocks = owner.per_address(clock, len(address))
            self._mark_read(shadow, shadow.elements(address, size), workgroup, clocks)
        shadow.log.clear()
        shadow.logged = 0

    def _mark_read(self, shadow: _Shadow, elements: np.ndarray, workgroup: np.ndarray, clock: np.ndarray) -> None:
        reader = shadow.reader()
        stamp = np.broadcast_to((((workgroup + 1) << CLOCK_BITS) | clock)[:, None], elements.shape)
        old = reader[elements]
        other = (old != 0) & (old >> CLOCK_BITS != stamp >> CLOCK_BITS)
        reader[elements] = np.where(other, MANY << CLOCK_BITS, stamp)
        lost = reader[elements] >> CLOCK_BITS != stamp >> CLOCK_BITS
        if lost.any():
            reader[elements[lost]] = MANY << CLOCK_BITS

    def _check(self, found: np.ndarray, owner: Owner, message: str, region: Region) -> None:
        workgroup = owner.per_address(owner.workgroup, len(found))
        me = workgroup[:, None] + 1
        suspicious = (found != 0) & (found >> CLOCK_BITS != me)
        if not suspicious.any():
            return
        wave = owner.per_address(owner.wave, len(found))
        for row, column in np.argwhere(suspicious):
            other = (int(found[row, column]) >> CLOCK_BITS) - 1
            clock = int(found[row, column]) & ((1 << CLOCK_BITS) - 1)
            mine = int(workgroup[row])
            if other + 1 == MANY:
                # Which workgroups read is not kept; with atomics around they may well be ordered.
                if self._published:
                    continue
                who = "several workgroups"
            else:
                if any(k in self._seen and self._seen[k][other] >= clock for k in (mine, (mine, int(wave[row])))):
                    continue
                who = f"workgroup {other}"
            text = message.format(who)
            raise GlobalRaceError(f"workgroup {mine} {text}, with no release and acquire in between, in {region.name}")
