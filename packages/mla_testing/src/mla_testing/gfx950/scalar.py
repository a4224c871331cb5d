"""Scalar instructions: one value per wave, uint32[waves]; SCC is bool[waves].

Source: AMD Instinct CDNA3/CDNA4 instruction set architecture guides, chapters "Scalar ALU Operations" and
"SOP1/SOP2/SOPK/SOPC instructions".
"""

import numpy as np

from .asm import Instruction
from .operands import EXEC, scalar_u32, scalar_u64, sgpr
from .registry import Executor, Labels, instruction

U32, I32, U64, I64 = np.uint32, np.int32, np.uint64, np.int64


def sign_extended(x: np.ndarray) -> np.ndarray:
    """Sign-extend a 32-bit value."""
    return np.asarray(x).view(I32).astype(I64)


def _u64(x: np.ndarray) -> np.ndarray:
    return np.asarray(x).astype(U64)


def _low(x: np.ndarray) -> np.ndarray:
    return np.asarray(x).astype(U64).astype(U32)


def overflows(x: np.ndarray) -> np.ndarray:
    """Whether an exact int64 result does not fit int32."""
    return (x < -(2**31)) | (x >= 2**31)


def _carries(x: np.ndarray) -> np.ndarray:
    """Whether an exact result does not fit uint32 (negative results borrow)."""
    return (x >> 32) != 0


# ------------------------------------------------------------------ 32-bit arithmetic: f(a, b, scc) -> value, scc or None


def _add_u32(a, b, scc):
    total = _u64(a) + _u64(b)
    return _low(total), _carries(total)


def _addc_u32(a, b, scc):
    total = _u64(a) + _u64(b) + scc
    return _low(total), _carries(total)


def _sub_u32(a, b, scc):
    return a - b, b > a


def _subb_u32(a, b, scc):
    return a - b - scc.astype(U32), _u64(b) + scc > a


def _add_i32(a, b, scc):
    return a + b, overflows(sign_extended(a) + sign_extended(b))


def _sub_i32(a, b, scc):
    return a - b, overflows(sign_extended(a) - sign_extended(b))


def _min_i32(a, b, scc):
    return np.where(sign_extended(a) < sign_extended(b), a, b), sign_extended(a) < sign_extended(b)


def _max_i32(a, b, scc):
    return np.where(sign_extended(a) > sign_extended(b), a, b), sign_extended(a) > sign_extended(b)


def _shifted_add(shift: int):
    def operate(a, b, scc):
        total = (_u64(a) << U64(shift)) + _u64(b)
        return _low(total), _carries(total)

    return operate


def _bfe_u32(a, b, scc):
    """Bit field at b[4:0], width b[22:16]."""
    width = (np.asarray(b) >> U32(16)) & U32(0x7F)
    field = (_u64(a) >> _u64(np.asarray(b) & U32(31))) & ((U64(1) << _u64(np.minimum(width, U32(32)))) - U64(1))
    value = _low(field)
    return value, value != 0


def _bfe_i32(a, b, scc):
    field, _ = _bfe_u32(a, b, scc)
    width = _u64(np.minimum((np.asarray(b) >> U32(16)) & U32(0x7F), U32(32)))
    unused = U64(64) - width
    extended = ((_u64(field) << (unused & U64(63))).view(I64) >> (unused & U64(63)).view(I64)).view(U64)
    value = np.where(width == 0, U32(0), _low(extended))
    return value, value != 0


def _logic(operate):
    def with_scc(a, b, scc):
        value = operate(a, b)
        return value, value != 0

    return with_scc


def shift_amount(b):
    return np.asarray(b) & U32(31)


SOP2_B32 = {
    "s_add_u32": _add_u32,
    "s_add_i32": _add_i32,
    "s_addc_u32": _addc_u32,
    "s_sub_u32": _sub_u32,
    "s_sub_i32": _sub_i32,
    "s_subb_u32": _subb_u32,
    "s_min_i32": _min_i32,
    "s_max_i32": _max_i32,
    "s_min_u32": lambda a, b, scc: (np.minimum(a, b), a < b),
    "s_max_u32": lambda a, b, scc: (np.maximum(a, b), a > b),
    "s_mul_i32": lambda a, b, scc: (a * b, None),
    "s_mul_hi_u32": lambda a, b, scc: (_low((_u64(a) * _u64(b)) >> U64(32)), None),
    "s_mul_hi_i32": lambda a, b, scc: (((sign_extended(a) * sign_extended(b)) >> 32).astype(U64).astype(U32), None),
    "s_lshl1_add_u32": _shifted_add(1),
    "s_lshl2_add_u32": _shifted_add(2),
    "s_lshl3_add_u32": _shifted_add(3),
    "s_lshl4_add_u32": _shifted_add(4),
    "s_and_b32": _logic(lambda a, b: a & b),
    "s_or_b32": _logic(lambda a, b: a | b),
    "s_xor_b32": _logic(lambda a, b: a ^ b),
    "s_andn2_b32": _logic(lambda a, b: a & ~b),
    "s_orn2_b32": _logic(lambda a, b: a | ~b),
    "s_nand_b32": _logic(lambda a, b: ~(a & b)),
    "s_nor_b32": _logic(lambda a, b: ~(a | b)),
    "s_xnor_b32": _logic(lambda a, b: ~(a ^ b)),
    "s_lshl_b32": _logic(lambda a, b: a << shift_amount(b)),
    "s_lshr_b32": _logic(lambda a, b: a >> shift_amount(b)),
    "s_ashr_i32": _logic(lambda a, b: (np.asarray(a).view(I32) >> shift_amount(b).view(I32)).view(U32)),
    "s_bfe_u32": _bfe_u32,
    "s_bfe_i32": _bfe_i32,
    "s_bfm_b32": lambda a, b, scc: (((U32(1) << shift_amount(a)) - U32(1)) << shift_amount(b), None),
    "s_pack_ll_b32_b16": lambda a, b, scc: ((a & U32(0xFFFF)) | (b << U32(16)), None),
    "s_pack_lh_b32_b16": lambda a, b, scc: ((a & U32(0xFFFF)) | (b & U32(0xFFFF0000)), None),
    "s_pack_hh_b32_b16": lambda a, b, scc: ((a >> U32(16)) | (b & U32(0xFFFF0000)), None),
    "s_absdiff_i32": lambda a, b, scc: (_low(np.abs(sign_extended(a) - sign_extended(b)).view(U64)), a != b),
}


@instruction(*SOP2_B32)
def sop2_b32(item: Instruction, labels: Labels) -> Executor:
    operate = SOP2_B32[item.opcode]
    d, a, b = sgpr(item.operands[0]), scalar_u32(item.operands[1]), scalar_u32(item.operands[2])

    def execute(g):
        value, scc = operate(a(g), b(g), g.scc)
        g.write_sgpr(d, value)
        if scc is not None:
            g.scc[...] = scc

    return execute


# ------------------------------------------------------------------ 64-bit: f(a, b) -> value; SCC = value != 0

_SIX_BITS = U64(63)


def _bfe_u64(a, b):
    width = np.minimum((_u64(b) >> U64(16)) & U64(0x7F), U64(63))
    return (a >> (_u64(b) & _SIX_BITS)) & ((U64(1) << width) - U64(1))


def _ashr_i64(a, b):
    return (np.asarray(a).view(I64) >> (_u64(b) & _SIX_BITS).view(I64)).view(U64)


def _bfe_i64(a, b):
    width = np.minimum((_u64(b) >> U64(16)) & U64(0x7F), U64(64))
    unused = (U64(64) - width) & _SIX_BITS
    extended = (((a >> (_u64(b) & _SIX_BITS)) << unused).view(I64) >> unused.view(I64)).view(U64)
    return np.where(width == 0, U64(0), extended)


SOP2_B64 = {
    "s_and_b64": lambda a, b: a & b,
    "s_or_b64": lambda a, b: a | b,
    "s_xor_b64": lambda a, b: a ^ b,
    "s_andn2_b64": lambda a, b: a & ~b,
    "s_orn2_b64": lambda a, b: a | ~b,
    "s_nand_b64": lambda a, b: ~(a & b),
    "s_nor_b64": lambda a, b: ~(a | b),
    "s_xnor_b64": lambda a, b: ~(a ^ b),
    "s_lshl_b64": lambda a, b: a << (_u64(b) & _SIX_BITS),
    "s_lshr_b64": lambda a, b: a >> (_u64(b) & _SIX_BITS),
    "s_ashr_i64": _ashr_i64,
    "s_bfe_u64": _bfe_u64,
    "s_bfe_i64": _bfe_i64,
}
_SHIFTS = ("s_lshl_b64", "s_lshr_b64", "s_ashr_i64", "s_bfe_u64", "s_bfe_i64")  # the amount is a 32-bit operand


@instruction(*SOP2_B64)
def sop2_b64(item: Instruction, labels: Labels) -> Executor:
    operate = SOP2_B64[item.opcode]
    d, a = sgpr(item.operands[0]), scalar_u64(item.operands[1])
    b = (scalar_u32 if item.opcode in _SHIFTS else scalar_u64)(item.operands[2])

    def execute(g):
        value = operate(a(g), b(g))
        g.write_sgpr64(d, value)
        g.scc[...] = value != 0

    return execute


@instruction("s_bfm_b64")
def bfm_b64(item: Instruction, labels: Labels) -> Executor:
    d, a, b = sgpr(item.operands[0]), scalar_u32(item.operands[1]), scalar_u32(item.operands[2])
    one = U64(1)
    return lambda g: g.write_sgpr64(d, ((one << (_u64(a(g)) & _SIX_BITS)) - one) << (_u64(b(g)) & _SIX_BITS))


# ------------------------------------------------------------------ one source


def reverse_bits(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, U32)
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        x = ((x >> U32(shift)) & U32(mask)) | ((x & U32(mask)) << U32(shift))
    return (x >> U32(16)) | (x << U32(16))


def _lowest_set_bit(x: np.ndarray) -> np.ndarray:
    """Position of the lowest 1, or -1."""
    x = np.asarray(x)
    isolated = x & (~x + x.dtype.type(1))
    return np.where(x == 0, -1, np.log2(np.maximum(isolated, 1).astype(np.float64))).astype(I64).view(U64).astype(U32)


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    """Number of 0 bits above the highest 1 of a uint32, or -1 for 0."""
    top = np.floor(np.log2(np.maximum(x, 1).astype(np.float64))).astype(I64)
    return np.where(x == 0, -1, 31 - top).astype(I64).view(U64).astype(U32)


def _sign_extend(bits: int):
    shift = I32(32 - bits)
    return lambda a: ((np.asarray(a).view(I32) << shift) >> shift).view(U32)


def _count_ones(x: np.ndarray) -> np.ndarray:
    return np.bitwise_count(x).astype(U32)


SOP1_B32 = {  # mnemonic -> (value, does it set SCC)
    "s_mov_b32": (lambda a: a, False),
    "s_not_b32": (lambda a: ~a, True),
    "s_brev_b32": (reverse_bits, False),
    "s_abs_i32": (lambda a: np.abs(sign_extended(a)).astype(U64).astype(U32), True),
    "s_sext_i32_i8": (_sign_extend(8), False),
    "s_sext_i32_i16": (_sign_extend(16), False),
    "s_ff1_i32_b32": (_lowest_set_bit, False),
    "s_flbit_i32_b32": (_leading_zeros, False),
    "s_bcnt1_i32_b32": (_count_ones, True),
}


@instruction(*SOP1_B32)
def sop1_b32(item: Instruction, labels: Labels) -> Executor:
    operate, sets_scc = SOP1_B32[item.opcode]
    d, a = sgpr(item.operands[0]), scalar_u32(item.operands[1])

    def execute(g):
        value = operate(a(g))
        g.write_sgpr(d, value)
        if sets_scc:
            g.scc[...] = value != 0

    return execute


@instruction("s_ff1_i32_b64", "s_bcnt1_i32_b64")
def sop1_b64_to_b32(item: Instruction, labels: Labels) -> Executor:
    d, a = sgpr(item.operands[0]), scalar_u64(item.operands[1])
    if item.opcode == "s_ff1_i32_b64":
        return lambda g: g.write_sgpr(d, _lowest_set_bit(a(g)))

    def execute(g):
        value = _count_ones(a(g))
        g.write_sgpr(d, value)
        g.scc[...] = value != 0

    return execute


@instruction("s_bitset0_b32", "s_bitset1_b32")
def bit_set(item: Instruction, labels: Labels) -> Executor:
    """Clear or set one bit of D."""
    d, position, value = sgpr(item.operands[0]), scalar_u32(item.operands[1]), item.opcode == "s_bitset1_b32"

    def execute(g):
        bit = U32(1) << shift_amount(position(g))
        g.write_sgpr(d, g.s[d] | bit if value else g.s[d] & ~bit)

    return execute


@instruction("s_mov_b64")
def mov_b64(item: Instruction, labels: Labels) -> Executor:
    d, a = sgpr(item.operands[0]), scalar_u64(item.operands[1])
    return lambda g: g.write_sgpr64(d, a(g))


@instruction("s_not_b64")
def not_b64(item: Instruction, labels: Labels) -> Executor:
    d, a = sgpr(item.operands[0]), scalar_u64(item.operands[1])

    def execute(g):
        value = ~a(g)
        g.write_sgpr64(d, value)
        g.scc[...] = value != 0

    return execute


@instruction("s_cselect_b32")
def cselect_b32(item: Instruction, labels: Labels) -> Executor:
    d, a, b = sgpr(item.operands[0]), scalar_u32(item.operands[1]), scalar_u32(item.operands[2])
    return lambda g: g.write_sgpr(d, np.where(g.scc, a(g), b(g)))


@instruction("s_cselect_b64")
def cselect_b64(item: Instruction, labels: Labels) -> Executor:
    d, a, b = sgpr(item.operands[0]), scalar_u64(item.operands[1]), scalar_u64(item.operands[2])
    return lambda g: g.write_sgpr64(d, np.where(g.scc, a(g), b(g)))


@instruction("s_cmov_b64")
def cmov_b64(item: Instruction, labels: Labels) -> Executor:
    d, a = sgpr(item.operands[0]), scalar_u64(item.operands[1])
    return lambda g: g.write_sgpr64(d, np.where(g.scc, a(g), g.read_sgpr64(d)))


@instruction("s_cmov_b32")
def cmov_b32(item: Instruction, labels: Labels) -> Executor:
    d, a = sgpr(item.operands[0]), scalar_u32(item.operands[1])
    return lambda g: g.write_sgpr(d, np.where(g.scc, a(g), g.s[d]))


@instruction("s_getreg_b32")
def getreg_b32(item: Instruction, labels: Labels) -> Executor:
    """Hardware registers (MODE, trap status, ...) read as 0."""
    d = sgpr(item.operands[0])
    return lambda g: g.write_sgpr(d, U32(0))


# ------------------------------------------------------------------ EXEC manipulation

SAVEEXEC = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "andn2": lambda s, e: s & ~e,
    "orn2": lambda s, e: s | ~e,
    "andn1": lambda s, e: ~s & e,
    "orn1": lambda s, e: ~s | e,
    "nand": lambda s, e: ~(s & e),
}


@instruction(*(f"s_{name}_saveexec_b64" for name in SAVEEXEC))
def saveexec(item: Instruction, labels: Labels) -> Executor:
    """D = EXEC; EXEC = S op EXEC; SCC = EXEC != 0."""
    operate = SAVEEXEC[item.opcode.split("_")[1]]
    d, a = sgpr(item.operands[0]), scalar_u64(item.operands[1])

    def execute(g):
        old = g.read_sgpr64(EXEC)
        new = operate(a(g), old)
        g.write_sgpr64(d, old)
        g.write_sgpr64(EXEC, new)
        g.scc[...] = new != 0

    return execute
