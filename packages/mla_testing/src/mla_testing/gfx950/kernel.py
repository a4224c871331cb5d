"""A decoded kernel: steps, register rows, and the ABI it expects."""

import functools

import attrs
import numpy as np

from .asm import Program, parse
from .instruction_set import decode
from .operands import parse_register, strip_modifiers
from .registers import vector_rows
from .registry import Step


@attrs.frozen(eq=False)
class Kernel:
    program: Program
    steps: tuple[Step, ...]
    fast_steps: tuple[tuple, ...]  # (execute, uses, control, target) per step
    vector_rows: np.ndarray  # register numbers the kernel names: v0.., a0..

    @classmethod
    def load(cls, asm: str, name: str) -> "Kernel":
        """Parse and decode; raises UnknownInstructionError for anything the emulator lacks."""
        program = parse(asm, name)
        steps = decode(program)
        fast = tuple((s.execute, s.uses, s.control, s.target) for s in steps)
        return cls(program, steps, fast, _rows(program))


def _rows(program: Program) -> np.ndarray:
    highest = {False: 0, True: -1}  # v0 holds the work-item id; by "is an AGPR"
    for item in program.instructions:
        for text in item.operands:
            found = parse_register(strip_modifiers(text)[2])
            if found is not None and found.vector:
                accumulator = found.index >= 256
                highest[accumulator] = max(highest[accumulator], found.index % 256 + found.count - 1)
    return vector_rows(highest[False], highest[True])


@functools.lru_cache(maxsize=256)
def load_cached(asm: str, name: str) -> Kernel:
    return Kernel.load(asm, name)
