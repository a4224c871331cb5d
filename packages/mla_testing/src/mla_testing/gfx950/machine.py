"""The workgroups that are resident together, and the scheduler that runs their waves in lockstep.

All runnable waves at the lowest program counter form a group and execute together until they diverge, meet others
waiting further on, or reach a barrier. Always running the hindmost waves makes branches reconverge: a group that left
a loop early waits at the exit until the others arrive, then they go on as one.

A workgroup that spins on memory would starve the others under that rule. Waves whose state repeats exactly are parked
until global memory changes (see spinning.py). When every wave is parked or waits at a barrier, that is a deadlock.
"""

from enum import IntEnum

import numpy as np

from .checks import Checks
from .errors import DeadlockError, EmulationError, PendingAccessError
from .global_race import GlobalRaceDetector
from .group import WaveGroup
from .hazards import Footprint, Operation, Outstanding, merge
from .kernel import Kernel
from .lds_memory import STAMP_WAVES, LdsMemory
from .memory import Memory
from .registers import RegisterFile
from .registry import Control
from .spinning import SpinWatch


class Status(IntEnum):
    """What a wave is doing."""

    RUN = 0
    BARRIER = 1
    PARKED = 2  # spins on memory
    DONE = 3


class Machine:
    """``workgroups`` x ``waves_per_workgroup`` resident waves of one kernel."""

    def __init__(
        self,
        kernel: Kernel,
        memory: Memory,
        checks: Checks,
        workgroups: np.ndarray,  # int64[n, 3] grid coordinates
        linear_workgroup: np.ndarray,  # int64[n] position in the grid
        waves_per_workgroup: int,
        lds_bytes: int,
        poison: int | None,
        global_race: GlobalRaceDetector | None,
        reverse: bool = False,
        max_jumps: int | None = None,
    ):
        self.kernel, self.memory, self.checks, self.poison = kernel, memory, checks, poison
        self.global_race = global_race
        self.workgroups, self.linear_workgroup = workgroups, linear_workgroup
        self.count = len(workgroups) * waves_per_workgroup
        fill = poison if poison is not None else 0
        self.registers = RegisterFile(kernel.vector_rows, self.count, fill, (kernel.program.abi.scratch_bytes + 3) // 4)
        self.lds = LdsMemory(len(workgroups), lds_bytes, fill, checks.race, checks.strict)
        self.workgroup_of = np.repeat(np.arange(len(workgroups)), waves_per_workgroup)
        self.wave_id = np.tile(np.arange(waves_per_workgroup), len(workgroups))
        if reverse:
            self.wave_id = self.wave_id[::-1].copy()
        self.interval = np.ones(len(workgroups), np.int64)  # barriers passed + 1
        self.pc = np.zeros(self.count, np.int64)
        self.status = np.full(self.count, Status.RUN, np.int8)
        self.queue = [Outstanding()] * self.count
        self.progress = 0  # global writes and finished waves so far
        self.parked_at = np.zeros(self.count, np.int64)
        self.unshared = np.zeros(self.count, bool)  # has stored to global memory since the last barrier
        self.spin_watch = SpinWatch(max_jumps)
        self.hits = np.zeros(len(kernel.steps), np.int64)  # executions per instruction
        self.bytes_read = self.bytes_written = self.bytes_lds = 0
        self._groups: dict[bytes, WaveGroup] = {}

    def stamps(self, waves: np.ndarray) -> np.ndarray:
        """int32 LDS stamps of waves in the current barrier interval of their workgroup."""
        return (self.interval[self.workgroup_of[waves]] * STAMP_WAVES + self.wave_id[waves] + 1).astype(np.int32)

    @property
    def finished(self) -> bool:
        return bool((self.status == Status.DONE).all())

    def wake(self) -> None:
        """Let parked waves look at memory again: another batch may have written it."""
        self.status[self.status == Status.PARKED] = Status.RUN

    def run(self) -> bool:
        """Run until every wave is done (True), or all that remain are parked on memory (False)."""
        while True:
            runnable = np.flatnonzero(self.status == Status.RUN)
            if not len(runnable):
                if self.finished:
                    return True
                parked = self.status == Status.PARKED
                awake = parked & (self.parked_at != self.progress)
                if not awake.any():
                    return False
                self.status[awake] = Status.RUN
                continue
            self._run_group(*self._choose(runnable))

    def _choose(self, runnable: np.ndarray) -> tuple[np.ndarray, Outstanding, float]:
        """The hindmost waves that can go on together, their queue, and the pc at which others wait."""
        pcs = self.pc[runnable]
        lowest = pcs.min()
        others = pcs[pcs > lowest]
        limit = int(others.min()) if len(others) else float("inf")
        waves = runnable[pcs == lowest]
        queues = {id(self.queue[w]): self.queue[w] for w in waves}
        if len(queues) == 1:
            (queue,) = queues.values()
            return waves, queue.restrict(waves), limit
        signature = self.queue[waves[0]].signature()
        waves = np.array([w for w in waves if self.queue[w].signature() == signature])
        # A queue may still name waves that went on with a restricted copy of it: what they touched landed with them.
        parts = []
        for queue in queues.values():
            if queue.signature() == signature:
                parts.append(queue.restrict(np.array([w for w in waves if self.queue[w] is queue])))
        return waves, parts[0] if len(parts) == 1 else merge(parts), limit

    def _open(self, waves: np.ndarray, queue: Outstanding) -> WaveGroup:
        group = self._groups.get(waves.tobytes())
        if group is None:
            group = WaveGroup(self.registers, waves)
            group.bind(self)
            if group.is_view or len(self._groups) < 64:
                self._groups[waves.tobytes()] = group
        else:
            group.reload()
            group.refresh_stamps()
        group.outstanding = queue
        for wave in waves:
            self.queue[wave] = queue
        return group

    def _close(self, group: WaveGroup, pc: int | np.ndarray, status: Status) -> None:
        group.flush()
        self.pc[group.waves] = pc
        self.status[group.waves] = status

    def _run_group(self, waves: np.ndarray, queue: Outstanding, limit: float) -> None:
        """Execute until the waves part, stop, or reach the place where others wait."""
        group = self._open(waves, queue)
        steps, count = self.kernel.fast_steps, group.count
        hits = [0] * len(steps)
        pc = int(self.pc[waves[0]])
        strict = self.checks.strict
        try:
            while True:
                execute, uses, control, target = steps[pc]
                group.step = pc
                if strict and queue.registers & uses:
                    self._pending(group, pc, uses)
                hits[pc] += 1
                following: int | None = pc + 1
                if control is Control.NEXT:
                    execute(group)
                elif control is Control.BRANCH:
                    following = self._branch(group, pc, execute(group), target)
                elif control is Control.BARRIER:
                    following = pc + 1 if self._barrier(group, pc + 1) else None
                else:
                    self._finish(group, pc)
                    following = None
                if following is None:
                    return
                pc = following
                if pc >= limit:
                    self._close(group, pc, Status.RUN)
                    return
        except EmulationError as error:
            raise type(error)(self._locate(error, group, pc)) from error
        finally:
            self.hits += np.array(hits) * count
            self.bytes_read += group.bytes_read
            self.bytes_written += group.bytes_written
            self.bytes_lds += group.bytes_lds
            group.bytes_read = group.bytes_written = group.bytes_lds = 0

    def _branch(self, group: WaveGroup, pc: int, taken: np.ndarray | bool, target: int) -> int | None:
        """Where the group goes on, or None if it does not go on as one."""
        jumps = taken is True or bool(np.all(taken))
        if not jumps and np.any(taken):
            self._close(group, np.where(taken, target, pc + 1), Status.RUN)
            return None
        if not jumps:
            return pc + 1
        if target <= pc:
            state = [group.s_file, group.scc, group.vector, group.scratch]
            since = self.spin_watch.visit(group.waves.tobytes(), target, state, self.progress)
            if since is not None:
                self._close(group, target, Status.RUN)
                self._park(group.waves, since)
                return None
        return target

    # ------------------------------------------------------------------ barriers and the end

    def _barrier(self, group: WaveGroup, resume: int) -> bool:
        """True when the whole group may go straight on."""
        self._close(group, resume, Status.BARRIER)
        self._release(np.unique(group.workgroup))
        ready = (self.status == Status.RUN) & (self.pc == resume)
        # Waves that were waiting here already join in: then the scheduler has to form a new group.
        if int(np.count_nonzero(ready)) == group.count and ready[group.waves].all():
            group.refresh_stamps()
            return True
        return False

    def _release(self, workgroups: np.ndarray) -> None:
        """Let workgroups go on whose live waves have all arrived."""
        arrived = self.status == Status.BARRIER
        blocking = np.zeros(len(self.workgroups), bool)
        np.logical_or.at(blocking, self.workgroup_of[~arrived & (self.status != Status.DONE)], True)
        released = workgroups[~blocking[workgroups]]
        if not len(released):
            return
        self.interval[released] += 1
        waves = np.flatnonzero(arrived & np.isin(self.workgroup_of, released))
        self.status[waves] = Status.RUN
        self.unshared[waves] = False
        if self.global_race is not None:
            for workgroup in released.tolist():
                self.global_race.barrier(int(self.linear_workgroup[workgroup]))
        for queue in {id(self.queue[w]): self.queue[w] for w in waves}.values():
            for operation in queue.lgkm:
                for touch in operation.touches:
                    if touch.what is not Footprint.DMA:
                        touch = touch.restrict(waves)
                        self.lds.carry_over(touch, self.stamps(touch.wave))
        for workgroup in released.tolist():
            self._watch_barrier(workgroup)

    def _watch_barrier(self, workgroup: int) -> None:
        """Park a workgroup that passes barriers without getting anywhere."""
        waves = np.flatnonzero((self.workgroup_of == workgroup) & (self.status == Status.RUN))
        columns = slice(int(waves[0]), int(waves[-1]) + 1)
        file, words = self.registers, self.lds.words
        lds = self.lds.data[workgroup * words : (workgroup + 1) * words]
        state = [file.scalar[:, columns], file.scc[columns], file.vector[:, columns], file.scratch[:, columns], lds]
        since = self.spin_watch.visit(workgroup, int(self.pc[waves].max()), state, self.progress)
        if since is not None:
            self._park(waves, since)

    def _finish(self, group: WaveGroup, pc: int) -> None:
        group.wait(0, 0)  # the hardware completes what is outstanding
        self._close(group, pc, Status.DONE)
        self.progress += 1
        waiting = np.unique(self.workgroup_of[self.status == Status.BARRIER])
        if len(waiting):
            self._release(waiting)

    def _park(self, waves: np.ndarray, since: int) -> None:
        """Wait until ``progress`` differs from ``since``."""
        self.status[waves] = Status.PARKED
        self.parked_at[waves] = since

    def retire(self, operation: Operation) -> None:
        for touch in operation.touches:
            if touch.what is Footprint.DMA and len(touch.wave):
                self.lds.land(touch, self.stamps(touch.wave))

    def identity(self, slot: int) -> tuple[int, int]:
        """(linear workgroup, wave within it) of a wave slot."""
        return int(self.linear_workgroup[self.workgroup_of[slot]]), int(self.wave_id[slot])

    def knows_all_stores(self, slot: int) -> bool:
        """Whether a barrier lies between every other wave's stores and what this wave does now."""
        others = self.unshared[self.workgroup_of == self.workgroup_of[slot]]
        return int(np.count_nonzero(others)) == int(self.unshared[slot])

    # ------------------------------------------------------------------ reports

    def _pending(self, group: WaveGroup, pc: int, uses: int) -> None:
        culprit = group.outstanding.culprit(uses)
        names = _register_names(culprit.registers & uses)
        raise PendingAccessError(
            f"uses {names} while it is still being loaded by {self.kernel.steps[culprit.step].instruction}"
        )

    def _locate(self, error: EmulationError, group: WaveGroup, pc: int) -> str:
        message = str(error)
        step = getattr(error.args[0], "step", None) if error.args else None
        if step is not None:
            message += f" (issued at {self.kernel.steps[step].instruction})"
        where = tuple(int(x) for x in self.workgroups[group.workgroup[0]])
        return f"{self.kernel.program.name}: {self.kernel.steps[pc].instruction}: {message} [workgroup {where}]"

    def deadlock(self) -> DeadlockError:
        lines = []
        for index, coordinates in enumerate(self.workgroups):
            for wave in np.flatnonzero((self.workgroup_of == index) & (self.status != Status.DONE)):
                item = self.kernel.steps[min(self.pc[wave], len(self.kernel.steps) - 1)].instruction
                what = "waits at a barrier before" if self.status[wave] == Status.BARRIER else "spins at"
                place = tuple(int(x) for x in coordinates)
                lines.append(f"workgroup {place} wave {self.wave_id[wave]} {what} {item}")
        shown = "\n  ".join(lines[:16]) + ("\n  ..." if len(lines) > 16 else "")
        return DeadlockError(f"{self.kernel.program.name}: deadlock:\n  {shown}")


def _register_names(bits: int) -> str:
    names = []
    for index in range(bits.bit_length()):
        if bits >> index & 1:
            names.append(f"v{index}" if index < 256 else f"a{index - 256}" if index < 512 else f"s{index - 512}")
    return ", ".join(names)
