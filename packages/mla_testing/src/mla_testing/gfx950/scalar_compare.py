"""Scalar comparisons (SOPC) and instructions with a 16-bit constant (SOPK). The result of a comparison is SCC."""

import numpy as np

from .asm import Instruction
from .operands import immediate, scalar_u32, scalar_u64, sgpr, signed_immediate
from .registry import Executor, Labels, instruction
from .scalar import overflows, shift_amount, sign_extended

U32, I32, U64, I64 = np.uint32, np.int32, np.uint64, np.int64

_COMPARE = {
    "eq": np.equal,
    "lg": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@instruction(*(f"s_cmp_{c}_{t}" for c in _COMPARE for t in ("i32", "u32")), "s_cmp_eq_u64", "s_cmp_lg_u64")
def compare(item: Instruction, labels: Labels) -> Executor:
    _, _, condition, kind = item.opcode.split("_")
    operate, source = _COMPARE[condition], scalar_u64 if kind == "u64" else scalar_u32
    a, b = source(item.operands[0]), source(item.operands[1])

    def execute(g):
        x, y = a(g), b(g)
        if kind == "i32":
            x, y = x.view(I32), y.view(I32)
        g.scc[...] = operate(x, y)

    return execute


@instruction(*(f"s_cmpk_{c}_{t}" for c in _COMPARE for t in ("i32", "u32")))
def compare_constant(item: Instruction, labels: Labels) -> Executor:
    """16-bit constant, sign-extended for i32 and zero-extended for u32."""
    _, _, condition, kind = item.opcode.split("_")
    operate, a = _COMPARE[condition], scalar_u32(item.operands[0])
    if kind == "u32":
        unsigned = U32(immediate(item.operands[1]) & 0xFFFF)
        return lambda g: np.copyto(g.scc, operate(a(g), unsigned))
    signed = _constant16(item.operands[1])
    return lambda g: np.copyto(g.scc, operate(a(g).view(I32), signed))


@instruction("s_bitcmp0_b32", "s_bitcmp1_b32")
def bit_compare(item: Instruction, labels: Labels) -> Executor:
    a, b = scalar_u32(item.operands[0]), scalar_u32(item.operands[1])
    wanted = U32(item.opcode == "s_bitcmp1_b32")
    return lambda g: np.copyto(g.scc, ((a(g) >> shift_amount(b(g))) & U32(1)) == wanted)


# ------------------------------------------------------------------ 16-bit constants


def _constant16(text: str) -> np.int32:
    """SIMM16 as a sign-extended int32."""
    value = signed_immediate(text) & 0xFFFF
    return I32(value - 0x10000 if value & 0x8000 else value)


@instruction("s_movk_i32")
def movk(item: Instruction, labels: Labels) -> Executor:
    d, constant = sgpr(item.operands[0]), _constant16(item.operands[1]).view(U32)
    return lambda g: g.write_sgpr(d, constant)


@instruction("s_addk_i32", "s_addk_co_i32")
def addk(item: Instruction, labels: Labels) -> Executor:
    d, constant = sgpr(item.operands[0]), _constant16(item.operands[1]).astype(I64)

    def execute(g):
        total = sign_extended(g.s[d]) + constant
        g.scc[...] = overflows(total)
        g.write_sgpr(d, total.view(U64).astype(U32))

    return execute


@instruction("s_mulk_i32")
def mulk(item: Instruction, labels: Labels) -> Executor:
    d, constant = sgpr(item.operands[0]), _constant16(item.operands[1]).view(U32)
    return lambda g: g.write_sgpr(d, g.s[d] * constant)
