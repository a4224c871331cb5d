"""How a vector instruction is put together: sources, operation, output modifiers, destination, EXEC, DPP.

The tables of operations live in vector_float.py, vector_int.py and vector_half.py; an operation is a plain function of
arrays that broadcast to ``[waves, 64]``. NumPy ufuncs write straight into the destination register.
"""

from collections.abc import Callable

import numpy as np

from .asm import Instruction
from .crosslane import dpp_source, has_dpp
from .operands import Accessor, source_f32, source_i32, source_u32, vgpr
from .registry import Executor

Operation = Callable[..., np.ndarray]
F32 = np.float32


def _add_saturating(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = np.asarray(a) + np.asarray(b)
    return np.where(total < a, np.uint32(0xFFFFFFFF), total)


def _subtract_saturating(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(np.asarray(a) > b, np.asarray(a) - np.asarray(b), np.uint32(0))


SATURATING: dict[Operation, Operation] = {np.add: _add_saturating, np.subtract: _subtract_saturating}
"""Unsigned operations with the clamp modifier, which makes them stop at the ends of the range."""


def elementwise_f32(item: Instruction, operation: Operation) -> Executor:
    """``D.f32 = operation(sources as f32)``, with clamp to [0, 1] and the output multiplier."""
    d = vgpr(item.operands[0])
    sources = [source_f32(text) for text in item.operands[1:]]
    post = output_modifier(item)
    if has_dpp(item):
        return _with_dpp(item, d, sources, operation, "f", post)
    call = _apply(operation, sources)
    if post is not None:
        return lambda g: g.write_f32(d, post(call(g)))
    if isinstance(operation, np.ufunc):
        return _into_row(operation, sources, d, "f")
    return lambda g: g.write_f32(d, call(g))


def elementwise_u32(item: Instruction, operation: Operation, signed: bool = False) -> Executor:
    """``D.u32 = operation(sources as u32)``, or as i32."""
    d = vgpr(item.operands[0])
    source = source_i32 if signed else source_u32
    sources = [source(text) for text in item.operands[1:]]
    rows = "i" if signed else "v"
    if item.has("clamp"):
        if signed or operation not in SATURATING:
            raise ValueError("clamp of this integer operation")
        operation = SATURATING[operation]
    if has_dpp(item):
        return _with_dpp(item, d, sources, operation, rows, None)
    if isinstance(operation, np.ufunc):
        return _into_row(operation, sources, d, rows)
    call = _apply(operation, sources)
    if signed:
        return lambda g: g.write(d, np.asarray(call(g)).view(np.uint32))
    return lambda g: g.write(d, call(g))


def output_modifier(item: Instruction) -> Callable[[np.ndarray], np.ndarray] | None:
    """``clamp``, ``mul:2``, ``mul:4``, ``div:2`` of the VOP3 encoding."""
    scale = F32(item.number("mul", 1) / item.number("div", 1))
    clamp = item.has("clamp")
    if not clamp and scale == 1:
        return None

    def modify(value: np.ndarray) -> np.ndarray:
        scaled = value * scale if scale != 1 else value
        # Clamping a NaN gives 0 (DX10_CLAMP, which LLVM sets).
        return np.where(scaled > 0, np.minimum(scaled, F32(1)), F32(0)) if clamp else scaled

    return modify


def _apply(operation: Operation, sources: list[Accessor]) -> Executor:
    if len(sources) == 1:
        (a,) = sources
        return lambda g: operation(a(g))
    if len(sources) == 2:
        a, b = sources
        return lambda g: operation(a(g), b(g))
    a, b, c = sources
    return lambda g: operation(a(g), b(g), c(g))


def _into_row(ufunc: np.ufunc, sources: list[Accessor], d: int, rows: str) -> Executor:
    if len(sources) == 1:
        (a,) = sources

        def execute(g):
            row = getattr(g, rows)[d]
            if g.em is None:
                ufunc(a(g), out=row)
            else:
                ufunc(a(g), out=row, where=g.em)

    else:
        a, b = sources

        def execute(g):
            row = getattr(g, rows)[d]
            if g.em is None:
                ufunc(a(g), b(g), out=row)
            else:
                ufunc(a(g), b(g), out=row, where=g.em)

    return execute


def _with_dpp(item: Instruction, d: int, sources: list[Accessor], operation: Operation, rows: str, post) -> Executor:
    """Source 0 comes from another lane; lanes without a source keep the destination, or read 0 with bound_ctrl."""
    lane, valid, enabled = dpp_source(item)
    first, others = sources[0], sources[1:]

    def execute(g):
        moved = np.broadcast_to(first(g), (g.count, 64))[:, lane]
        moved = np.where(valid, moved, moved.dtype.type(0))
        value = operation(moved, *(source(g) for source in others))
        if post is not None:
            value = post(value)
        mask = enabled if g.em is None else enabled & g.em
        np.copyto(getattr(g, rows)[d], value, where=mask, casting="same_kind")

    return execute
