"""A wavefront emulator: runs the gfx950 code that Triton compiles on a machine without that GPU.

Use it through :func:`mla_testing.emulate`. docs/emulator.md says what it checks and what it does not.

    asm, registry, operands       text -> instructions -> executors
    registers, memory,            what executors act on: register files of many waves, tensors, LDS with its shadow,
    lds_memory, hazards           outstanding loads
    scalar, vector_*, convert,    the instruction families
    crosslane, matrix, lds,
    buffer, flat, control
    machine, launch               scheduling of waves and workgroups
    driver, session               Triton's side: launch kernels on CPU tensors, record what ran
"""

from .checks import Checks
from .errors import (
    DeadlockError,
    EmulationError,
    GlobalRaceError,
    LdsRaceError,
    MisalignedAccessError,
    OutOfBoundsError,
    PendingAccessError,
    PoisonError,
    UninitialisedOutputError,
    UnknownInstructionError,
)
from .session import LaunchRecord, Session

__all__ = [
    "Checks",
    "DeadlockError",
    "EmulationError",
    "GlobalRaceError",
    "LaunchRecord",
    "LdsRaceError",
    "MisalignedAccessError",
    "OutOfBoundsError",
    "PendingAccessError",
    "PoisonError",
    "Session",
    "UninitialisedOutputError",
    "UnknownInstructionError",
]
