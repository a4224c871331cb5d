"""Scalar loads: one address per wave, results in SGPRs, returned in any order."""

import numpy as np

from .asm import Instruction
from .hazards import Kind, Operation
from .operands import register, scalar_u32, scalar_u64
from .registry import Executor, Labels, instruction

I64, U64 = np.int64, np.uint64


@instruction(*(f"s_load_dword{n}" for n in ("", "x2", "x4", "x8", "x16")))
def load(item: Instruction, labels: Labels) -> Executor:
    destination = register(item.operands[0])
    d, count = destination.index, destination.count
    base, offset = scalar_u64(item.operands[1]), scalar_u32(item.operands[2])
    extra = item.number("offset")
    filled = destination.bits()

    def execute(g):
        address = np.broadcast_to(
            (base(g) & ~U64(3)).astype(I64) + (np.asarray(offset(g)).astype(I64) + extra), g.count
        )
        data = g.memory.load(address, 4 * count)
        g.note_global_read(address, 4 * count, None)
        g.s_file[d : d + count] = data.T
        g.bytes_read += data.nbytes
        g.issue(Operation(Kind.SMEM, g.step, filled))

    return execute
