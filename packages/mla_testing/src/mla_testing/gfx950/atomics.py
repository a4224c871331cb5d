"""Atomic read-modify-write on global memory: global_atomic_*, flat_atomic_*, buffer_atomic_*.

With sc0 the old value is returned. Lanes that hit the same address are served one after another, in wave order.
"""

from collections.abc import Callable

import attrs
import numpy as np

from . import formats
from .asm import Instruction
from .buffer import BufferAddress
from .errors import MisalignedAccessError
from .flat import global_address
from .formats import U32
from .hazards import Kind, Operation
from .lds import write_active
from .operands import register, vgpr
from .registry import Executor, Labels, instruction

Modify = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _float_add(old: np.ndarray, value: np.ndarray) -> np.ndarray:
    return (old.view(np.float32) + value.view(np.float32)).view(U32)


def _packed_add(decode: Callable, encode: Callable) -> Modify:
    def operate(old: np.ndarray, value: np.ndarray) -> np.ndarray:
        low, high = (
            encode(decode((old >> shift) & U32(0xFFFF)) + decode((value >> shift) & U32(0xFFFF)))
            for shift in (U32(0), U32(16))
        )
        return low | (high << U32(16))

    return operate


def _signed(operate: Callable) -> Modify:
    def on_patterns(old: np.ndarray, value: np.ndarray) -> np.ndarray:
        kind = np.int32 if old.dtype == U32 else np.int64
        return operate(old.view(kind), value.view(kind)).view(old.dtype)

    return on_patterns


_INTEGER: dict[str, Modify] = {
    "add": np.add,
    "sub": np.subtract,
    "smin": _signed(np.minimum),
    "smax": _signed(np.maximum),
    "umin": np.minimum,
    "umax": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "swap": lambda old, value: value,
    "inc": lambda old, value: np.where(old >= value, 0, old + 1).astype(old.dtype),
    "dec": lambda old, value: np.where((old == 0) | (old > value), value, old - 1).astype(old.dtype),
}


@attrs.frozen
class _Form:
    modify: Modify | None  # None: compare and swap
    size: int  # bytes of the memory operand


_FORMS = {name: _Form(modify, 4) for name, modify in _INTEGER.items()}
_FORMS |= {f"{name}_x2": _Form(modify, 8) for name, modify in _INTEGER.items()}
_FORMS |= {
    "cmpswap": _Form(None, 4),
    "cmpswap_x2": _Form(None, 8),
    "add_f32": _Form(_float_add, 4),
    "pk_add_f16": _Form(_packed_add(formats.f16_to_f32, formats.f32_to_f16), 4),
    "pk_add_bf16": _Form(_packed_add(formats.bf16_to_f32, formats.f32_to_bf16), 4),
}


def _exchange(form: _Form, old: np.ndarray, data: np.ndarray) -> np.ndarray:
    """New memory contents [k] from old [k] and data [k, 1 or 2] (value, then the comparand)."""
    if form.modify is None:
        return np.where(old == data[:, 1], data[:, 0], old)
    return form.modify(old, data[:, 0])


def _perform(g, form: _Form, address: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Apply to int64[k] addresses; returns the old values uint32[k, size / 4]."""
    if int(np.bitwise_or.reduce(address)) & (form.size - 1):
        raise MisalignedAccessError(f"atomic of {form.size} bytes at a misaligned address")
    dtype = U32 if form.size == 4 else np.uint64
    data = np.ascontiguousarray(data).view(dtype)
    old = np.empty(len(address), dtype)
    # The first lane at each address is served, then the second at each, and so on.
    order = np.argsort(address, kind="stable")
    sorted_address = address[order]
    starts = np.r_[True, sorted_address[1:] != sorted_address[:-1]]
    rank = np.arange(len(order)) - np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    changed = False
    for turn in range(int(rank.max()) + 1):
        lanes = order[rank == turn]
        before = np.ascontiguousarray(g.memory.load(address[lanes], form.size)).view(dtype)[:, 0]
        after = _exchange(form, before, data[lanes])
        g.memory.store(address[lanes], after[:, None].view(U32).reshape(len(lanes), -1), form.size)
        old[lanes] = before
        changed = changed or bool((before != after).any())
    if changed:
        g.machine.progress += 1
    return old.view(U32).reshape(len(address), -1)


def _run(g, form: _Form, address: np.ndarray, active: np.ndarray | None, source: int, result: int | None) -> None:
    words = form.size // 4 * (2 if form.modify is None else 1)
    if active is None:
        flat, data = address.reshape(-1), g.rows(source, words).reshape(words, -1).T
    else:
        flat, data = address[active], g.rows(source, words)[:, active].T
    if len(flat):
        old = _perform(g, form, flat, data)
        g.note_atomic(flat, active)
        if result is not None:
            if active is g.em:
                write_active(g, result, old)
            else:
                for position in range(old.shape[1]):
                    g.v[result + position][active] = old[:, position]
    g.bytes_read += len(flat) * form.size
    g.bytes_written += len(flat) * form.size


@instruction(*(f"{space}_atomic_{name}" for space in ("global", "flat") for name in _FORMS))
def global_atomic(item: Instruction, labels: Labels) -> Executor:
    space, _, name = item.opcode.split("_", 2)
    form, operands = _FORMS[name], list(item.operands)
    result, filled = None, 0
    if item.has("sc0"):
        returned = register(operands.pop(0))
        result, filled = returned.index, returned.bits()
    address = global_address(item, operands[0], operands[2] if space == "global" else "off")
    source, kind = vgpr(operands[1]), Kind.VMEM if space == "global" else Kind.FLAT

    def execute(g):
        _run(g, form, address(g), g.em, source, result)
        g.issue(Operation(kind, g.step, filled))

    return execute


@instruction(*(f"buffer_atomic_{name}" for name in _FORMS))
def buffer_atomic(item: Instruction, labels: Labels) -> Executor:
    """The data registers receive the old value when sc0 is set."""
    form = _FORMS[item.opcode.removeprefix("buffer_atomic_")]
    source, where = vgpr(item.operands[0]), BufferAddress(item, item.operands[1:4])
    returns = item.has("sc0")
    filled = register(item.operands[0]).bits() if returns else 0

    def execute(g):
        address, active = where.resolve(g, form.size)
        _run(g, form, address, active, source, source if returns else None)
        g.issue(Operation(Kind.VMEM, g.step, filled))

    return execute


# ------------------------------------------------------------------ cache maintenance around atomics


@instruction("buffer_wbl2")
def write_back(item: Instruction, labels: Labels) -> Executor:
    """First half of a release: what this workgroup wrote becomes visible to other dies."""

    def execute(g):
        g.release_fence()
        g.issue(Operation(Kind.VMEM, g.step, stores=True))

    return execute


@instruction("buffer_inv")
def invalidate(item: Instruction, labels: Labels) -> Executor:
    """Second half of an acquire: later loads no longer see stale caches."""
    return lambda g: g.acquire_fence()
