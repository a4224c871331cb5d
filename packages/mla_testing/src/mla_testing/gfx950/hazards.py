"""What is in flight: the outstanding memory operations of a group, as the wait counters see them.

A wave counts vector-memory operations in ``vmcnt`` and LDS plus scalar-memory operations in ``lgkmcnt``. A value is
defined only once an ``s_waitcnt`` guarantees that its operation has retired:

* vector memory retires in order: ``vmcnt(n)`` retires all but the youngest n;
* LDS operations retire in order among themselves, scalar loads in any order and independently of them, so
  ``lgkmcnt(n)`` retires LDS operations with at least n younger LDS operations, and scalar loads only when n is 0;
* a flat operation counts in both and is ordered with neither: only a count of 0 retires it.

The counters saturate: an operation that would exceed their maximum is not issued before older ones have retired.

The emulator writes results at issue and *forbids touching them* until they retire; that is equivalent to landing late
and needs no buffering.
"""

from enum import Enum

import attrs
import numpy as np

MAX_VMCNT, MAX_LGKMCNT = 63, 15  # largest values of the counters (gfx9 encoding of s_waitcnt)


class Kind(Enum):
    """Which counter an operation is counted in."""

    VMEM = "vmem"
    LDS = "lds"
    SMEM = "smem"
    FLAT = "flat"


class Footprint(Enum):
    """What an operation does to LDS."""

    READ = "read"
    WRITE = "write"
    DMA = "dma"


@attrs.frozen(eq=False)
class LdsTouch:
    """LDS elements an outstanding operation reads or writes, one entry per lane."""

    what: Footprint
    index: np.ndarray  # int64[k], in elements of `width` bytes
    wave: np.ndarray  # wave slot of each entry
    width: int

    def restrict(self, waves: np.ndarray) -> "LdsTouch":
        keep = np.isin(self.wave, waves)
        return LdsTouch(self.what, self.index[keep], self.wave[keep], self.width)


@attrs.frozen(eq=False)
class Operation:
    """One outstanding operation of every wave of a group."""

    kind: Kind
    step: int  # index of the instruction
    registers: int = 0  # registers it will fill (see operands.Registers)
    touches: tuple[LdsTouch, ...] = ()
    stores: bool = False  # writes global memory, or writes caches back


class Outstanding:
    """Issued and not yet retired operations of a group, oldest first."""

    def __init__(self, vmem: list[Operation] | None = None, lgkm: list[Operation] | None = None):
        self.vmem = vmem or []
        self.lgkm = lgkm or []
        self.registers = 0  # union of what all of them will fill
        self._recount()

    def issue(self, operation: Operation) -> list[Operation]:
        """Add an operation; returns what had to retire first because a counter was full."""
        retired = []
        if operation.kind in (Kind.VMEM, Kind.FLAT):
            if len(self.vmem) >= MAX_VMCNT:
                retired += self.wait(MAX_VMCNT - 1, None)
            self.vmem.append(operation)
        if operation.kind is not Kind.VMEM:
            if len(self.lgkm) >= MAX_LGKMCNT:
                retired += self.wait(None, MAX_LGKMCNT - 1)
            self.lgkm.append(operation)
        self.registers |= operation.registers
        return retired

    def wait(self, vmcnt: int | None, lgkmcnt: int | None) -> list[Operation]:
        """Retire what the counts guarantee; returns it, oldest first."""
        retired = []
        if vmcnt is not None:
            retired += _retire(self.vmem, vmcnt, Kind.VMEM)
        if lgkmcnt is not None:
            retired += _retire(self.lgkm, lgkmcnt, Kind.LDS)
        if retired:
            # A flat operation is done once either counter has proved it.
            for queue in (self.vmem, self.lgkm):
                queue[:] = [operation for operation in queue if operation not in retired]
            self._recount()
        return retired

    def culprit(self, registers: int) -> Operation:
        """The oldest operation that fills one of ``registers``."""
        return next(o for o in self.vmem + self.lgkm if o.registers & registers)

    def signature(self) -> tuple[int, ...]:
        """Groups whose waves have the same signature may be merged."""
        return (*(o.step for o in self.vmem), -1, *(o.step for o in self.lgkm))

    def restrict(self, waves: np.ndarray) -> "Outstanding":
        shrink = {}
        for operation in self.vmem + self.lgkm:
            touches = tuple(t.restrict(waves) for t in operation.touches)
            shrink[operation] = attrs.evolve(operation, touches=touches)
        return Outstanding([shrink[o] for o in self.vmem], [shrink[o] for o in self.lgkm])

    def _recount(self) -> None:
        self.registers = 0
        for operation in self.vmem:
            self.registers |= operation.registers
        for operation in self.lgkm:
            self.registers |= operation.registers


def merge(parts: list[Outstanding]) -> Outstanding:
    """Join queues of equal signature."""

    def join(operations: tuple[Operation, ...]) -> Operation:
        touches = tuple(t for operation in operations for t in operation.touches)
        return attrs.evolve(operations[0], touches=touches)

    joined = {}
    for operations in zip(*(p.vmem + p.lgkm for p in parts), strict=True):
        joined[operations[0]] = join(operations)
    return Outstanding([joined[o] for o in parts[0].vmem], [joined[o] for o in parts[0].lgkm])


def _retire(queue: list[Operation], count: int, ordered: Kind) -> list[Operation]:
    """Operations of ``queue`` that are certainly complete once at most ``count`` of it are outstanding."""
    if count == 0:
        return list(queue)
    younger = sum(operation.kind is ordered for operation in queue)
    retired = []
    for operation in queue:
        if operation.kind is ordered:
            younger -= 1
            if younger >= count:
                retired.append(operation)
    return retired
