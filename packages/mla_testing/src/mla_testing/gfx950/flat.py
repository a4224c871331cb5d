"""Global and scratch instructions: plain addresses per lane, or an SGPR base plus a 32-bit lane offset."""

import numpy as np

from .asm import Instruction
from .hazards import Kind, Operation
from .operands import Accessor, register, scalar_u64, source_u32, source_u64, vgpr
from .registry import Executor, Labels, instruction
from .vmem import LDS_LOADS, LOADS, STORES, load, load_to_lds, store

I64 = np.int64


def global_address(item: Instruction, vaddr: str, saddr: str) -> Accessor:
    """int64[waves, 64]: a 64-bit VGPR pair, or SGPR pair + 32-bit VGPR; plus the instruction offset."""
    offset = item.number("offset")
    if saddr == "off":
        pair = source_u64(vaddr)
        return lambda g: np.broadcast_to(pair(g), (g.count, 64)).view(I64) + offset
    lane, base = source_u32(vaddr), scalar_u64(saddr)
    return lambda g: np.broadcast_to(lane(g), (g.count, 64)).astype(I64) + (base(g).astype(I64) + offset)[:, None]


@instruction(*(f"global_load_{kind}" for kind in LOADS))
def global_load(item: Instruction, labels: Labels) -> Executor:
    kind = item.opcode.removeprefix("global_load_")
    d, filled = vgpr(item.operands[0]), register(item.operands[0]).bits()
    address = global_address(item, item.operands[1], item.operands[2])

    def execute(g):
        load(g, d, kind, address(g), g.em, zero_rest=False)
        g.issue(Operation(Kind.VMEM, g.step, filled))

    return execute


@instruction(*(f"global_load_lds_{kind}" for kind in LDS_LOADS))
def global_load_lds(item: Instruction, labels: Labels) -> Executor:
    kind = item.opcode.removeprefix("global_load_lds_")
    address = global_address(item, item.operands[0], item.operands[1])
    return lambda g: load_to_lds(g, item, kind, address(g), g.em)


@instruction(*(f"global_store_{kind}" for kind in STORES))
def global_store(item: Instruction, labels: Labels) -> Executor:
    kind = item.opcode.removeprefix("global_store_")
    first = vgpr(item.operands[1])
    address = global_address(item, item.operands[0], item.operands[2])

    def execute(g):
        store(g, first, kind, address(g), g.em)
        g.issue(Operation(Kind.VMEM, g.step, stores=True))

    return execute


@instruction(*(f"flat_load_{kind}" for kind in LOADS))
def flat_load(item: Instruction, labels: Labels) -> Executor:
    """Global addresses only: apertures into LDS or scratch raise as out of bounds."""
    kind = item.opcode.removeprefix("flat_load_")
    d, filled = vgpr(item.operands[0]), register(item.operands[0]).bits()
    address = global_address(item, item.operands[1], "off")

    def execute(g):
        load(g, d, kind, address(g), g.em, zero_rest=False)
        g.issue(Operation(Kind.FLAT, g.step, filled))

    return execute


@instruction(*(f"flat_store_{kind}" for kind in STORES))
def flat_store(item: Instruction, labels: Labels) -> Executor:
    kind = item.opcode.removeprefix("flat_store_")
    first = vgpr(item.operands[1])
    address = global_address(item, item.operands[0], "off")

    def execute(g):
        store(g, first, kind, address(g), g.em)
        g.issue(Operation(Kind.FLAT, g.step, stores=True))

    return execute
