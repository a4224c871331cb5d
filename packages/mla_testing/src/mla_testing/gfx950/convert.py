"""Conversions between number formats. Verified against torch in the tests."""

import numpy as np

from . import formats
from .asm import Instruction
from .formats import E2M1, E4M3, E5M2, exponent_of
from .operands import source_f32, source_u32, vgpr
from .registry import Executor, Labels, instruction
from .vector import elementwise_u32, output_modifier
from .vector_half import half_source

U32, I32, F32, F64 = np.uint32, np.int32, np.float32, np.float64


@instruction("v_cvt_f32_u32")
def f32_from_u32(item: Instruction, labels: Labels) -> Executor:
    return elementwise_u32(item, lambda a: np.asarray(a).astype(F32).view(U32))


@instruction("v_cvt_f32_i32")
def f32_from_i32(item: Instruction, labels: Labels) -> Executor:
    return elementwise_u32(item, lambda a: np.asarray(a).view(I32).astype(F32).view(U32))


@instruction("v_cvt_f32_ubyte0", "v_cvt_f32_ubyte1", "v_cvt_f32_ubyte2", "v_cvt_f32_ubyte3")
def f32_from_byte(item: Instruction, labels: Labels) -> Executor:
    shift = U32(8 * int(item.opcode[-1]))
    return elementwise_u32(item, lambda a: ((a >> shift) & U32(0xFF)).astype(F32).view(U32))


def _truncate(value: np.ndarray, low: int, high: int) -> np.ndarray:
    """Towards zero, saturating; NaN gives 0."""
    return np.clip(np.nan_to_num(np.asarray(value, F64), nan=0.0, posinf=high, neginf=low), low, high).astype(np.int64)


@instruction("v_cvt_u32_f32")
def u32_from_f32(item: Instruction, labels: Labels) -> Executor:
    d, a = vgpr(item.operands[0]), source_f32(item.operands[1])
    return lambda g: g.write(d, _truncate(a(g), 0, 2**32 - 1).astype(U32))


@instruction("v_cvt_i32_f32")
def i32_from_f32(item: Instruction, labels: Labels) -> Executor:
    d, a = vgpr(item.operands[0]), source_f32(item.operands[1])
    return lambda g: g.write(d, _truncate(a(g), -(2**31), 2**31 - 1).astype(I32).view(U32))


@instruction("v_cvt_f16_f32")
def f16_from_f32(item: Instruction, labels: Labels) -> Executor:
    d, a, post = vgpr(item.operands[0]), source_f32(item.operands[1]), output_modifier(item)
    return lambda g: g.write(d, formats.f32_to_f16(a(g) if post is None else post(a(g))))


@instruction("v_cvt_f32_f16")
def f32_from_f16(item: Instruction, labels: Labels) -> Executor:
    d, a = vgpr(item.operands[0]), half_source(item.operands[1])
    return lambda g: g.write_f32(d, np.asarray(a(g)).astype(F32))


def _pair(low: np.ndarray, high: np.ndarray, bits: int) -> np.ndarray:
    return low | (high << U32(bits))


@instruction("v_cvt_pk_bf16_f32", "v_cvt_pk_f16_f32")
def pack_16_from_f32(item: Instruction, labels: Labels) -> Executor:
    d, a, b = vgpr(item.operands[0]), source_f32(item.operands[1]), source_f32(item.operands[2])
    encode = formats.f32_to_bf16 if "bf16" in item.opcode else formats.f32_to_f16
    return lambda g: g.write(d, _pair(encode(a(g)), encode(b(g)), 16))


@instruction("v_cvt_pkrtz_f16_f32")
def pack_f16_towards_zero(item: Instruction, labels: Labels) -> Executor:
    d, a, b = vgpr(item.operands[0]), source_f32(item.operands[1]), source_f32(item.operands[2])
    return lambda g: g.write(d, _pair(_f16_towards_zero(a(g)), _f16_towards_zero(b(g)), 16))


def _f16_towards_zero(value: np.ndarray) -> np.ndarray:
    nearest = np.asarray(value).astype(np.float16)
    away = np.abs(nearest.astype(F32)) > np.abs(value)
    return (nearest.view(np.uint16) - away.astype(np.uint16)).astype(U32)


# ------------------------------------------------------------------ fp8, without scale

_ENCODE8 = {"fp8": formats.f32_to_e4m3, "bf8": formats.f32_to_e5m2}
_DECODE8 = {"fp8": E4M3, "bf8": E5M2}


def _into_half(g, d: int, pair: np.ndarray, high: bool) -> None:
    """Write 16 bits to one half of a register and keep the other."""
    if high:
        g.write(d, (g.v[d] & U32(0x0000FFFF)) | (pair << U32(16)))
    else:
        g.write(d, (g.v[d] & U32(0xFFFF0000)) | pair)


@instruction("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32")
def pack_fp8_from_f32(item: Instruction, labels: Labels) -> Executor:
    encode = _ENCODE8[item.opcode.split("_")[3]]
    d, a, b = vgpr(item.operands[0]), source_f32(item.operands[1]), source_f32(item.operands[2])
    high = bool(item.numbers("op_sel", [0, 0, 0])[-1])
    return lambda g: _into_half(g, d, _pair(encode(a(g)), encode(b(g)), 8), high)


@instruction("v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8")
def f32_pair_from_fp8(item: Instruction, labels: Labels) -> Executor:
    table = _DECODE8[item.opcode[-3:]]
    d, a, shift = vgpr(item.operands[0]), source_u32(item.operands[1]), U32(16 * item.numbers("op_sel", [0])[0])

    def execute(g):
        pair = a(g) >> shift
        low, high = table[pair & U32(0xFF)], table[(pair >> U32(8)) & U32(0xFF)]
        g.write_f32(d, low)
        g.write_f32(d + 1, high)

    return execute


@instruction("v_cvt_f32_fp8", "v_cvt_f32_bf8")
def f32_from_fp8(item: Instruction, labels: Labels) -> Executor:
    """byte_sel, or op_sel[0:2] in the older spelling, picks the byte."""
    table = _DECODE8[item.opcode[-3:]]
    select = item.numbers("op_sel", [0, 0])
    shift = U32(8 * (item.number("byte_sel") or select[0] + 2 * select[1]))
    d, a = vgpr(item.operands[0]), source_u32(item.operands[1])
    return lambda g: g.write_f32(d, table[(a(g) >> shift) & U32(0xFF)])


# ------------------------------------------------------------------ conversions with a scale (gfx950)
#
# The scale operand is a float32 of which only the exponent counts: decoding multiplies by 2**(exponent - 127),
# encoding divides by it.

_DECODE = {"fp8": (E4M3, 8), "bf8": (E5M2, 8), "fp4": (E2M1, 4)}
_ENCODE = {"fp8": (formats.f32_to_e4m3, 8), "bf8": (formats.f32_to_e5m2, 8), "fp4": (formats.f32_to_e2m1, 4)}


def _scale(bits: np.ndarray, sign: int) -> np.ndarray:
    return np.ldexp(F32(1), sign * (exponent_of(bits) - 127)).astype(F32)


@instruction(
    *(f"v_cvt_scalef32_pk_{wide}_{narrow}" for wide in ("f32", "bf16", "f16") for narrow in ("fp8", "bf8", "fp4"))
)
def scaled_decode(item: Instruction, labels: Labels) -> Executor:
    """Two narrow values to f32 (two registers), bf16 or f16 (one); op_sel picks which pair of the source."""
    *_, wide, narrow = item.opcode.split("_")
    table, bits = _DECODE[narrow]
    select = item.numbers("op_sel", [0, 0])
    position = select[0] if bits == 8 else select[0] + 2 * select[1]
    shift, width, mask = U32(2 * bits * position), U32(bits), U32((1 << bits) - 1)
    d, a, scale = vgpr(item.operands[0]), source_u32(item.operands[1]), source_u32(item.operands[2])

    def execute(g):
        pair, factor = a(g) >> shift, _scale(scale(g), 1)
        low, high = table[pair & mask] * factor, table[(pair >> width) & mask] * factor
        if wide == "f32":
            g.write_f32(d, low)
            g.write_f32(d + 1, high)
        else:
            encode = formats.f32_to_bf16 if wide == "bf16" else formats.f32_to_f16
            g.write(d, _pair(encode(low), encode(high), 16))

    return execute


@instruction("v_cvt_scalef32_pk_fp8_f32", "v_cvt_scalef32_pk_bf8_f32", "v_cvt_scalef32_pk_fp4_f32")
def scaled_encode(item: Instruction, labels: Labels) -> Executor:
    """Two f32 to a pair of narrow values in one part of the destination (op_sel[2:3] for fp4, op_sel[3] for fp8)."""
    narrow = item.opcode.split("_")[4]
    encode, bits = _ENCODE[narrow]
    d, a, b, scale = vgpr(item.operands[0]), *(source_f32(t) for t in item.operands[1:3]), source_u32(item.operands[3])
    select = item.numbers("op_sel", [0, 0, 0, 0])
    position = select[3] if bits == 8 else select[2] + 2 * select[3]
    shift, keep = U32(2 * bits * position), U32(0xFFFFFFFF ^ ((1 << 2 * bits) - 1) << 2 * bits * position)

    def execute(g):
        factor = _scale(scale(g), -1)
        pair = _pair(encode(a(g) * factor), encode(b(g) * factor), bits)
        g.write(d, (g.v[d] & keep) | (pair << shift))

    return execute


@instruction("v_cvt_scalef32_pk_fp8_bf16", "v_cvt_scalef32_pk_bf8_bf16")
@instruction("v_cvt_scalef32_pk_fp8_f16", "v_cvt_scalef32_pk_bf8_f16")
def scaled_encode_16(item: Instruction, labels: Labels) -> Executor:
    """A packed pair of bf16 or f16 to two fp8 values in the half chosen by op_sel[3]."""
    *_, narrow, wide = item.opcode.split("_")
    encode, decode = _ENCODE8[narrow], formats.bf16_to_f32 if wide == "bf16" else formats.f16_to_f32
    d, a, scale = vgpr(item.operands[0]), source_u32(item.operands[1]), source_u32(item.operands[2])
    high = bool(item.numbers("op_sel", [0, 0, 0])[-1])

    def execute(g):
        factor, both = _scale(scale(g), -1), a(g)
        low = encode(decode(both & U32(0xFFFF)) * factor)
        _into_half(g, d, _pair(low, encode(decode(both >> U32(16)) * factor), 8), high)

    return execute
