"""A Triton driver for a GPU that is not there: compiles for gfx950, launches in the emulator."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget

from mla_core.target import Target

from .errors import EmulationError
from .kernel import Kernel, load_cached
from .launch import execute
from .memory import Memory, Region
from .session import LaunchRecord, Resources, Session

# Triton caches compiled kernels per device; a name no real device has keeps the caches apart.
DEVICE = "emulated gfx950"
MAX_THREADS = 1024  # per workgroup (HIP, all GPUs)


class EmulatedDriver:
    """What Triton asks of a driver. Kernels launched while it is active run in ``session``."""

    def __init__(self, target: Target, session: Session):
        self.target, self.session = target, session
        self.utils = _Utilities(target)
        self.launcher_cls = _Launcher

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", self.target.arch, self.target.warp_size)

    def get_current_device(self) -> str:
        return DEVICE

    def set_current_device(self, device: object) -> None:
        pass

    def get_current_stream(self, device: object = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self):
        return torch.cpu

    def map_python_to_cpp_type(self, name: str) -> str:
        return name

    @staticmethod
    def is_active() -> bool:
        return True

    # ------------------------------------------------------------------ how the assembly text gets here

    def install(self) -> None:
        knobs.runtime.kernel_load_start_hook.add(self._about_to_load)

    def uninstall(self) -> None:
        knobs.runtime.kernel_load_start_hook.remove(self._about_to_load)

    def _about_to_load(self, module, function, name, metadata_group, hash) -> None:
        """Triton loads a binary right after this hook; the emulator wants the assembly next to it."""
        path = next(path for file, path in metadata_group.items() if file.endswith(".amdgcn"))
        self.utils.assembly = Path(path).read_text()


class _Utilities:
    def __init__(self, target: Target):
        self.target = target
        self.assembly: str | None = None

    def get_device_properties(self, device: object) -> dict[str, int]:
        return {
            "max_shared_mem": self.target.shared_bytes,
            "multiprocessor_count": self.target.compute_units,
            "warpSize": self.target.warp_size,
            "max_num_regs": self.target.registers_per_lane * self.target.warp_size,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: object) -> tuple:
        """(module, function, registers, spills, max threads); raises for instructions the emulator lacks."""
        assembly, self.assembly = self.assembly, None
        if assembly is None:
            raise EmulationError(
                f"Triton loads {name} without announcing it; is another driver's kernel launched here?"
            )
        kernel = load_cached(assembly, name)
        function = _Function(kernel, assembly)
        return function, function, kernel.program.abi.vgpr_count, kernel.program.abi.vgpr_spills, MAX_THREADS

    def unload_module(self, module: object) -> None:
        pass


class _Function:
    def __init__(self, kernel: Kernel, assembly: str):
        self.kernel, self.assembly = kernel, assembly


class _Launcher:
    """Runs one compiled kernel in whatever session is current."""

    def __init__(self, source, metadata):
        self.source, self.metadata = source, metadata

    def __call__(self, x, y, z, stream, function, packed_metadata, launch_metadata, enter_hook, exit_hook, *args):
        from triton.runtime.driver import driver

        session: Session = driver.active.session
        memory, values = _bind(session, self.source, args)
        kernel = function.kernel
        if session.rewrite is not None:
            kernel = load_cached(session.rewrite(function.assembly), self.metadata.name)
        result = execute(
            kernel,
            (x, y, z),
            self.metadata.num_warps,
            [*values, 0, 0],  # global and profile scratch, which these kernels do not use
            memory,
            self.metadata.shared,
            session.checks,
            session.reverse,
            max_jumps=session.max_jumps,
        )
        stored = {r.name: r.unwritten_bytes() for r in memory.regions if r.is_written}
        session.launches.append(
            LaunchRecord(
                self.metadata.name,
                (x, y, z),
                self.metadata.num_warps,
                Resources.of(kernel.program.abi, self.metadata.shared),
                result,
                stored,
                function.assembly,
            )
        )


def _bind(session: Session, source, args: tuple) -> tuple[Memory, list[int | float]]:
    """Tensors to memory regions, and every run-time argument to a number."""
    memory, values = Memory(), []
    regions: list[Region] = []
    for name, kind, value in _flatten(source.signature, args):
        if kind == "constexpr":
            continue
        if hasattr(value, "data_ptr"):
            if value.numel():
                regions.append(session.region(name, value))
            values.append(value.data_ptr())
        elif value is None:
            values.append(0)
        else:
            values.append(float(value) if kind.startswith(("fp", "bf")) else int(value))
    for region in _disjoint(regions):
        memory.add(region)
    return memory, values


def _flatten(signature: dict, args: tuple) -> Iterator[tuple[str, str, Any]]:
    """(name, type, value) of every argument; tuples are passed by their elements."""

    def walk(name: str, kind: Any, value: Any) -> Iterator[tuple[str, str, Any]]:
        if isinstance(kind, tuple):
            for position, (inner, part) in enumerate(zip(kind, value, strict=True)):
                yield from walk(f"{name}[{position}]", inner, part)
        else:
            yield name, kind, value

    for (name, kind), value in zip(signature.items(), args, strict=True):
        yield from walk(str(name), kind, value)


def _disjoint(regions: list[Region]) -> list[Region]:
    """Merge regions that overlap (views of one tensor) into one."""
    merged: list[Region] = []
    for region in sorted(set(regions), key=lambda r: r.base):
        if merged and region.base < merged[-1].end:
            first = merged[-1]
            if region.end > first.end or region.unit < first.unit:
                end = max(first.end, region.end)
                name = f"{first.name}/{region.name}"
                unit = min(first.unit, region.unit)
                floating = first.floating and region.floating
                merged[-1] = Region(name, first.base, end - first.base, unit, floating, keep=(first.keep, region.keep))
        else:
            merged.append(region)
    return merged
