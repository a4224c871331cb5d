"""Integer and bit vector instructions: VOP1/VOP2/VOP3 tables of operations on uint32 or int32 lanes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .asm import Instruction
from .operands import sgpr, source_i32, source_mask, source_u32, source_u64, vgpr
from .registry import Executor, Labels, instruction
from .scalar import reverse_bits
from .vector import elementwise_u32

U32, I32, U64, I64 = np.uint32, np.int32, np.uint64, np.int64
_24 = U32(0xFFFFFF)


def _amount(x):
    """Shift amounts use five bits."""
    return x & U32(31)


def _bfe_u32(a, b, c):
    return (a >> _amount(b)) & ((U32(1) << _amount(c)) - U32(1))


def _bfe_i32(a, b, c):
    offset, width = np.broadcast_arrays(_amount(b), _amount(c))
    unused = (U32(32) - width) & U32(31)
    extended = (((a >> offset) << unused).view(I32) >> unused.view(I32)).view(U32)
    return np.where(width == 0, U32(0), extended)


def _perm(a, b, selector):
    """Each selector byte picks one of the 8 bytes of {a, b} (b holds bytes 0-3); 12 gives 0x00, 13 and more 0xff."""
    both = (np.asarray(a).astype(U64) << U64(32)) | b
    both, selector = np.broadcast_arrays(both, selector)
    result = np.zeros(both.shape, U32)
    for position in range(4):
        code = (selector >> U32(8 * position)) & U32(0xFF)
        byte = ((both >> (code.astype(U64) * U64(8) & U64(63))) & U64(0xFF)).astype(U32)
        sign = np.where((both >> (((code.astype(U64) & U64(3)) * U64(2) + U64(1)) * U64(8) + U64(7))) & U64(1), 0xFF, 0)
        byte = np.where(code >= 13, U32(0xFF), np.where(code == 12, U32(0), np.where(code >= 8, sign, byte)))
        result |= byte.astype(U32) << U32(8 * position)
    return result


def _mul_hi_u32(a, b):
    return ((np.asarray(a).astype(U64) * np.asarray(b).astype(U64)) >> U64(32)).astype(U32)


def _alignbit(a, b, c):
    both = (np.asarray(a).astype(U64) << U64(32)) | b
    return (both >> (np.asarray(c).astype(U64) & U64(31))).astype(U32)


def _first_set(x):
    """Position of the lowest 1, all ones for 0."""
    isolated = x & (~x + U32(1))
    return np.where(x == 0, -1, np.log2(np.maximum(isolated, 1).astype(np.float64))).astype(I32).view(U32)


def _leading_zeros(x):
    top = np.floor(np.log2(np.maximum(x, 1).astype(np.float64))).astype(I32)
    return np.where(x == 0, I32(-1), 31 - top).view(U32)


def _low_signed(x):
    """The low half, sign-extended."""
    return (x << I32(16)) >> I32(16)


UNSIGNED: dict[str, Callable[..., Any]] = {
    "v_mov_b32": np.positive,
    "v_accvgpr_write_b32": np.positive,
    "v_accvgpr_read_b32": np.positive,
    "v_accvgpr_mov_b32": np.positive,
    "v_not_b32": np.invert,
    "v_bfrev_b32": reverse_bits,
    "v_ffbl_b32": _first_set,
    "v_ffbh_u32": _leading_zeros,
    "v_add_u32": np.add,
    "v_sub_u32": np.subtract,
    "v_subrev_u32": lambda a, b: b - a,
    "v_and_b32": np.bitwise_and,
    "v_or_b32": np.bitwise_or,
    "v_xor_b32": np.bitwise_xor,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b32": lambda a, b: b << _amount(a),
    "v_lshrrev_b32": lambda a, b: b >> _amount(a),
    "v_max_u32": np.maximum,
    "v_min_u32": np.minimum,
    "v_mul_lo_u32": np.multiply,
    "v_mul_hi_u32": _mul_hi_u32,
    "v_mul_u32_u24": lambda a, b: (a & _24) * (b & _24),
    "v_mul_hi_u32_u24": lambda a, b: _mul_hi_u32(a & _24, b & _24),
    "v_mad_u32_u24": lambda a, b, c: (a & _24) * (b & _24) + c,
    "v_bcnt_u32_b32": lambda a, b: np.bitwise_count(a).astype(U32) + b,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xor3_b32": lambda a, b, c: a ^ b ^ c,
    "v_and_or_b32": lambda a, b, c: (a & b) | c,
    "v_lshl_or_b32": lambda a, b, c: (a << _amount(b)) | c,
    "v_lshl_add_u32": lambda a, b, c: (a << _amount(b)) + c,
    "v_add_lshl_u32": lambda a, b, c: (a + b) << _amount(c),
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_max3_u32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "v_min3_u32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "v_med3_u32": lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c)),
    "v_bfe_u32": _bfe_u32,
    "v_bfe_i32": _bfe_i32,
    "v_bfi_b32": lambda a, b, c: (a & b) | (~a & c),
    "v_bfm_b32": lambda a, b: ((U32(1) << _amount(a)) - U32(1)) << _amount(b),
    "v_alignbit_b32": _alignbit,
    "v_alignbyte_b32": lambda a, b, c: _alignbit(a, b, (c & U32(3)) * U32(8)),
    "v_perm_b32": _perm,
    # 16-bit results zero the upper half of the register on gfx9.
    "v_add_u16": lambda a, b: (a + b) & U32(0xFFFF),
    "v_sub_u16": lambda a, b: (a - b) & U32(0xFFFF),
    "v_mul_lo_u16": lambda a, b: (a * b) & U32(0xFFFF),
    "v_lshlrev_b16": lambda a, b: (b << (a & U32(15))) & U32(0xFFFF),
    "v_mad_u16": lambda a, b, c: (a * b + c) & U32(0xFFFF),
    "v_max_u16": lambda a, b: np.maximum(a & U32(0xFFFF), b & U32(0xFFFF)),
    "v_min_u16": lambda a, b: np.minimum(a & U32(0xFFFF), b & U32(0xFFFF)),
    "v_lshrrev_b16": lambda a, b: (b & U32(0xFFFF)) >> (a & U32(15)),
}
SIGNED: dict[str, Callable[..., Any]] = {
    "v_ashrrev_i32": lambda a, b: b >> (a & I32(31)),
    # 16-bit results zero the upper half of the register on gfx9.
    "v_ashrrev_i16": lambda a, b: (_low_signed(b) >> (a & I32(15))) & I32(0xFFFF),
    "v_max_i16": lambda a, b: np.maximum(_low_signed(a), _low_signed(b)) & I32(0xFFFF),
    "v_min_i16": lambda a, b: np.minimum(_low_signed(a), _low_signed(b)) & I32(0xFFFF),
    "v_max_i32": np.maximum,
    "v_min_i32": np.minimum,
    "v_max3_i32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "v_min3_i32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "v_med3_i32": lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c)),
    "v_mul_hi_i32": lambda a, b: ((np.asarray(a).astype(I64) * np.asarray(b).astype(I64)) >> 32).astype(I32),
    "v_mul_i32_i24": lambda a, b: ((a << I32(8)) >> I32(8)) * ((b << I32(8)) >> I32(8)),
    "v_mad_i32_i24": lambda a, b, c: ((a << I32(8)) >> I32(8)) * ((b << I32(8)) >> I32(8)) + c,
}


@instruction(*UNSIGNED)
def unsigned(item: Instruction, labels: Labels) -> Executor:
    return elementwise_u32(item, UNSIGNED[item.opcode])


@instruction(*SIGNED)
def signed(item: Instruction, labels: Labels) -> Executor:
    return elementwise_u32(item, SIGNED[item.opcode], signed=True)


@instruction("v_bitop3_b32")
def bitop3(item: Instruction, labels: Labels) -> Executor:
    """Any Boolean function of three bits: bit (a, b, c) of the table is the result."""
    table = item.number("bitop3")

    def operation(a, b, c):
        result = np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c)), U32)
        for case in range(8):
            if table >> case & 1:
                result |= (a if case & 4 else ~a) & (b if case & 2 else ~b) & (c if case & 1 else ~c)
        return result

    return elementwise_u32(item, operation)


# ------------------------------------------------------------------ 64-bit results


@instruction("v_mov_b64", "v_lshl_add_u64", "v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64")
def wide(item: Instruction, labels: Labels) -> Executor:
    d, a = vgpr(item.operands[0]), source_u64(item.operands[1])
    if item.opcode == "v_mov_b64":
        return lambda g: g.write_u64(d, np.asarray(a(g)))
    if item.opcode == "v_lshl_add_u64":
        # The shift amount (0..4) is a 32-bit operand.
        shift, c = source_u32(item.operands[2]), source_u64(item.operands[3])
        return lambda g: g.write_u64(d, (a(g) << (np.asarray(shift(g)) & U32(7)).astype(U64)) + c(g))
    amount, b = source_u32(item.operands[1]), source_u64(item.operands[2])
    if item.opcode == "v_lshlrev_b64":
        return lambda g: g.write_u64(d, b(g) << (np.asarray(amount(g)) & U32(63)).astype(U64))
    if item.opcode == "v_lshrrev_b64":
        return lambda g: g.write_u64(d, b(g) >> (np.asarray(amount(g)) & U32(63)).astype(U64))
    return lambda g: g.write_u64(d, (b(g).view(I64) >> (np.asarray(amount(g)) & U32(63)).astype(I64)).view(U64))


@instruction("v_mad_u64_u32", "v_mad_i64_i32")
def mad64(item: Instruction, labels: Labels) -> Executor:
    """D.64 = S0.32 * S1.32 + S2.64; operand 1 receives the carry mask."""
    d, carry = vgpr(item.operands[0]), sgpr(item.operands[1])
    signed_product = item.opcode == "v_mad_i64_i32"
    a, b = ((source_i32 if signed_product else source_u32)(text) for text in item.operands[2:4])
    c = source_u64(item.operands[4])
    kind = I64 if signed_product else U64

    def execute(g):
        product = (np.asarray(a(g)).astype(kind) * np.asarray(b(g)).astype(kind)).view(U64)
        total = product + c(g)
        g.write_mask(carry, total < product)
        g.write_u64(d, total)

    return execute


# ------------------------------------------------------------------ carries

CARRY = {  # exact int64 result of (a, b, carry in); its bit 32 upwards is the carry or borrow out
    "v_add_co_u32": lambda a, b, c: a + b,
    "v_sub_co_u32": lambda a, b, c: a - b,
    "v_subrev_co_u32": lambda a, b, c: b - a,
    "v_addc_co_u32": lambda a, b, c: a + b + c,
    "v_subb_co_u32": lambda a, b, c: a - b - c,
    "v_subbrev_co_u32": lambda a, b, c: b - a - c,
}


@instruction(*CARRY)
def with_carry(item: Instruction, labels: Labels) -> Executor:
    exact = CARRY[item.opcode]
    d, out = vgpr(item.operands[0]), sgpr(item.operands[1])
    a, b = source_u32(item.operands[2]), source_u32(item.operands[3])
    carry_in = source_mask(item.operands[4]) if len(item.operands) > 4 else None

    def execute(g):
        carried = carry_in(g).astype(I64) if carry_in else 0
        total = exact(np.asarray(a(g)).astype(I64), np.asarray(b(g)).astype(I64), carried)
        g.write(d, total.astype(U32))
        g.write_mask(out, (total >> 32) != 0)

    return execute
