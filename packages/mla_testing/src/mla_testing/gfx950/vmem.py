"""What the vector-memory families (buffer, global, flat, scratch) share: data types, loads, stores, loads into LDS."""

import numpy as np

from .asm import Instruction
from .errors import PoisonError
from .formats import U32
from .hazards import Footprint, Kind, LdsTouch, Operation
from .lds import active_lanes, merge_half, sign_extend, write_active
from .operands import M0
from .registers import LANE

# name in the mnemonic -> (bytes, sign-extend, half of the register: None, "low" or "high")
TYPES = {
    "dword": (4, False, None),
    "dwordx2": (8, False, None),
    "dwordx3": (12, False, None),
    "dwordx4": (16, False, None),
    "ubyte": (1, False, None),
    "sbyte": (1, True, None),
    "ushort": (2, False, None),
    "sshort": (2, True, None),
    "ubyte_d16": (1, False, "low"),
    "ubyte_d16_hi": (1, False, "high"),
    "sbyte_d16": (1, True, "low"),
    "sbyte_d16_hi": (1, True, "high"),
    "short_d16": (2, False, "low"),
    "short_d16_hi": (2, False, "high"),
    "byte": (1, False, None),
    "byte_d16_hi": (1, False, "high"),
    "short": (2, False, None),
}
LOADS = (
    *("dword", "dwordx2", "dwordx3", "dwordx4", "ubyte", "sbyte", "ushort", "sshort"),
    *("ubyte_d16", "ubyte_d16_hi", "sbyte_d16", "sbyte_d16_hi", "short_d16", "short_d16_hi"),
)
STORES = ("dword", "dwordx2", "dwordx3", "dwordx4", "byte", "byte_d16_hi", "short", "short_d16_hi")
LDS_LOADS = ("dword", "dwordx3", "dwordx4", "ubyte", "sbyte", "ushort", "sshort")

# Triton switches the loads of redundant warps off by pointing M0 far outside LDS; the hardware then drops the write.
M0_DROPPED = 0x7FFFFFFF


def fetch(g, kind: str, address: np.ndarray, active: np.ndarray | None) -> np.ndarray:
    """Load the lanes of ``active`` (None: all): uint32[k, n]."""
    size, signed, _ = TYPES[kind]
    flat = address.reshape(-1) if active is None else address[active]
    data = g.memory.load(flat, size)
    g.note_global_read(flat, size, active)
    g.bytes_read += len(flat) * size
    if signed:
        data = sign_extend(np.ascontiguousarray(data), size)
    return data


def load(g, d: int, kind: str, address: np.ndarray, active: np.ndarray | None, zero_rest: bool) -> None:
    """Load into registers from register ``d`` on; with ``zero_rest`` lanes of EXEC outside ``active`` receive 0."""
    size, _, half = TYPES[kind]
    words = max(1, size // 4)
    if active is None:
        data = fetch(g, kind, address, None)
    elif zero_rest:
        everything = np.zeros((g.count, 64, words), U32)
        if active.any():
            everything[active] = fetch(g, kind, address, active)
        data = everything.reshape(-1, words) if g.em is None else everything[g.em]
    elif active.any():
        data = fetch(g, kind, address, active)
    else:
        return
    if half is not None:
        (old,) = active_lanes(g, g.v[d])
        data = merge_half(old, data[:, 0], half == "high")[:, None]
    write_active(g, d, data)


def store(g, first: int, kind: str, address: np.ndarray, active: np.ndarray | None) -> None:
    size, _, half = TYPES[kind]
    words = max(1, size // 4)
    rows = g.rows(first, words)
    if active is None:
        data, flat = rows.reshape(words, -1).T, address.reshape(-1)
    else:
        if not active.any():
            return
        data, flat = rows[:, active].T, address[active]
    if half == "high":
        data = data >> U32(16)
    if g.poison is not None:
        _check_poison(g, flat, data, size)
    g.memory.store(flat, data, size)
    g.note_global_write(flat, size, active)
    g.bytes_written += len(flat) * size


def _check_poison(g, address: np.ndarray, data: np.ndarray, size: int) -> None:
    """A stored float that carries the poison pattern was computed from something never written.

    Arithmetic keeps the upper half of a NaN's bits, and may change its sign. 8-bit floats are not recognised.
    """
    mark = U32(g.poison & 0x7FFF)
    low = (data & U32(0x7FFF)) == mark
    high = (data >> U32(16) & U32(0x7FFF)) == mark
    if not (low.any() or high.any()):
        return
    for region, chosen in g.memory.split(address, size):
        if not region.floating or region.unit == 1:
            continue
        marked = low[chosen] if size == 2 else high[chosen] if region.unit == 4 else low[chosen] | high[chosen]
        if marked.any():
            raise PoisonError(
                f"stores a value to {region.name} that was computed from a register, LDS or scratch dword never written"
            )


def load_to_lds(g, item: Instruction, kind: str, address: np.ndarray, active: np.ndarray | None) -> None:
    """Direct-to-LDS load: lane l writes ``size`` bytes at M0 + offset + l * size.

    Lanes of EXEC outside ``active`` (out of the range of a buffer) write zeros.
    """
    size, _, _ = TYPES[kind]
    words = max(1, size // 4)
    step = 4 * words  # narrower elements are widened to a dword
    dropped = g.s[M0] == U32(M0_DROPPED)
    data = np.zeros((g.count, 64, words), U32)
    if active is None:
        data[...] = fetch(g, kind, address, None).reshape(g.count, 64, words)
    elif active.any():
        data[active] = fetch(g, kind, address, active)
    write = g.active()
    if dropped.any():
        write = write & ~dropped[:, None]
    touches: tuple[LdsTouch, ...] = ()
    if write.any():
        target = (g.s[M0].astype(np.int64) + item.number("offset"))[:, None] + LANE * step
        base, stamp, slot = (x[write] for x in (g.lds_base, g.stamp, g.slot))
        index, width = g.lds.elements(target[write], step, base)
        g.lds.write(index, width, data[write], stamp, g.step)
        touches = (LdsTouch(Footprint.DMA, index, slot, width),)
    g.issue(Operation(Kind.VMEM, g.step, 0, touches))
