"""A decoded kernel: steps, register rows, and the ABI it expects."""

import functools
from collections.abc import Iterable

import attrs
import numpy as np

from .asm import Program, parse
from .instruction_set import decode
from .operands import ACC_BASE, parse_register, strip_modifiers
from .registers import vector_rows
from .registry import Step


@attrs.frozen(eq=False)
class Kernel:
    """What the scheduler runs."""

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
        return cls(program, steps, fast, register_rows(program))


def register_rows(program: Program, also: Iterable[int] = ()) -> np.ndarray:
    """Numbers of the vector registers that the kernel names (or ``also`` does), without gaps from v0 and a0 on."""
    numbers = {0, *also}  # v0 holds the work-item id
    for item in program.instructions:
        for text in item.operands:
            found = parse_register(strip_modifiers(text)[2])
            if found is not None and found.vector:
                numbers.add(found.index + found.count - 1)
    accumulators = [n - ACC_BASE for n in numbers if n >= ACC_BASE]
    return vector_rows(max(n for n in numbers if n < ACC_BASE), max(accumulators, default=-1))


@functools.lru_cache(maxsize=256)
def load_cached(asm: str, name: str) -> Kernel:
    return Kernel.load(asm, name)
