"""Single-precision vector instructions.

Results are IEEE-rounded. The hardware's approximations (v_exp, v_log, v_rcp, v_rsq, v_sqrt: 1 ulp) are replaced by
correctly rounded or nearly correctly rounded values, and denormals are kept.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from .asm import Instruction
from .formats import exponent_of
from .operands import VCC, sgpr, source_f32, source_i32, vgpr
from .registry import Executor, Labels, instruction
from .vector import elementwise_f32, output_modifier

U32, F32, F64 = np.uint32, np.float32, np.float64


def fma(a, b, c):
    """a * b + c with one rounding (through float64, where the product is exact)."""
    return (np.asarray(a, F64) * b + c).astype(F32)


def _med3(a, b, c):
    return np.fmax(np.fmin(a, b), np.fmin(np.fmax(a, b), c))


def _ldexp(a, b):
    return np.ldexp(a, np.clip(b, -400, 400))


FLOAT: dict[str, Callable[..., Any]] = {
    "v_add_f32": np.add,
    "v_sub_f32": np.subtract,
    "v_subrev_f32": lambda a, b: b - a,
    "v_mul_f32": np.multiply,
    "v_mul_legacy_f32": lambda a, b: np.where((a == 0) | (b == 0), F32(0), a * b),
    # max/min return the number when one operand is NaN; maximum/minimum propagate NaN.
    "v_max_f32": np.fmax,
    "v_min_f32": np.fmin,
    "v_max3_f32": lambda a, b, c: np.fmax(np.fmax(a, b), c),
    "v_min3_f32": lambda a, b, c: np.fmin(np.fmin(a, b), c),
    "v_maximum3_f32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "v_minimum3_f32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "v_med3_f32": _med3,
    "v_fma_f32": fma,
    "v_exp_f32": np.exp2,
    "v_log_f32": np.log2,
    "v_rcp_f32": np.reciprocal,
    "v_rcp_iflag_f32": np.reciprocal,
    "v_sqrt_f32": np.sqrt,
    "v_rsq_f32": lambda a: F32(1) / np.sqrt(a),
    "v_rndne_f32": np.rint,
    "v_floor_f32": np.floor,
    "v_ceil_f32": np.ceil,
    "v_trunc_f32": np.trunc,
    "v_fract_f32": lambda a: a - np.floor(a),
    "v_frexp_mant_f32": lambda a: np.frexp(a)[0],
}


@instruction(*FLOAT)
def float_operation(item: Instruction, labels: Labels) -> Executor:
    return elementwise_f32(item, FLOAT[item.opcode])


@instruction("v_fmac_f32")
def fmac(item: Instruction, labels: Labels) -> Executor:
    d, a, b = vgpr(item.operands[0]), source_f32(item.operands[1]), source_f32(item.operands[2])
    if item.encoding == "dpp":
        raise ValueError("v_fmac_f32 with DPP")
    post = output_modifier(item)
    if post is not None:
        return lambda g: g.write_f32(d, post(fma(a(g), b(g), g.f[d])))
    return lambda g: g.write_f32(d, fma(a(g), b(g), g.f[d]))


@instruction("v_fmamk_f32", "v_fmaak_f32")
def fma_constant(item: Instruction, labels: Labels) -> Executor:
    """fmamk: D = S0 * K + S1 is written D, S0, K, S1; fmaak: D = S0 * S1 + K. Both multiply 1 by 2 and add 3."""
    d = vgpr(item.operands[0])
    a, b, c = (source_f32(text) for text in item.operands[1:4])
    return lambda g: g.write_f32(d, fma(a(g), b(g), c(g)))


@instruction("v_ldexp_f32")
def ldexp(item: Instruction, labels: Labels) -> Executor:
    d, a, b = vgpr(item.operands[0]), source_f32(item.operands[1]), source_i32(item.operands[2])
    return lambda g: g.write_f32(d, _ldexp(a(g), b(g)))


@instruction("v_frexp_exp_i32_f32")
def frexp_exponent(item: Instruction, labels: Labels) -> Executor:
    d, a = vgpr(item.operands[0]), source_f32(item.operands[1])

    def execute(g):
        value = a(g)
        g.write(d, np.where(np.isfinite(value), np.frexp(value)[1], 0).astype(np.int32).view(U32))

    return execute


# ------------------------------------------------------------------ IEEE division


def div_scale(value, denominator, numerator):
    """Pre-scale one operand of a division so that the Newton steps stay in range: (scaled value, was numerator scaled).

    ISA guide, V_DIV_SCALE_F32. ``value`` equals the denominator or the numerator.
    """
    value, denominator, numerator = (
        np.ascontiguousarray(x, F32) for x in np.broadcast_arrays(F32(value), F32(denominator), F32(numerator))
    )
    den_exp, num_exp = exponent_of(denominator.view(U32)), exponent_of(numerator.view(U32))
    is_den = value.view(U32) == denominator.view(U32)
    is_num = value.view(U32) == numerator.view(U32)
    up, down = F32(2.0**64), F32(2.0**-64)
    result, flag = value.copy(), np.zeros(value.shape, bool)
    todo = (denominator != 0) & (numerator != 0)
    result[~todo] = np.nan

    def case(condition, scaled, where=True, sets_flag=False):
        nonlocal result, flag, todo
        chosen = todo & condition
        result = np.where(chosen & where, scaled, result)
        if sets_flag:
            flag |= chosen
        todo &= ~chosen

    tiny_quotient = num_exp - den_exp <= -126
    case(num_exp - den_exp >= 96, value * up, where=is_den, sets_flag=True)
    case(den_exp == 0, value * up)
    case((den_exp >= 253) & tiny_quotient, value * up, where=is_den, sets_flag=True)
    case(den_exp >= 253, value * down)
    case(tiny_quotient, value * up, where=is_num, sets_flag=True)
    case(num_exp <= 23, value * up)
    return result.astype(F32), flag


def div_fixup(quotient, denominator, numerator):
    """Special cases of a division: ISA guide, V_DIV_FIXUP_F32."""
    negative = np.signbit(denominator) ^ np.signbit(numerator)
    zero = np.isinf(denominator) | (numerator == 0)
    infinite = (denominator == 0) | np.isinf(numerator)
    invalid = (denominator == 0) & (numerator == 0) | np.isinf(denominator) & np.isinf(numerator)
    invalid |= np.isnan(denominator) | np.isnan(numerator)
    magnitude = np.where(infinite, F32(np.inf), np.where(zero, F32(0), np.abs(quotient)))
    return np.where(invalid, F32(np.nan), np.where(negative, -magnitude, magnitude)).astype(F32)


@instruction("v_div_fixup_f32")
def div_fixup_f32(item: Instruction, labels: Labels) -> Executor:
    return elementwise_f32(item, div_fixup)


@instruction("v_div_scale_f32")
def div_scale_f32(item: Instruction, labels: Labels) -> Executor:
    d, flag = vgpr(item.operands[0]), sgpr(item.operands[1])
    a, b, c = (source_f32(text) for text in item.operands[2:5])

    def execute(g):
        value, scaled = div_scale(a(g), b(g), c(g))
        g.write_f32(d, value)
        g.write_mask(flag, scaled)

    return execute


@instruction("v_div_fmas_f32")
def div_fmas_f32(item: Instruction, labels: Labels) -> Executor:
    """fma, then undo the scaling of v_div_scale where VCC is set."""
    d = vgpr(item.operands[0])
    a, b, c = (source_f32(text) for text in item.operands[1:4])

    def execute(g):
        addend = np.ascontiguousarray(np.broadcast_to(c(g), (g.count, 64)), F32)
        result = fma(a(g), b(g), addend)
        scaled = g.read_mask(VCC)
        if scaled.any():
            factor = np.where(exponent_of(addend.view(U32)) > 127, F32(2.0**64), F32(2.0**-64))
            result = np.where(scaled, result * factor, result)
        g.write_f32(d, result)

    return execute
