"""Vector comparisons, which write lane masks, and the select that reads one."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .asm import Instruction
from .formats import F32
from .operands import (
    EXEC,
    parse_register,
    sgpr,
    source_f32,
    source_i32,
    source_mask,
    source_u32,
    source_u64,
    strip_modifiers,
    vgpr,
)
from .registry import Executor, Labels, instruction
from .vector_half import half_immediate

U32, I64 = np.uint32, np.int64


@instruction("v_cndmask_b32")
def select(item: Instruction, labels: Labels) -> Executor:
    """D = mask ? S1 : S0. Float modifiers are allowed on both."""
    d, mask = vgpr(item.operands[0]), source_mask(item.operands[3])
    modified = any(strip_modifiers(text)[:2] != (False, False) for text in item.operands[1:3])
    source = source_f32 if modified else source_u32
    a, b = source(item.operands[1]), source(item.operands[2])
    if modified:
        return lambda g: g.write_f32(d, np.where(mask(g), b(g), a(g)))
    return lambda g: g.write(d, np.where(mask(g), b(g), a(g)))


_COMPARE: dict[str, Callable[..., Any]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    # Ordered and unordered float conditions.
    "lg": lambda a, b: (a < b) | (a > b),
    "neq": np.not_equal,
    "nlt": lambda a, b: ~(a < b),
    "nle": lambda a, b: ~(a <= b),
    "ngt": lambda a, b: ~(a > b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
}
_INTEGER_CONDITIONS = ("lt", "le", "gt", "ge", "eq", "ne")
_FLOAT_CONDITIONS = tuple(c for c in _COMPARE if c != "ne")


def _half(text: str):
    source = source_u32(text)
    return lambda g: (np.asarray(source(g)) & U32(0xFFFF)).astype(np.uint16)


def _signed_half(text: str):
    source = _half(text)
    return lambda g: source(g).view(np.int16)


def _float_half(text: str):
    negate, absolute, text = strip_modifiers(text)
    if parse_register(text) is None:
        bits = np.uint16(half_immediate(text))
        return lambda g: bits.view(np.float16).astype(F32)
    source = _half(text)

    def value(g):
        x = source(g).view(np.float16).astype(F32)
        x = np.abs(x) if absolute else x
        return -x if negate else x

    return value


def _signed64(text: str):
    source = source_u64(text)
    return lambda g: np.asarray(source(g)).view(I64)


_SOURCES = {
    "f32": source_f32,
    "i32": source_i32,
    "u32": source_u32,
    "u64": source_u64,
    "i64": _signed64,
    "u16": _half,
    "i16": _signed_half,
    "f16": _float_half,
}
_COMPARISONS = [f"{c}_{t}" for t in ("i16", "u16", "i32", "u32", "i64", "u64") for c in _INTEGER_CONDITIONS]
_COMPARISONS += [f"{c}_{t}" for t in ("f16", "f32") for c in _FLOAT_CONDITIONS]


@instruction(*(f"v_cmp_{c}" for c in _COMPARISONS), *(f"v_cmpx_{c}" for c in _COMPARISONS))
def compare(item: Instruction, labels: Labels) -> Executor:
    """Result mask into an SGPR pair (0 for inactive lanes); v_cmpx also writes EXEC."""
    _, kind, condition, number = item.opcode.split("_")
    operation, source = _COMPARE[condition], _SOURCES[number]
    d = sgpr(item.operands[0])
    a, b = source(item.operands[1]), source(item.operands[2])

    def execute(g):
        result = np.asarray(operation(a(g), b(g)))
        if kind == "cmpx":
            before = g.em
            g.write_mask(EXEC, result)
            if d != EXEC:
                g.write_mask(d, result if before is None else result & before)
        else:
            g.write_mask(d, result)

    return execute


# v_cmp_class condition bits, in order: signalling NaN, quiet NaN, -inf, -normal, -denormal, -0, +0, +denormal, ...
def _class_bits(bits: np.ndarray) -> np.ndarray:
    magnitude, negative = bits & U32(0x7FFFFFFF), bits >> U32(31) == 1
    nan = magnitude > 0x7F800000
    quiet = nan & (bits >> U32(22) & U32(1) == 1)
    kind = np.select(
        [magnitude == 0x7F800000, magnitude >= 0x00800000, magnitude > 0],
        [2, 3, 4],
        default=5,
    )
    position = np.where(negative, kind, 11 - kind)
    return np.where(nan, np.where(quiet, 1, 0), position).astype(U32)


@instruction("v_cmp_class_f32")
def compare_class(item: Instruction, labels: Labels) -> Executor:
    d, a, mask = sgpr(item.operands[0]), source_f32(item.operands[1]), source_u32(item.operands[2])

    def execute(g):
        bits = np.ascontiguousarray(np.broadcast_to(a(g), (g.count, 64)), F32).view(U32)
        g.write_mask(d, (mask(g) >> _class_bits(bits)) & U32(1) == 1)

    return execute
