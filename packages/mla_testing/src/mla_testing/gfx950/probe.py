"""Run a few instructions on chosen register contents, without Triton: for unit tests and for trying things out.

>>> run("v_add_u32_e32 v2, v0, v1", v={0: 1, 1: 2}).v[2][0, 0]
3
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np

from .asm import Abi, Instruction, Program, parse_instruction
from .checks import POISON, Checks
from .global_race import GlobalRaceDetector
from .instruction_set import decode
from .kernel import Kernel, register_rows
from .machine import Machine
from .memory import Memory, Region
from .operands import ACC_BASE, EXEC, VCC
from .registers import LANES

_ABI = Abi(
    sgpr_offsets={},
    user_sgpr_count=0,
    workgroup_id_enabled=(False, False, False),
    kernarg_size=0,
    arguments=(),
    scratch_bytes=0,
    vgpr_count=512,
    sgpr_count=128,
    vgpr_spills=0,
    sgpr_spills=0,
    static_lds_bytes=0,
    occupancy=1,
)


class _Rows(Mapping):
    """Registers by number, as uint32[waves, 64]; ``f32(n)`` views one as float32."""

    def __init__(self, machine: Machine, base: int):
        self._file, self._base = machine.registers, base

    def __getitem__(self, number: int) -> np.ndarray:
        return self._file.vector[self._file.row_of[self._base + number]]

    def f32(self, number: int) -> np.ndarray:
        return self[number].view(np.float32)

    def __iter__(self):
        return iter(self._file.row_of)

    def __len__(self) -> int:
        return len(self._file.row_of)


@attrs.frozen(eq=False)
class Result:
    """State after the last instruction."""

    machine: Machine

    @property
    def v(self) -> _Rows:
        return _Rows(self.machine, 0)

    @property
    def a(self) -> _Rows:
        return _Rows(self.machine, ACC_BASE)

    @property
    def s(self) -> np.ndarray:
        """uint32[128, waves]."""
        return self.machine.registers.scalar

    @property
    def scc(self) -> np.ndarray:
        return self.machine.registers.scc

    @property
    def lds(self) -> np.ndarray:
        """uint8[bytes] of all workgroups, one after another."""
        return self.machine.lds.data.view(np.uint8)

    def mask(self, index: int = VCC) -> int:
        """SGPR pair of wave 0 as a 64-bit number."""
        return int(self.s[index, 0]) | int(self.s[index + 1, 0]) << 32


def run(
    text: str,
    *,
    v: Mapping[int, object] | None = None,
    a: Mapping[int, object] | None = None,
    s: Mapping[int, object] | None = None,
    scc: bool = False,
    exec_mask: int | None = None,
    lds: np.ndarray | None = None,
    lds_bytes: int = 4096,
    scratch_bytes: int = 0,
    tensors: Mapping[str, np.ndarray] | None = None,
    waves: int = 1,
    workgroups: int = 1,
    checks: Checks | str | None = None,
    max_jumps: int | None = 10_000,
) -> Result:
    """Execute ``text`` (one instruction or label per line) on ``workgroups`` x ``waves`` waves.

    ``v``, ``a``: register -> uint32 or float32 values broadcastable to [waves, 64]; ``s``: register -> uint32 per wave;
    ``lds``: initial bytes of every workgroup; ``tensors``: arrays the code may address, by name.
    """
    program = _program(text, scratch_bytes)
    steps = decode(program)
    fast = tuple((x.execute, x.uses, x.control, x.target) for x in steps)
    vectors = {**{k: x for k, x in (v or {}).items()}, **{ACC_BASE + k: x for k, x in (a or {}).items()}}
    kernel = Kernel(program, steps, fast, register_rows(program, also=vectors))
    memory = Memory()
    for name, array in (tensors or {}).items():
        unit, floating = min(4, array.itemsize), array.dtype.kind == "f"
        memory.add(Region(name, array.ctypes.data, array.nbytes, unit, floating, keep=array))
    coordinates = np.stack([np.arange(workgroups), np.zeros(workgroups, int), np.zeros(workgroups, int)], axis=1)
    chosen = Checks.of(checks)
    machine = Machine(
        kernel,
        memory,
        chosen,
        coordinates,
        np.arange(workgroups),
        waves,
        lds_bytes,
        POISON if chosen.poison else None,
        GlobalRaceDetector(workgroups) if chosen.global_race and workgroups > 1 else None,
        max_jumps=max_jumps,
    )
    file = machine.registers
    for number, value in vectors.items():
        file.vector[file.row_of[number]] = _bits(value)
    for number, value in (s or {}).items():
        file.scalar[number] = _bits(value)
    file.scc[...] = scc
    if exec_mask is not None:
        file.scalar[EXEC], file.scalar[EXEC + 1] = exec_mask & 0xFFFFFFFF, exec_mask >> 32
    if lds is not None:
        content = np.zeros(machine.lds.words * 4, np.uint8)
        content[: lds.nbytes] = np.ascontiguousarray(lds).view(np.uint8).reshape(-1)
        machine.lds.data[...] = np.tile(content.view(np.uint32), workgroups)
    with np.errstate(all="ignore"):
        if not machine.run():
            raise machine.deadlock()
    return Result(machine)


def _bits(value: object) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return array.astype(np.float32).view(np.uint32)
    return (array.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)


def _program(text: str, scratch_bytes: int) -> Program:
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for number, line in enumerate(text.strip().split("\n"), 1):
        line = line.strip()
        if line.endswith(":"):
            labels[line[:-1]] = len(instructions)
        elif line:
            instructions.append(parse_instruction(line, f"probe:{number}", number))
    instructions.append(parse_instruction("s_endpgm", "probe:end", 0))
    return Program("probe", tuple(instructions), labels, attrs.evolve(_ABI, scratch_bytes=scratch_bytes))


__all__ = ["LANES", "Result", "run"]
