"""Buffer instructions: addresses through a 128-bit resource descriptor in four SGPRs.

Raw buffers only (stride 0): address = base + soffset + (voffset + instruction offset) mod 2**32; a lane is out of
range when that offset + size > num_records - soffset. (The sum wraps from gfx9 on; LLVM folds constants into the
instruction offset on that ground.) Out-of-range loads return 0 and stores are dropped. Triton masks lanes by setting
voffset to 2**31, beyond every num_records; any *other* out-of-range offset is a mistake (typically 32-bit overflow)
that the hardware would hide, so the bounds check reports it.
"""

import numpy as np

from .asm import Instruction
from .errors import OutOfBoundsError
from .hazards import Kind, Operation
from .operands import register, scalar_u32, sgpr, source_u32, vgpr
from .registry import Executor, Labels, instruction
from .vmem import LDS_LOADS, LOADS, STORES, TYPES, load, load_to_lds, store

I64 = np.int64
MASKED_OFFSET = 1 << 31
ADDRESS_BITS = (1 << 48) - 1


class BufferAddress:
    """The vaddr, srsrc, soffset operands and the offset modifier of a buffer instruction."""

    def __init__(self, item: Instruction, operands: tuple[str, ...]):
        voffset, resource, soffset = operands
        if item.has("idxen"):
            raise ValueError("structured buffers")
        self.voffset = source_u32(voffset) if item.has("offen") else None
        self.resource = sgpr(resource)
        self.soffset = scalar_u32(soffset)
        self.offset = item.number("offset")

    def resolve(self, g, size: int) -> tuple[np.ndarray, np.ndarray | None]:
        """(address int64[waves, 64], lanes to access: bool[waves, 64] or None for all)."""
        r = self.resource
        base = (g.read_sgpr64(r) & np.uint64(ADDRESS_BITS)).astype(I64)
        records = g.s[r + 2].astype(I64)
        scalar = np.asarray(self.soffset(g)).astype(I64)
        if self.voffset is None:
            lane = np.full((g.count, 64), self.offset, I64)
        else:
            lane = np.broadcast_to(self.voffset(g) + np.uint32(self.offset), (g.count, 64)).astype(I64)
        address = lane + (base + scalar)[:, None]
        outside = lane > (records - scalar - size)[:, None]
        if not outside.any():
            return address, g.em
        inside = ~outside if g.em is None else ~outside & g.em
        if g.bounds:
            self._explain(g, lane, outside & g.active(), base, records)
        return address, inside

    def _explain(self, g, lane: np.ndarray, outside: np.ndarray, base: np.ndarray, records: np.ndarray) -> None:
        """Raise unless every lane out of range was masked by Triton (before or after LLVM split off a constant)."""
        wrong = outside & (lane != MASKED_OFFSET) & (lane != MASKED_OFFSET + self.offset)
        if wrong.any():
            wave, at = np.argwhere(wrong)[0]
            raise OutOfBoundsError(
                f"buffer offset {int(lane[wave, at])} (lane {at}) is beyond num_records {int(records[wave])} and is not "
                f"the masked offset {MASKED_OFFSET:#x}: 32-bit overflow, or a missing mask; "
                f"buffer {g.memory.name_at(int(base[wave]))}"
            )


@instruction(*(f"buffer_load_{kind}" for kind in LOADS))
def buffer_load(item: Instruction, labels: Labels) -> Executor:
    kind = item.opcode.removeprefix("buffer_load_")
    size = TYPES[kind][0]
    if item.has("lds"):
        if kind not in LDS_LOADS:
            raise ValueError("no such load into LDS")
        where = BufferAddress(item, item.operands[:3])

        def to_lds(g):
            address, active = where.resolve(g, size)
            load_to_lds(g, item, kind, address, active)

        return to_lds
    d, filled = vgpr(item.operands[0]), register(item.operands[0]).bits()
    where = BufferAddress(item, item.operands[1:4])

    def execute(g):
        address, active = where.resolve(g, size)
        load(g, d, kind, address, active, zero_rest=True)
        g.issue(Operation(Kind.VMEM, g.step, filled))

    return execute


@instruction(*(f"buffer_store_{kind}" for kind in STORES))
def buffer_store(item: Instruction, labels: Labels) -> Executor:
    kind = item.opcode.removeprefix("buffer_store_")
    size, first = TYPES[kind][0], vgpr(item.operands[0])
    where = BufferAddress(item, item.operands[1:4])

    def execute(g):
        address, active = where.resolve(g, size)
        store(g, first, kind, address, active)
        g.issue(Operation(Kind.VMEM, g.step, stores=True))

    return execute
