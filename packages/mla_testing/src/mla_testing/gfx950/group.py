"""A group of waves with access to everything an executor needs: memory, LDS, outstanding operations, reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .errors import EmulationError
from .global_race import Owner
from .hazards import Kind, LdsTouch, Operation, Outstanding
from .memory import KERNARG, Region
from .registers import LANES, Group

if TYPE_CHECKING:
    from .machine import Machine


class WaveGroup(Group):
    """A group with access to memory, LDS and the outstanding operations; what executors receive."""

    machine: Machine
    outstanding: Outstanding
    step: int  # index of the instruction being executed

    def bind(self, machine: Machine) -> None:
        """Connect to the machine whose waves these are."""
        self.machine = machine
        self.memory, self.lds = machine.memory, machine.lds
        self.poison = machine.poison
        self.bounds = machine.checks.bounds
        self.workgroup = machine.workgroup_of[self.waves]
        # One entry per lane, [waves, 64]: wave slot, first dword of the workgroup's LDS, and (refreshed) LDS stamp.
        self.slot = _per_lane(self.waves)
        self.lds_base = _per_lane(self.workgroup * self.lds.words)
        self.linear_workgroup = machine.linear_workgroup[self.workgroup]
        self.wave_id = machine.wave_id[self.waves]
        self.bytes_read = self.bytes_written = self.bytes_lds = 0
        self.refresh_stamps()

    def refresh_stamps(self) -> None:
        """Take over the barrier interval that the workgroups are in now."""
        self.stamp = _per_lane(self.machine.stamps(self.waves))

    def issue(self, operation: Operation) -> None:
        """Start an operation that the wait counters see."""
        for retired in self.outstanding.issue(operation):
            self.machine.retire(retired)

    def issue_lds(self, registers: int, touches: list[LdsTouch]) -> None:
        """Start an LDS operation."""
        self.issue(Operation(Kind.LDS, self.step, registers, tuple(touches)))

    def wait(self, vmcnt: int | None, lgkmcnt: int | None) -> None:
        """Retire what these counts guarantee."""
        for operation in self.outstanding.wait(vmcnt, lgkmcnt):
            self.machine.retire(operation)

    def note_global_read(self, address: np.ndarray, size: int, active: np.ndarray | None) -> None:
        """Tell the race detector about loads."""
        detector = self.machine.global_race
        if detector is not None:
            self._note(detector.read, address, size, active)

    def note_global_write(self, address: np.ndarray, size: int, active: np.ndarray | None) -> None:
        """Tell the race detector, and whoever spins on memory, about stores."""
        self.machine.progress += 1
        detector = self.machine.global_race
        if detector is not None:
            self.machine.unshared[self.waves] = True
            self._note(detector.write, address, size, active)

    def note_atomic(self, address: np.ndarray, active: np.ndarray | None) -> None:
        """Tell the race detector about atomics: they may publish and acquire."""
        detector = self.machine.global_race
        if detector is None:
            return
        owner = self._owner(active)
        slots = owner.per_address(self.waves, len(address)).tolist()
        waited = not any(o.stores for o in self.outstanding.vmem)
        for place, slot in dict.fromkeys(zip(address.tolist(), slots, strict=True)):
            workgroup, wave = self.machine.identity(slot)
            detector.atomic(place, workgroup, wave, waited and self.machine.knows_all_stores(slot))

    def release_fence(self) -> None:
        """buffer_wbl2."""
        detector = self.machine.global_race
        if detector is not None:
            for slot in self.waves.tolist():
                if self.machine.knows_all_stores(slot):
                    detector.release(self.machine.identity(slot)[0])

    def acquire_fence(self) -> None:
        """buffer_inv."""
        detector = self.machine.global_race
        if detector is not None:
            for slot in self.waves.tolist():
                detector.acquire(*self.machine.identity(slot))

    def _owner(self, active: np.ndarray | None) -> Owner:
        return Owner(self.linear_workgroup, self.wave_id, active)

    def _note(
        self,
        record: Callable[[Region, np.ndarray, int, Owner], None],
        address: np.ndarray,
        size: int,
        active: np.ndarray | None,
    ) -> None:
        owner = self._owner(active)
        low, high = int(address.min()), int(address.max()) + size
        region = self.memory.locate(low, high)
        if region is not None:
            if region.name != KERNARG:
                record(region, address, size, owner)
            return
        workgroup, wave = (owner.per_address(x, len(address)) for x in (owner.workgroup, owner.wave))
        for region, chosen in self.memory.split(address, size):
            if region.name != KERNARG:
                record(region, address[chosen], size, Owner(workgroup[chosen], wave[chosen], None))

    def fail(self, message: str) -> None:
        """Raise an error that the scheduler completes with the place."""
        raise EmulationError(message)


def _per_lane(values: np.ndarray) -> np.ndarray:
    return np.repeat(values[:, None], LANES, axis=1)
