"""Instructions that move data between lanes, and the DPP source permutations.

Source: CDNA3/CDNA4 ISA guides, "Data Parallel Primitives"; LLVM AMDGPU operand syntax for the DPP controls.
"""

import re

import numpy as np

from .asm import Instruction
from .hazards import Kind, Operation
from .operands import register, scalar_u32, sgpr, source_u32, vgpr
from .registers import LANE, LANES
from .registry import Executor, Labels, instruction

U32 = np.uint32
ROW = 16  # lanes per DPP row
_IN_ROW = LANE % ROW
_ROW_START = LANE - _IN_ROW

_ROW_CONTROLS = {  # lane within the row -> source lane within the row (outside 0..15: no source)
    "row_shl": lambda lane, n: lane + n,
    "row_shr": lambda lane, n: lane - n,
    "row_ror": lambda lane, n: (lane - n) % ROW,
    "row_newbcast": lambda lane, n: np.full_like(lane, n),
    "row_share": lambda lane, n: np.full_like(lane, n),
    "row_xmask": lambda lane, n: lane ^ n,
}
_WAVE_CONTROLS = {  # lane -> source lane (outside 0..63: no source)
    "wave_shl": lambda lane: lane + 1,
    "wave_shr": lambda lane: lane - 1,
    "wave_rol": lambda lane: (lane + 1) % LANES,
    "wave_ror": lambda lane: (lane - 1) % LANES,
}
_FLAG_CONTROLS = {
    "row_mirror": _ROW_START + 15 - _IN_ROW,
    "row_half_mirror": LANE - LANE % 8 + 7 - LANE % 8,
}
_DPP = ("quad_perm", "row_bcast", *_ROW_CONTROLS, *_WAVE_CONTROLS, *_FLAG_CONTROLS)


def has_dpp(item: Instruction) -> bool:
    return item.encoding == "dpp" or any(item.has(control) for control in _DPP)


def dpp_source(item: Instruction) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(source lane [64], source exists [64], destination is written [64]) of a DPP instruction."""
    lane, valid = _permutation(item)
    rows, banks = item.number("row_mask", 0xF), item.number("bank_mask", 0xF)
    enabled = ((rows >> (LANE // ROW)) & 1).astype(bool) & ((banks >> (LANE // 4 % 4)) & 1).astype(bool)
    if not item.has("bound_ctrl"):
        enabled = enabled & valid
    return lane, valid, enabled


def _permutation(item: Instruction) -> tuple[np.ndarray, np.ndarray]:
    everywhere = np.ones(LANES, bool)
    if item.has("quad_perm"):
        pattern = np.array(item.numbers("quad_perm", []))
        return LANE - LANE % 4 + pattern[LANE % 4], everywhere
    for control, source in _ROW_CONTROLS.items():
        if item.has(control):
            within = source(_IN_ROW, item.number(control))
            valid = (within >= 0) & (within < ROW)
            return _ROW_START + np.clip(within, 0, ROW - 1), valid
    for control, rotated in _WAVE_CONTROLS.items():
        if item.has(control):
            lane = rotated(LANE)
            return np.clip(lane, 0, LANES - 1), (lane >= 0) & (lane < LANES)
    for control, lane in _FLAG_CONTROLS.items():
        if item.has(control):
            return lane, everywhere
    if item.has("row_bcast"):
        # row_bcast:15 copies lane 15 of each row to the next row; row_bcast:31 copies lane 31 to rows 2 and 3.
        width = item.number("row_bcast") + 1
        return np.maximum(LANE // width * width - 1, 0), width <= LANE
    raise ValueError(f"no DPP control in {item.text}")


@instruction("v_readfirstlane_b32")
def readfirstlane(item: Instruction, labels: Labels) -> Executor:
    """Value of the lowest active lane; lane 0 when none is active."""
    d, source = sgpr(item.operands[0]), source_u32(item.operands[1])

    def execute(g):
        value = np.broadcast_to(source(g), (g.count, LANES))
        if g.em is None:
            g.write_sgpr(d, value[:, 0])
        else:
            g.write_sgpr(d, np.take_along_axis(value, g.em.argmax(axis=1)[:, None], axis=1)[:, 0])

    return execute


@instruction("v_readlane_b32")
def readlane(item: Instruction, labels: Labels) -> Executor:
    d, source, lane = sgpr(item.operands[0]), vgpr(item.operands[1]), scalar_u32(item.operands[2])

    def execute(g):
        chosen = np.broadcast_to(lane(g) & U32(LANES - 1), g.count).astype(np.int64)
        g.write_sgpr(d, g.v[source][np.arange(g.count), chosen])

    return execute


@instruction("v_writelane_b32")
def writelane(item: Instruction, labels: Labels) -> Executor:
    """Ignores EXEC."""
    d, value, lane = vgpr(item.operands[0]), scalar_u32(item.operands[1]), scalar_u32(item.operands[2])

    def execute(g):
        chosen = np.broadcast_to(lane(g) & U32(LANES - 1), g.count).astype(np.int64)
        g.v[d][np.arange(g.count), chosen] = value(g)

    return execute


@instruction("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32")
def count_below(item: Instruction, labels: Labels) -> Executor:
    """D = S1 + number of ones in S0 at the positions of lower lanes (lo: lanes 0-31, hi: lanes 32-63)."""
    d, bits, base = vgpr(item.operands[0]), source_u32(item.operands[1]), source_u32(item.operands[2])
    first = 0 if "_lo_" in item.opcode else 32
    below = np.array([(1 << min(max(lane - first, 0), 32)) - 1 for lane in range(LANES)], U32)
    return lambda g: g.write(d, np.bitwise_count(bits(g) & below).astype(U32) + base(g))


@instruction("v_permlane32_swap_b32", "v_permlane16_swap_b32")
def permlane_swap(item: Instruction, labels: Labels) -> Executor:
    """permlane32: upper half of D <-> lower half of S. permlane16: odd 16-lane rows of D <-> even rows of S."""
    d, s = vgpr(item.operands[0]), vgpr(item.operands[1])
    width = 32 if "permlane32" in item.opcode else 16

    def execute(g):
        destination = g.v[d].reshape(g.count, -1, 2, width)
        source = g.v[s].reshape(g.count, -1, 2, width)
        upper = destination[:, :, 1].copy()
        if g.em is None:
            destination[:, :, 1] = source[:, :, 0]
            source[:, :, 0] = upper
        else:
            # Both lanes of a pair must be active to be exchanged.
            mask = g.em.reshape(g.count, -1, 2, width)
            both = mask[:, :, 0] & mask[:, :, 1]
            np.copyto(destination[:, :, 1], source[:, :, 0], where=both)
            np.copyto(source[:, :, 0], upper, where=both)

    return execute


@instruction("ds_bpermute_b32")
def bpermute(item: Instruction, labels: Labels) -> Executor:
    """Lane i reads lane (address[i] + offset) / 4 mod 64; inactive source lanes deliver 0."""
    d, filled = vgpr(item.operands[0]), register(item.operands[0]).bits()
    address, data, offset = source_u32(item.operands[1]), source_u32(item.operands[2]), U32(item.number("offset"))

    def execute(g):
        lane = ((np.broadcast_to(address(g), (g.count, LANES)) + offset) >> U32(2)) & U32(LANES - 1)
        value = np.broadcast_to(data(g), (g.count, LANES))
        if g.em is not None:
            value = np.where(g.em, value, U32(0))
        g.write(d, np.take_along_axis(value, lane.astype(np.int64), axis=1))
        g.issue(Operation(Kind.LDS, g.step, filled))

    return execute


@instruction("ds_permute_b32")
def permute(item: Instruction, labels: Labels) -> Executor:
    """Lane i sends its data to lane address[i] / 4 mod 64; lanes that receive nothing read 0."""
    d, filled = vgpr(item.operands[0]), register(item.operands[0]).bits()
    address, data, offset = source_u32(item.operands[1]), source_u32(item.operands[2]), U32(item.number("offset"))

    def execute(g):
        lane = ((np.broadcast_to(address(g), (g.count, LANES)) + offset) >> U32(2)) & U32(LANES - 1)
        value = np.broadcast_to(data(g), (g.count, LANES))
        result = np.zeros((g.count, LANES), U32)
        wave, sender = np.nonzero(g.active())
        result[wave, lane[wave, sender]] = value[wave, sender]
        g.write(d, result)
        g.issue(Operation(Kind.LDS, g.step, filled))

    return execute


@instruction("ds_swizzle_b32")
def swizzle(item: Instruction, labels: Labels) -> Executor:
    """offset[15] = 1: quad permutation; else within 32 lanes: ((lane & and) | or) ^ xor from offset[4:0], [9:5], [14:10]."""
    d, filled, source = vgpr(item.operands[0]), register(item.operands[0]).bits(), source_u32(item.operands[1])
    lane = _swizzle_lanes(_swizzle_code(item.text_of("offset") or "0"))

    def execute(g):
        value = np.broadcast_to(source(g), (g.count, LANES))
        if g.em is not None:
            value = np.where(g.em, value, U32(0))
        g.write(d, value[:, lane])
        g.issue(Operation(Kind.LDS, g.step, filled))

    return execute


def _swizzle_code(offset: str) -> int:
    """The 16-bit pattern of an offset, a number or one of the assembler's names for it (LLVM AMDGPU operand syntax).

    SWAP,n exchanges neighbouring groups of n lanes; REVERSE,n turns round groups of n; BROADCAST,n,l gives each group of
    n the value of its lane l; QUAD_PERM,a,b,c,d permutes groups of 4; BITMASK_PERM,"mask" gives for each of the 5 bits of
    a lane's number, highest first: 0 or 1, p (kept) or i (inverted).
    """
    named = re.fullmatch(r"swizzle\((\w+),(.*)\)", offset)
    if named is None:
        return int(offset, 0)
    mode, given = named[1], named[2].replace('"', "").replace(" ", "").split(",")
    if mode == "BITMASK_PERM":
        bits = list(enumerate(reversed(given[0])))
        keep = sum(1 << bit for bit, what in bits if what in "pi")
        one = sum(1 << bit for bit, what in bits if what == "1")
        return keep | one << 5 | sum(1 << bit for bit, what in bits if what == "i") << 10
    numbers = [int(number, 0) for number in given]
    if mode == "QUAD_PERM":
        return 0x8000 | sum(lane << (2 * place) for place, lane in enumerate(numbers))
    if mode == "SWAP":
        return 31 | numbers[0] << 10
    if mode == "REVERSE":
        return 31 | (numbers[0] - 1) << 10
    if mode == "BROADCAST":
        return (32 - numbers[0]) | numbers[1] << 5
    raise ValueError(f"unknown swizzle mode {mode}")


def _swizzle_lanes(code: int) -> np.ndarray:
    if code >> 15:
        quad = np.array([code >> (2 * i) & 3 for i in range(4)])
        return LANE - LANE % 4 + quad[LANE % 4]
    within = (((LANE % 32) & (code & 31)) | (code >> 5 & 31)) ^ (code >> 10 & 31)
    return LANE - LANE % 32 + within
