"""LDS instructions: ds_read*, ds_write*, and the transposing reads.

Every access goes through the race and in-flight shadow of :class:`~.lds_memory.LdsMemory`.
"""

import re
from typing import Any

import numpy as np

from .asm import Instruction
from .errors import MisalignedAccessError
from .hazards import Footprint, LdsTouch
from .operands import register, source_u32, vgpr
from .registers import LANE
from .registry import Executor, Labels, instruction

U32, I64 = np.uint32, np.int64
SIZES = {"b32": 4, "b64": 8, "b96": 12, "b128": 16}


def lane_addresses(g, address: np.ndarray, offset: int) -> np.ndarray:
    """int64[waves, 64] byte addresses within the workgroup's LDS."""
    result = np.empty((g.count, 64), I64)
    return np.add(address, I64(offset), out=result)


def active_lanes(g, *arrays: np.ndarray) -> list[np.ndarray]:
    """Flatten [waves, 64] arrays to the active lanes, wave by wave."""
    if g.em is None:
        return [x.reshape(-1) for x in arrays]
    return [x[g.em] for x in arrays]


def write_active(g, first: int, data: np.ndarray) -> None:
    """uint32[k, n] of the active lanes into n consecutive registers."""
    n = data.shape[1]
    if g.em is None:
        g.rows(first, n)[...] = data.reshape(g.count, 64, n).transpose(2, 0, 1)
    else:
        for position in range(n):
            g.v[first + position][g.em] = data[:, position]


def read_active(g, first: int, count: int) -> np.ndarray:
    """n consecutive registers of the active lanes as uint32[k, n]."""
    rows = g.rows(first, count)
    if g.em is None:
        return rows.reshape(count, -1).T
    return rows[:, g.em].T


class _Access:
    """One address of an LDS instruction, resolved to elements for the active lanes."""

    def __init__(self, g, address: np.ndarray, offset: int, size: int):
        address, base, self.stamp, self.wave = active_lanes(
            g, lane_addresses(g, address, offset), g.lds_base, g.stamp, g.slot
        )
        self.index, self.width = g.lds.elements(address, size, base)

    def read(self, g) -> np.ndarray:
        return g.lds.read(self.index, self.width, self.stamp)

    def write(self, g, data: np.ndarray) -> None:
        g.lds.write(self.index, self.width, data, self.stamp, None)

    def touch(self, what: Footprint) -> LdsTouch:
        return LdsTouch(what, self.index, self.wave, self.width)


def _offsets(item: Instruction, size: int) -> list[int]:
    """Byte offsets: one, or two for the read2/write2 forms (in units of the element, or 64 elements)."""
    if "2st64" in item.opcode:
        return [item.number("offset0") * size * 64, item.number("offset1") * size * 64]
    if re.search(r"(read|write)2_", item.opcode):
        return [item.number("offset0") * size, item.number("offset1") * size]
    return [item.number("offset")]


@instruction(*(f"ds_read_{t}" for t in SIZES), *(f"ds_read2{s}_{t}" for s in ("", "st64") for t in ("b32", "b64")))
def read(item: Instruction, labels: Labels) -> Executor:
    size = SIZES[item.opcode.rsplit("_", 1)[1]]
    d, filled, address = vgpr(item.operands[0]), register(item.operands[0]).bits(), source_u32(item.operands[1])
    offsets = _offsets(item, size)

    def execute(g):
        base = address(g)
        accesses = [_Access(g, base, offset, size) for offset in offsets]
        for position, access in enumerate(accesses):
            if len(access.wave):
                write_active(g, d + position * size // 4, access.read(g))
        g.bytes_lds += len(accesses[0].wave) * size * len(accesses)
        g.issue_lds(filled, [a.touch(Footprint.READ) for a in accesses])

    return execute


@instruction(*(f"ds_write_{t}" for t in SIZES), *(f"ds_write2{s}_{t}" for s in ("", "st64") for t in ("b32", "b64")))
def write(item: Instruction, labels: Labels) -> Executor:
    size = SIZES[item.opcode.rsplit("_", 1)[1]]
    address, offsets = source_u32(item.operands[0]), _offsets(item, size)
    data = [vgpr(text) for text in item.operands[1 : 1 + len(offsets)]]

    def execute(g):
        base = address(g)
        accesses = [_Access(g, base, offset, size) for offset in offsets]
        for first, access in zip(data, accesses, strict=True):
            if len(access.wave):
                access.write(g, read_active(g, first, size // 4))
        g.bytes_lds += len(accesses[0].wave) * size * len(accesses)
        g.issue_lds(0, [a.touch(Footprint.WRITE) for a in accesses])

    return execute


# ------------------------------------------------------------------ transposing reads


def _transpose_maps(elements: int) -> tuple[np.ndarray, np.ndarray]:
    """(source lane, source element) of each of a lane's result elements; 16 lanes form one block.

    The 16 lanes of a block each read 64 bits: ``elements`` rows x 16 columns... seen as a matrix whose row r is spread
    over 16 / elements lanes. Lane i of the block receives column i.
    """
    lanes_per_row = 16 // elements
    row = np.arange(elements)[None, :]
    column = (LANE % 16)[:, None]
    source_lane = (LANE - LANE % 16)[:, None] + lanes_per_row * row + column // elements
    return source_lane, np.broadcast_to(column % elements, source_lane.shape)


_TRANSPOSED: dict[str, tuple[Any, np.ndarray, np.ndarray]] = {
    "b16": (np.uint16, *_transpose_maps(4)),
    "b8": (np.uint8, *_transpose_maps(8)),
}


@instruction("ds_read_b64_tr_b16", "ds_read_b64_tr_b8")
def read_transposed(item: Instruction, labels: Labels) -> Executor:
    """Each block of 16 lanes reads a matrix of 16-bit (4 x 16) or 8-bit (8 x 16) elements and gets its columns."""
    dtype, lane, element = _TRANSPOSED[item.opcode.rsplit("_", 1)[1]]
    d, filled, address = vgpr(item.operands[0]), register(item.operands[0]).bits(), source_u32(item.operands[1])
    offset = item.number("offset")

    def execute(g):
        if g.em is not None and not (g.em.all(axis=1) | ~g.em.any(axis=1)).all():
            g.fail("a transposing LDS read needs all lanes of a wave")
        access = _Access(g, address(g), offset, 8)
        if len(access.wave):
            data = np.ascontiguousarray(access.read(g)).view(dtype).reshape(-1, 64, 8 // np.dtype(dtype).itemsize)
            columns = np.ascontiguousarray(data[:, lane, element]).view(U32)
            write_active(g, d, columns.reshape(-1, 2))
        g.bytes_lds += len(access.wave) * 8
        g.issue_lds(filled, [access.touch(Footprint.READ)])

    return execute


# ------------------------------------------------------------------ bytes and halves

_NARROW = {"u8": (1, False), "i8": (1, True), "u16": (2, False), "i16": (2, True)}


def sign_extend(value: np.ndarray, size: int) -> np.ndarray:
    shift = np.int32(32 - 8 * size)
    return ((value.view(np.int32) << shift) >> shift).view(U32)


def merge_half(old: np.ndarray, value: np.ndarray, high: bool) -> np.ndarray:
    """d16 loads keep the other half of the register."""
    if high:
        return (old & U32(0x0000FFFF)) | (value << U32(16))
    return (old & U32(0xFFFF0000)) | (value & U32(0xFFFF))


@instruction(*(f"ds_read_{t}{s}" for t in _NARROW for s in ("", "_d16", "_d16_hi")))
def read_narrow(item: Instruction, labels: Labels) -> Executor:
    name, *half = item.opcode.removeprefix("ds_read_").split("_", 1)
    size, signed = _NARROW[name]
    d, filled, address = vgpr(item.operands[0]), register(item.operands[0]).bits(), source_u32(item.operands[1])
    offset = item.number("offset")

    def execute(g):
        at, base, stamp, wave = active_lanes(g, lane_addresses(g, address(g), offset), g.lds_base, g.stamp, g.slot)
        g.lds.check(at, size)
        word = base + (at >> 2)
        touches = []
        if len(at):
            value = g.lds.read(word, 4, stamp)[:, 0]
            value = (value >> (8 * (at & 3)).astype(U32)) & U32((1 << 8 * size) - 1)
            if signed:
                value = sign_extend(value, size)
            if half:
                (old,) = active_lanes(g, g.v[d])
                value = merge_half(old, value, half[0] == "d16_hi")
            write_active(g, d, value[:, None])
            touches = [LdsTouch(Footprint.READ, word, wave, 4)]
        g.bytes_lds += len(at) * size
        g.issue_lds(filled, touches)

    return execute


@instruction("ds_write_b8", "ds_write_b16", "ds_write_b8_d16_hi", "ds_write_b16_d16_hi")
def write_narrow(item: Instruction, labels: Labels) -> Executor:
    size = 2 if "b16" in item.opcode else 1
    address, data, offset = source_u32(item.operands[0]), vgpr(item.operands[1]), item.number("offset")
    shift = U32(16 if item.opcode.endswith("_hi") else 0)

    def execute(g):
        at, base, stamp, wave, value = active_lanes(
            g, lane_addresses(g, address(g), offset), g.lds_base, g.stamp, g.slot, g.v[data]
        )
        g.lds.check(at, size)
        touches = []
        if len(at):
            if size == 2 and (at & 1).any():
                raise MisalignedAccessError("LDS access of 2 bytes at an odd address")
            g.lds.write_narrow(base * 4 + at, size, value >> shift, stamp)
            touches = [LdsTouch(Footprint.WRITE, base + (at >> 2), wave, 4)]
        g.bytes_lds += len(at) * size
        g.issue_lds(0, touches)

    return execute
