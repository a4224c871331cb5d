"""Scratch (private memory): register spills and arrays that the compiler could not keep in registers.

Each lane has its own ``scratch_bytes``; the file is uint32[dwords, waves, 64], so a spill slot at a constant address
is a row like a register.
"""

import numpy as np

from .asm import Instruction
from .errors import OutOfBoundsError
from .formats import U32
from .hazards import Kind, Operation
from .lds import merge_half, sign_extend
from .operands import register, scalar_u32, source_u32, vgpr
from .registry import Executor, Labels, instruction
from .vmem import LOADS, STORES, TYPES


class _Address:
    """Byte address of the lane's private segment: VGPR, SGPR, both or none, plus the instruction offset."""

    def __init__(self, item: Instruction, vaddr: str, saddr: str):
        self.lane = None if vaddr == "off" else source_u32(vaddr)
        self.base = None if saddr == "off" else scalar_u32(saddr)
        self.offset = item.number("offset")

    def resolve(self, g, size: int) -> int | np.ndarray:
        """One address, or int64[waves, 64] where it varies."""
        limit = len(g.scratch) * 4
        if self.lane is None and self.base is None:
            address: int | np.ndarray = self.offset
            low = high = self.offset
        else:
            address = np.full((g.count, 64), self.offset, np.int64)
            if self.lane is not None:
                address += np.broadcast_to(self.lane(g), (g.count, 64)).view(np.int32)
            if self.base is not None:
                address += self.base(g).view(np.int32)[:, None]
            used = address if g.em is None else address[g.em]
            low, high = (int(used.min()), int(used.max())) if used.size else (0, 0)
        if low < 0 or high + size > limit:
            raise OutOfBoundsError(f"scratch access of {size} bytes at byte {high} of {limit}")
        return address


def _words(g, address: int | np.ndarray, position: int) -> np.ndarray:
    """Dword ``position`` after the (dword-aligned) address, uint32[waves, 64]."""
    if isinstance(address, int):
        return g.scratch[address // 4 + position]
    index = np.clip(address // 4 + position, 0, len(g.scratch) - 1)
    return np.take_along_axis(g.scratch, index[None], axis=0)[0]


def _put_words(g, address: int | np.ndarray, position: int, value: np.ndarray) -> None:
    if isinstance(address, int):
        row = g.scratch[address // 4 + position]
        if g.em is None:
            row[...] = value
        else:
            np.copyto(row, value, where=g.em)
        return
    wave, lane = np.nonzero(g.active())
    g.scratch[address[wave, lane] // 4 + position, wave, lane] = value[wave, lane]


def _shift(address: int | np.ndarray) -> np.ndarray:
    return ((np.asarray(address) & 3) * 8).astype(U32)


def _aligned(address: int | np.ndarray, size: int) -> None:
    if np.any(np.asarray(address) & (min(size, 4) - 1)):
        raise OutOfBoundsError(f"misaligned scratch access of {size} bytes")


@instruction(*(f"scratch_load_{kind}" for kind in LOADS))
def scratch_load(item: Instruction, labels: Labels) -> Executor:
    size, signed, half = TYPES[item.opcode.removeprefix("scratch_load_")]
    d, filled = vgpr(item.operands[0]), register(item.operands[0]).bits()
    where = _Address(item, item.operands[1], item.operands[2])

    def execute(g):
        address = where.resolve(g, size)
        _aligned(address, size)
        if size >= 4:
            for position in range(size // 4):
                g.write(d + position, _words(g, address, position))
        else:
            value = (_words(g, address, 0) >> _shift(address)) & U32((1 << 8 * size) - 1)
            value = sign_extend(value, size) if signed else value
            g.write(d, merge_half(g.v[d], value, half == "high") if half else value)
        g.issue(Operation(Kind.VMEM, g.step, filled))

    return execute


@instruction(*(f"scratch_store_{kind}" for kind in STORES))
def scratch_store(item: Instruction, labels: Labels) -> Executor:
    size, _, half = TYPES[item.opcode.removeprefix("scratch_store_")]
    first = vgpr(item.operands[1])
    where = _Address(item, item.operands[0], item.operands[2])

    def execute(g):
        address = where.resolve(g, size)
        _aligned(address, size)
        if size >= 4:
            for position in range(size // 4):
                _put_words(g, address, position, g.v[first + position])
        else:
            value = g.v[first] >> U32(16) if half == "high" else g.v[first]
            shift = _shift(address)
            mask = U32((1 << 8 * size) - 1) << shift
            _put_words(g, address, 0, (_words(g, address, 0) & ~mask) | ((value << shift) & mask))
        g.issue(Operation(Kind.VMEM, g.step))

    return execute
