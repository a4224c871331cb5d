"""Packed single precision: two float32 lanes per instruction, in consecutive registers, with op_sel and neg."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .asm import Instruction
from .operands import Accessor, immediate, parse_register, vgpr
from .registry import Executor, Labels, instruction
from .vector_float import fma

PACKED: dict[str, Callable[..., Any]] = {"v_pk_mul_f32": np.multiply, "v_pk_add_f32": np.add, "v_pk_fma_f32": fma}


def _half(text: str, high: int, negate: int) -> Accessor:
    """Low or high float of an operand; a constant stands for both."""
    found = parse_register(text)
    if found is None:
        constant = np.uint32(immediate(text)).view(np.float32)
        return (lambda g: -constant) if negate else (lambda g: constant)
    index = found.index + high
    if found.vector:
        return (lambda g: -g.f[index]) if negate else (lambda g: g.f[index])
    return (lambda g: -g.sc[index].view(np.float32)) if negate else (lambda g: g.sc[index].view(np.float32))


def _halves(item: Instruction) -> tuple[list[Accessor], list[Accessor]]:
    texts = item.operands[1:]
    low, high = item.numbers("op_sel", [0] * len(texts)), item.numbers("op_sel_hi", [1] * len(texts))
    negate_low, negate_high = item.numbers("neg_lo", [0] * len(texts)), item.numbers("neg_hi", [0] * len(texts))
    return (
        [_half(text, low[i], negate_low[i]) for i, text in enumerate(texts)],
        [_half(text, high[i], negate_high[i]) for i, text in enumerate(texts)],
    )


@instruction(*PACKED)
def packed_f32(item: Instruction, labels: Labels) -> Executor:
    operation, d = PACKED[item.opcode], vgpr(item.operands[0])
    low, high = _halves(item)
    if item.has("clamp"):
        raise ValueError("clamp of packed floats")

    def execute(g):
        first = operation(*(source(g) for source in low))
        second = operation(*(source(g) for source in high))
        g.write_f32(d, first)
        g.write_f32(d + 1, second)

    return execute


@instruction("v_pk_mov_b32")
def packed_mov(item: Instruction, labels: Labels) -> Executor:
    """D.low = half of S0 chosen by op_sel[0]; D.high = half of S1 chosen by op_sel[1]."""
    d = vgpr(item.operands[0])
    select = item.numbers("op_sel", [0, 0])
    a, b = _half(item.operands[1], select[0], 0), _half(item.operands[2], select[1], 0)

    def execute(g):
        first, second = np.array(a(g)), np.array(b(g))
        g.write(d, first.view(np.uint32))
        g.write(d + 1, second.view(np.uint32))

    return execute
