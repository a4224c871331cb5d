"""Half precision and packed 16-bit vector instructions.

Scalar f16 results are written to the low half and zero the high half (gfx9). Packed instructions work on both halves;
op_sel and op_sel_hi pick the source half of the low and the high result.
"""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from .asm import Instruction
from .operands import INLINE_FLOAT, Accessor, immediate, parse_register, source_f32, source_u32, strip_modifiers, vgpr
from .registry import Executor, Labels, instruction

U16, U32, I16, F16, F32, F64 = np.uint16, np.uint32, np.int16, np.float16, np.float32, np.float64


def half_immediate(text: str) -> int:
    """Bit pattern of a constant as a 16-bit float operand (inline floats are half precision here)."""
    if INLINE_FLOAT.fullmatch(text):
        return struct.unpack("<H", struct.pack("<e", float(text)))[0]
    return immediate(text) & 0xFFFF


def half_source(text: str, high: int = 0) -> Accessor:
    """One 16-bit half of an operand as float16, with neg and abs."""
    negate, absolute, text = strip_modifiers(text)
    if parse_register(text) is None:
        constant = U16(half_immediate(text)).view(F16)
        plain = lambda g: constant  # noqa: E731
    else:
        bits = bits_source(text, high)
        plain = lambda g: bits(g).view(F16)  # noqa: E731
    if absolute:
        unsigned = plain
        plain = lambda g: np.abs(unsigned(g))  # noqa: E731
    return (lambda g: -plain(g)) if negate else plain


def bits_source(text: str, high: int = 0) -> Accessor:
    """One 16-bit half of an operand as uint16."""
    if parse_register(text) is None:
        constant = U16(immediate(text) & 0xFFFF)
        return lambda g: constant
    source, shift = source_u32(text), U32(16 * high)
    return lambda g: (source(g) >> shift).astype(U16)


def _fma(a, b, c):
    return (np.asarray(a, F64) * b + c).astype(F16)


HALF: dict[str, Callable[..., Any]] = {
    "v_add_f16": np.add,
    "v_sub_f16": np.subtract,
    "v_subrev_f16": lambda a, b: b - a,
    "v_mul_f16": np.multiply,
    "v_max_f16": np.fmax,
    "v_min_f16": np.fmin,
    "v_fma_f16": _fma,
    "v_max3_f16": lambda a, b, c: np.fmax(np.fmax(a, b), c),
    "v_maximum3_f16": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "v_rcp_f16": lambda a: F16(1) / a,
    "v_sqrt_f16": np.sqrt,
    "v_exp_f16": np.exp2,
    "v_log_f16": np.log2,
}


@instruction(*HALF)
def half_operation(item: Instruction, labels: Labels) -> Executor:
    operation, d = HALF[item.opcode], vgpr(item.operands[0])
    sources = [half_source(text) for text in item.operands[1:]]
    if item.has("clamp") or item.has("op_sel") or item.encoding == "dpp":
        raise ValueError("modifiers of a half-precision instruction")
    return lambda g: g.write(d, np.asarray(operation(*(s(g) for s in sources)), F16).view(U16).astype(U32))


@instruction("v_fmac_f16")
def fmac_f16(item: Instruction, labels: Labels) -> Executor:
    d, c = vgpr(item.operands[0]), half_source(item.operands[0])
    a, b = half_source(item.operands[1]), half_source(item.operands[2])
    return lambda g: g.write(d, _fma(a(g), b(g), c(g)).view(U16).astype(U32))


PACKED_FLOAT: dict[str, Callable[..., Any]] = {
    "v_pk_add_f16": np.add,
    "v_pk_mul_f16": np.multiply,
    "v_pk_max_f16": np.fmax,
    "v_pk_min_f16": np.fmin,
    "v_pk_fma_f16": _fma,
    "v_pk_maximum3_f16": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "v_pk_minimum3_f16": lambda a, b, c: np.minimum(np.minimum(a, b), c),
}


@instruction(*PACKED_FLOAT)
def packed_float(item: Instruction, labels: Labels) -> Executor:
    operation, d, texts = PACKED_FLOAT[item.opcode], vgpr(item.operands[0]), item.operands[1:]
    if item.has("clamp"):
        raise ValueError("clamp of packed halves")
    halves = []
    for select, default, negate in (("op_sel", 0, "neg_lo"), ("op_sel_hi", 1, "neg_hi")):
        picks, signs = item.numbers(select, [default] * len(texts)), item.numbers(negate, [0] * len(texts))
        halves.append([_signed(half_source(t, picks[i]), signs[i]) for i, t in enumerate(texts)])

    def execute(g):
        low, high = (np.asarray(operation(*(s(g) for s in sources)), F16).view(U16).astype(U32) for sources in halves)
        g.write(d, low | (high << U32(16)))

    return execute


def _signed(source: Accessor, negate: int) -> Accessor:
    return (lambda g: -source(g)) if negate else source


PACKED_INTEGER: dict[str, Callable[..., Any]] = {
    "v_pk_add_u16": lambda a, b: a + b,
    "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_sub_i16": lambda a, b: a - b,
    "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_lshlrev_b16": lambda a, b: b << (a & U16(15)),
    "v_pk_lshrrev_b16": lambda a, b: b >> (a & U16(15)),
    "v_pk_ashrrev_i16": lambda a, b: (b.view(I16) >> (a & U16(15)).view(I16)).view(U16),
    "v_pk_max_i16": lambda a, b: np.maximum(a.view(I16), b.view(I16)).view(U16),
    "v_pk_min_i16": lambda a, b: np.minimum(a.view(I16), b.view(I16)).view(U16),
    "v_pk_max_u16": np.maximum,
    "v_pk_min_u16": np.minimum,
    "v_pk_mad_u16": lambda a, b, c: a * b + c,
    "v_pk_mad_i16": lambda a, b, c: a * b + c,
}


@instruction(*PACKED_INTEGER)
def packed_integer(item: Instruction, labels: Labels) -> Executor:
    operation, d, texts = PACKED_INTEGER[item.opcode], vgpr(item.operands[0]), item.operands[1:]
    low_half, high_half = item.numbers("op_sel", [0] * len(texts)), item.numbers("op_sel_hi", [1] * len(texts))
    low = [bits_source(text, low_half[i]) for i, text in enumerate(texts)]
    high = [bits_source(text, high_half[i]) for i, text in enumerate(texts)]

    def execute(g):
        first, second = (np.asarray(operation(*(s(g) for s in sources)), U16).astype(U32) for sources in (low, high))
        g.write(d, first | (second << U32(16)))

    return execute


# ------------------------------------------------------------------ mixed precision


def _mixed_source(text: str, is_half: int, high: int) -> Accessor:
    """v_fma_mix operands: op_sel_hi picks f16 (1) or f32 (0); op_sel picks the half of an f16."""
    if not is_half:
        return source_f32(text)
    half = half_source(text, high)
    return lambda g: half(g).astype(F32)


@instruction("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
def fma_mix(item: Instruction, labels: Labels) -> Executor:
    d, texts = vgpr(item.operands[0]), item.operands[1:4]
    half, high = item.numbers("op_sel_hi", [0, 0, 0]), item.numbers("op_sel", [0, 0, 0])
    a, b, c = (_mixed_source(text, half[i], high[i]) for i, text in enumerate(texts))
    if item.has("clamp"):
        raise ValueError("clamp of v_fma_mix")

    def execute(g):
        result = (np.asarray(a(g), F64) * b(g) + c(g)).astype(F32)
        if item.opcode == "v_fma_mix_f32":
            g.write_f32(d, result)
            return
        bits = result.astype(F16).view(U16).astype(U32)
        if item.opcode == "v_fma_mixlo_f16":
            g.write(d, (g.v[d] & U32(0xFFFF0000)) | bits)
        else:
            g.write(d, (g.v[d] & U32(0x0000FFFF)) | (bits << U32(16)))

    return execute


@instruction("v_pack_b32_f16")
def pack_f16(item: Instruction, labels: Labels) -> Executor:
    d, select = vgpr(item.operands[0]), item.numbers("op_sel", [0, 0, 0])
    a, b = (half_source(text, select[i]) for i, text in enumerate(item.operands[1:3]))

    def execute(g):
        low, high = (np.asarray(s(g), F16).view(U16).astype(U32) for s in (a, b))
        g.write(d, low | (high << U32(16)))

    return execute
