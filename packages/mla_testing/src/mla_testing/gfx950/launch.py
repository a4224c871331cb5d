"""Run one kernel over a grid: kernarg segment, initial registers, batches of resident workgroups."""

import ctypes
import struct
import time
from collections.abc import Sequence

import attrs
import numpy as np

from .checks import POISON, Checks
from .errors import EmulationError
from .global_race import GlobalRaceDetector
from .kernel import Kernel
from .machine import Machine
from .memory import KERNARG, Memory, Region
from .operands import M32
from .registers import LANE, LANES

RESIDENT_WAVES = 128  # waves emulated side by side: wide enough to hide interpreter overhead, small enough for caches
_INTEGER = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


@attrs.frozen
class Execution:
    """What one launch did."""

    instructions: dict[str, int]  # wave instructions by class
    bytes_read: int  # from global memory
    bytes_written: int
    bytes_lds: int
    seconds: float
    lines: frozenset[int] = attrs.field(repr=False)  # lines of the assembly text that were executed

    @property
    def total(self) -> int:
        return sum(self.instructions.values())


def execute(
    kernel: Kernel,
    grid: tuple[int, int, int],
    num_warps: int,
    arguments: Sequence[int | float],
    memory: Memory,
    lds_bytes: int,
    checks: Checks,
    reverse: bool = False,
    resident_waves: int = RESIDENT_WAVES,
    max_jumps: int | None = None,
) -> Execution:
    """Run all workgroups. ``arguments``: pointers as addresses, in kernarg order, hidden ones excluded.

    ``reverse`` runs workgroups, and the waves within them, from the last to the first wherever an order exists.
    ``max_jumps`` bounds the backward jumps of each group of waves.
    """
    started = time.perf_counter()
    block, keep = _kernarg(kernel, grid, num_warps, arguments)
    memory.add(Region(KERNARG, block, len(keep), keep=keep))
    coordinates = np.stack(np.unravel_index(np.arange(int(np.prod(grid))), grid[::-1])[::-1], axis=1).astype(np.int64)
    linear = np.arange(len(coordinates))
    if reverse:
        coordinates, linear = coordinates[::-1], linear[::-1]
    detector = GlobalRaceDetector(len(coordinates)) if checks.global_race and len(coordinates) > 1 else None
    per_batch = max(1, resident_waves // num_warps)
    waiting: list[Machine] = []
    machines: list[Machine] = []
    with np.errstate(all="ignore"):
        for first in range(0, len(coordinates), per_batch):
            chosen = slice(first, first + per_batch)
            machine = Machine(
                kernel,
                memory,
                checks,
                coordinates[chosen],
                linear[chosen],
                num_warps,
                lds_bytes,
                POISON if checks.poison else None,
                detector,
                reverse,
                max_jumps,
            )
            _start(machine, block)
            machines.append(machine)
            waiting.append(machine)
            waiting = _round_robin(waiting)
        if waiting:
            raise waiting[0].deadlock()
    return _summary(kernel, machines, time.perf_counter() - started)


def _round_robin(machines: list[Machine]) -> list[Machine]:
    """Run batches until none of them gets any further; returns those that are not done."""
    while True:
        before = sum(m.progress for m in machines)
        for machine in machines:
            machine.wake()
            machine.run()
        left = [m for m in machines if not m.finished]
        if not left or sum(m.progress for m in machines) == before:
            return left
        machines = left


def _kernarg(kernel: Kernel, grid: tuple[int, int, int], num_warps: int, arguments: Sequence[int | float]):
    """The kernarg segment, 64-byte aligned: (address, bytes)."""
    abi = kernel.program.abi
    size = max(abi.kernarg_size, max((a.offset + a.size for a in abi.arguments), default=0)) + 64
    buffer = ctypes.create_string_buffer(size + 64)
    address = (ctypes.addressof(buffer) + 63) & ~63
    view = memoryview(buffer).cast("B")[address - ctypes.addressof(buffer) :][:size]
    explicit = [a for a in abi.arguments if not a.kind.startswith("hidden_")]
    if len(explicit) != len(arguments):
        raise EmulationError(f"{kernel.program.name} takes {len(explicit)} arguments, got {len(arguments)}")
    values = list(zip(explicit, arguments, strict=True))
    threads = (num_warps * LANES, 1, 1)
    for argument in abi.arguments:
        for prefix, triple in (("hidden_block_count_", grid), ("hidden_group_size_", threads)):
            if argument.kind.startswith(prefix):
                values.append((argument, triple["xyz".index(argument.kind[-1])]))
    for argument, value in values:
        if isinstance(value, float):
            packed = struct.pack({2: "<e", 4: "<f", 8: "<d"}[argument.size], value)
        else:
            packed = struct.pack(_INTEGER[argument.size], value & ((1 << 8 * argument.size) - 1))
        view[argument.offset : argument.offset + argument.size] = packed
    return address, view


def _start(machine: Machine, kernarg: int) -> None:
    """Registers as the hardware sets them before the first instruction."""
    abi = machine.kernel.program.abi
    scalar = machine.registers.scalar
    position = abi.sgpr_offsets.get("kernarg_segment_ptr")
    if position is not None:
        scalar[position], scalar[position + 1] = kernarg & M32, kernarg >> 32
    position = abi.user_sgpr_count
    for axis in range(3):
        if abi.workgroup_id_enabled[axis]:
            scalar[position] = machine.workgroups[machine.workgroup_of, axis]
            position += 1
    # Work-item ids are packed x | y << 10 | z << 20; Triton launches one-dimensional workgroups.
    machine.registers.vector[machine.registers.row_of[0]] = machine.wave_id[:, None] * LANES + LANE


def _summary(kernel: Kernel, machines: list[Machine], seconds: float) -> Execution:
    hits = sum((m.hits for m in machines), np.zeros(len(kernel.steps), np.int64))
    counts: dict[str, int] = {}
    for step, count in zip(kernel.steps, hits, strict=True):
        counts[step.category] = counts.get(step.category, 0) + int(count)
    return Execution(
        counts,
        sum(m.bytes_read for m in machines),
        sum(m.bytes_written for m in machines),
        sum(m.bytes_lds for m in machines),
        seconds,
        frozenset(step.instruction.line for step, count in zip(kernel.steps, hits, strict=True) if count),
    )
