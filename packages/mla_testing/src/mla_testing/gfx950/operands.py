"""Operands: from assembly text to accessors on a wave group.

An accessor is a function ``group -> array`` whose result broadcasts to ``[waves, 64]``: a VGPR row has that shape, an
SGPR is a column ``[waves, 1]`` and an immediate is a NumPy scalar.
"""

import functools
import re
import struct
from collections.abc import Callable
from typing import Any, NewType

import attrs
import numpy as np

from .asm import Instruction
from .errors import UnknownInstructionError

ACC_BASE = 256  # row of a0 in the register file: v0..v255 then a0..a255
VCC, M0, EXEC = 106, 124, 126  # SGPR numbers of the special registers
FLAT_SCRATCH, XNACK = 102, 104
SGPR_FILE = 128
VGPR_FILE = 512
M32 = 0xFFFFFFFF

Accessor = Callable[..., Any]  # group -> array
Registers = NewType("Registers", int)  # bit r: VGPR row r; bit 512 + s: SGPR s

_SPECIAL = {
    "vcc": (VCC, 2),
    "vcc_lo": (VCC, 1),
    "vcc_hi": (VCC + 1, 1),
    "exec": (EXEC, 2),
    "exec_lo": (EXEC, 1),
    "exec_hi": (EXEC + 1, 1),
    "m0": (M0, 1),
    "flat_scratch": (FLAT_SCRATCH, 2),
    "flat_scratch_lo": (FLAT_SCRATCH, 1),
    "flat_scratch_hi": (FLAT_SCRATCH + 1, 1),
    "xnack_mask": (XNACK, 2),
}
# Inline constants that are written as decimals are single (or half) precision floats.
INLINE_FLOAT = re.compile(r"-?(?:0\.5|1\.0|2\.0|4\.0|0\.15915494\d*)")
_INTEGER = re.compile(r"-?\d+|-?0x[0-9a-fA-F]+")


@attrs.frozen
class Register:
    """A register operand: one register or a range."""

    vector: bool
    index: int  # row of the vector file (AGPRs from ACC_BASE) or SGPR number
    count: int  # dwords

    def bits(self) -> Registers:
        first = self.index if self.vector else VGPR_FILE + self.index
        return Registers(((1 << self.count) - 1) << first)


@functools.cache
def parse_register(text: str) -> Register | None:
    """``v3``, ``a[0:3]``, ``s[4:5]``, ``vcc``...; None for anything that is not a register."""
    match = re.fullmatch(r"([vsa])(\d+)", text) or re.fullmatch(r"([vsa])\[(\d+):(\d+)\]", text)
    if match:
        first = int(match[2])
        count = int(match[3]) - first + 1 if match.lastindex == 3 else 1
        return Register(match[1] != "s", first + (ACC_BASE if match[1] == "a" else 0), count)
    if text in _SPECIAL:
        return Register(False, *_SPECIAL[text])
    return None


def register(text: str) -> Register:
    found = parse_register(text)
    if found is None:
        raise UnknownInstructionError(f"operand {text!r}: expected a register")
    return found


def vgpr(text: str) -> int:
    """Row of the first register of a vector operand."""
    found = register(text)
    if not found.vector:
        raise UnknownInstructionError(f"operand {text!r}: expected a VGPR")
    return found.index


def sgpr(text: str) -> int:
    found = register(text)
    if found.vector:
        raise UnknownInstructionError(f"operand {text!r}: expected an SGPR")
    return found.index


def immediate(text: str) -> int:
    """Bit pattern of a literal or inline constant as a 32-bit operand."""
    if INLINE_FLOAT.fullmatch(text):
        return struct.unpack("<I", struct.pack("<f", float(text)))[0]
    if _INTEGER.fullmatch(text):
        return int(text, 0) & M32
    raise UnknownInstructionError(f"operand {text!r} is neither a register nor a constant")


def signed_immediate(text: str) -> int:
    value = immediate(text)
    return value - (1 << 32) if value >> 31 else value


def immediate64(text: str) -> int:
    """A 64-bit scalar operand: inline integers are sign-extended, 32-bit literals zero-extended."""
    value = immediate(text)
    return value | (M32 << 32) if text.startswith("-") and value >> 31 else value


def used_registers(item: Instruction) -> Registers:
    """Registers an instruction reads or writes, explicitly or not, apart from the destination of a load.

    A load may target a register that an older load still fills: loads of one kind return in order.
    """
    skip = 1 if is_register_load(item) else 0
    bits = 0
    for operand in item.operands[skip:]:
        found = parse_register(strip_modifiers(operand)[2])
        if found:
            bits |= found.bits()
    if item.opcode in ("v_div_fmas_f32", "s_cbranch_vccz", "s_cbranch_vccnz"):
        bits |= Register(False, VCC, 2).bits()
    if item.has("lds"):
        bits |= Register(False, M0, 1).bits()
    return Registers(bits)


def is_register_load(item: Instruction) -> bool:
    """Whether operand 0 is a register filled later by memory."""
    if item.opcode.startswith("s_load"):
        return True
    if item.opcode.startswith(("global_atomic", "flat_atomic")):
        return item.has("sc0")
    memory = item.opcode.startswith(
        ("buffer_load", "global_load", "flat_load", "scratch_load", "ds_read", "ds_bpermute")
    )
    return memory and not item.has("lds") and "_lds_" not in item.opcode


@functools.cache
def strip_modifiers(text: str) -> tuple[bool, bool, str]:
    """Split ``-|v1|`` into (negate, absolute, ``v1``). A leading minus of a number belongs to the number."""
    negate = absolute = False
    if text.startswith("-") and not text[1:2].isdigit():
        negate, text = True, text[1:]
    if wrapped := re.fullmatch(r"neg\((.*)\)", text):
        negate, text = True, wrapped[1]
    if wrapped := re.fullmatch(r"\|(.*)\|", text) or re.fullmatch(r"abs\((.*)\)", text):
        absolute, text = True, wrapped[1]
    return negate, absolute, text


# ---------------------------------------------------------------------------------------------- vector sources


def source_u32(text: str) -> Accessor:
    found = parse_register(text)
    if found is None:
        constant = np.uint32(immediate(text))
        return lambda g: constant
    index = found.index
    if found.vector:
        return lambda g: g.v[index]
    return lambda g: g.sc[index]


def source_i32(text: str) -> Accessor:
    found = parse_register(text)
    if found is None:
        constant = np.uint32(immediate(text)).view(np.int32)
        return lambda g: constant
    index = found.index
    if found.vector:
        return lambda g: g.i[index]
    return lambda g: g.sc[index].view(np.int32)


def source_f32(text: str) -> Accessor:
    """A float source with its ``-`` and ``|x|`` modifiers."""
    negate, absolute, text = strip_modifiers(text)
    found = parse_register(text)
    if found is None:
        bits = np.uint32(immediate(text))
        bits = bits & np.uint32(0x7FFFFFFF) if absolute else bits
        bits = bits ^ np.uint32(0x80000000) if negate else bits
        constant = np.uint32(bits).view(np.float32)
        return lambda g: constant
    index = found.index
    if found.vector:
        plain = lambda g: g.f[index]  # noqa: E731
    else:
        plain = lambda g: g.sc[index].view(np.float32)  # noqa: E731
    if absolute and negate:
        return lambda g: -np.abs(plain(g))
    if absolute:
        return lambda g: np.abs(plain(g))
    if negate:
        return lambda g: -plain(g)
    return plain


def source_u64(text: str) -> Accessor:
    """A 64-bit source: a pair of registers or an inline integer."""
    found = parse_register(text)
    if found is None:
        constant = np.uint64(immediate64(text))
        return lambda g: constant
    low, high = found.index, found.index + 1
    if found.vector:
        return lambda g: g.v[low].astype(np.uint64) | (g.v[high].astype(np.uint64) << np.uint64(32))
    return lambda g: g.sc[low].astype(np.uint64) | (g.sc[high].astype(np.uint64) << np.uint64(32))


def source_mask(text: str) -> Accessor:
    """A lane mask in an SGPR pair, as bool[waves, 64]."""
    found = parse_register(text)
    if found is None:
        bits = np.array([immediate64(text)], np.uint64)
        constant = np.unpackbits(bits.view(np.uint8), bitorder="little").astype(bool)
        return lambda g: constant
    index = found.index
    return lambda g: g.read_mask(index)


# ---------------------------------------------------------------------------------------------- scalar sources


def scalar_u32(text: str) -> Accessor:
    """uint32[waves], or a NumPy scalar for a constant."""
    found = parse_register(text)
    if found is None:
        constant = np.uint32(immediate(text))
        return lambda g: constant
    index = found.index
    return lambda g: g.s[index]


def scalar_u64(text: str) -> Accessor:
    found = parse_register(text)
    if found is None:
        constant = np.uint64(immediate64(text))
        return lambda g: constant
    index = found.index
    return lambda g: g.read_sgpr64(index)
