"""The register files, and a *group*: the waves that currently execute the same instruction together.

Registers of all resident waves live in arrays, one column per wave:

    vector  uint32[rows, waves, 64]   v0.. then a0.., as many rows as the kernel allocates
    scalar  uint32[128, waves]        s0..s101, VCC, M0, EXEC at their hardware numbers
    scc     bool[waves]
    scratch uint32[dwords, waves, 64] private memory

A group works on a view of those arrays where its waves are evenly spaced (all of them, or wave 0 of every workgroup)
and on a copy that is written back otherwise.
"""

from typing import Any

import numpy as np

from .operands import ACC_BASE, EXEC, M32, SGPR_FILE, VGPR_FILE

LANES = 64
ALL_LANES = np.uint64(0xFFFFFFFFFFFFFFFF)
LANE = np.arange(LANES)
TEMPORARIES = (512, 513, 514)  # register numbers of the emulator's own rows, for SDWA


class RegisterFile:
    """Storage of ``waves`` waves; ``poison`` is the pattern of whatever was never written."""

    def __init__(self, vector_rows: np.ndarray, waves: int, poison: int, scratch_dwords: int = 0):
        # Kernel rows may be sparse (AGPRs start at row 256): row_of maps a register number to a stored row.
        self.row_of = {int(row): position for position, row in enumerate(vector_rows)}
        self.vector = np.full((len(vector_rows), waves, LANES), poison, np.uint32)
        self.scalar = np.full((SGPR_FILE, waves), poison, np.uint32)
        self.scratch = np.full((scratch_dwords, waves, LANES), poison, np.uint32)
        self.scc = np.zeros(waves, bool)
        self.scalar[EXEC : EXEC + 2] = M32


class Group:
    """Waves in lockstep. Rows ``v[r]``, ``f[r]``, ``i[r]`` are the same VGPR as uint32, float32 and int32."""

    def __init__(self, file: RegisterFile, waves: np.ndarray):
        self.file = file
        self.waves = waves  # wave slots, ascending
        self.count = len(waves)
        self.key = _as_slice(waves)
        self.is_view = isinstance(self.key, slice)
        self.vector = file.vector[:, self.key]
        self.s_file = file.scalar[:, self.key]
        self.scc = file.scc[self.key]
        self.scratch = file.scratch[:, self.key]
        self.v: list[Any] = [None] * (VGPR_FILE + len(TEMPORARIES))
        self.f: list[Any] = [None] * (VGPR_FILE + len(TEMPORARIES))
        self.i: list[Any] = [None] * (VGPR_FILE + len(TEMPORARIES))
        floats, integers = self.vector.view(np.float32), self.vector.view(np.int32)
        for register, row in file.row_of.items():
            self.v[register] = self.vector[row]
            self.f[register] = floats[row]
            self.i[register] = integers[row]
        self.s = list(self.s_file)
        self.sc = [row[:, None] for row in self.s]
        self.refresh_exec()

    def reload(self) -> None:
        """Take over what other groups did to these waves since the last use (a view only needs its EXEC mask)."""
        if not self.is_view:
            self.vector[...] = self.file.vector[:, self.key]
            self.scratch[...] = self.file.scratch[:, self.key]
            self.s_file[...] = self.file.scalar[:, self.key]
            self.scc[...] = self.file.scc[self.key]
        self.refresh_exec()

    def flush(self) -> None:
        if not self.is_view:
            self.file.vector[:, self.key] = self.vector
            self.file.scratch[:, self.key] = self.scratch
            self.file.scalar[:, self.key] = self.s_file
            self.file.scc[self.key] = self.scc

    # ------------------------------------------------------------------ vector rows

    def rows(self, first: int, count: int) -> np.ndarray:
        """Registers first..first+count-1 as a view uint32[count, waves, 64]."""
        start = self.file.row_of[first]
        return self.vector[start : start + count]

    def write(self, register: int, value: np.ndarray) -> None:
        """Write a uint32 (or int32) result under EXEC."""
        if self.em is None:
            self.v[register][...] = value
        else:
            np.copyto(self.v[register], value, where=self.em)

    def write_f32(self, register: int, value: np.ndarray) -> None:
        if self.em is None:
            self.f[register][...] = value
        else:
            np.copyto(self.f[register], value, where=self.em, casting="same_kind")

    def write_u64(self, register: int, value: np.ndarray) -> None:
        self.write(register, value.astype(np.uint32))
        self.write(register + 1, (value >> np.uint64(32)).astype(np.uint32))

    # ------------------------------------------------------------------ scalar rows

    def read_sgpr64(self, index: int) -> np.ndarray:
        return self.s[index].astype(np.uint64) | (self.s[index + 1].astype(np.uint64) << np.uint64(32))

    def write_sgpr(self, index: int, value: np.ndarray) -> None:
        self.s[index][...] = value
        if index in (EXEC, EXEC + 1):
            self.refresh_exec()

    def write_sgpr64(self, index: int, value: np.ndarray) -> None:
        value = np.asarray(value, np.uint64)
        self.s[index][...] = value.astype(np.uint32)
        self.s[index + 1][...] = (value >> np.uint64(32)).astype(np.uint32)
        if index == EXEC:
            self.refresh_exec()

    # ------------------------------------------------------------------ lane masks

    def read_mask(self, index: int) -> np.ndarray:
        """SGPR pair as bool[waves, 64]."""
        pairs = np.ascontiguousarray(self.s_file[index : index + 2].T)
        return np.unpackbits(pairs.view(np.uint8), axis=1, bitorder="little").view(bool)

    def write_mask(self, index: int, mask: np.ndarray) -> None:
        """bool broadcastable to [waves, 64] into an SGPR pair; lanes outside EXEC write 0."""
        if self.em is not None:
            mask = mask & self.em
        if mask.shape != (self.count, LANES):
            mask = np.broadcast_to(mask, (self.count, LANES))
        packed = np.packbits(mask, axis=1, bitorder="little").view(np.uint32)
        self.s_file[index : index + 2] = packed.T
        if index == EXEC:
            self.refresh_exec()

    def refresh_exec(self) -> None:
        """``em``: bool[waves, 64], or None while every lane of every wave is on (the common, fast case)."""
        if (self.s_file[EXEC : EXEC + 2] == np.uint32(M32)).all():
            self.em = None
        else:
            self.em = self.read_mask(EXEC)

    def active(self) -> np.ndarray:
        return np.ones((self.count, LANES), bool) if self.em is None else self.em


def vector_rows(highest_vgpr: int, highest_agpr: int) -> np.ndarray:
    """Register numbers to allocate: v0..highest_vgpr and a0..highest_agpr (-1 for none)."""
    return np.concatenate([np.arange(highest_vgpr + 1), ACC_BASE + np.arange(highest_agpr + 1), TEMPORARIES])


def _as_slice(waves: np.ndarray) -> slice | np.ndarray:
    if len(waves) == 1:
        return slice(int(waves[0]), int(waves[0]) + 1)
    step = int(waves[1] - waves[0])
    if (np.diff(waves) == step).all():
        return slice(int(waves[0]), int(waves[-1]) + 1, step)
    return waves
