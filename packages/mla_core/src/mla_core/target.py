"""The machine a kernel is built for: a frozen record of the figures that kernels derive their shapes from.

`Target.current(device)` reads the machine; `Target.named("gfx950")` gives the figures of a machine that need not
be present, for cross-compilation and emulation. `override(target)` makes one the current target for a while.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import attrs

from mla_core.errors import ArgumentError

KIB = 1024
MIB = 1024 * KIB

Backend = Literal["hip", "cuda", "cpu"]


@attrs.frozen(kw_only=True)
class Target:
    """Figures of one machine.

    Attributes:
        arch: `gfx950`, `sm_90`, ...; `generic` for a GPU known by nothing but its back end; `cpu`.
        backend: `hip`, `cuda` or `cpu`.
        warp_size: lanes of a wavefront (AMD) or warp (NVIDIA).
        compute_units: CUs or SMs that a grid is sized for.
        shared_bytes: LDS or shared memory one workgroup may take, bytes.
        xcds: dies with an L2 cache of their own; consecutive workgroups go round-robin over them.
        l2_bytes: L2 of one die, bytes.
        registers_per_lane: 32-bit vector registers that one lane may address.
        memory_bandwidth: peak of the device memory, bytes per second; 0 where unknown.
        bf16_flops: peak dense bf16 rate, FLOP per second; 0 where unknown.
        sources: where each figure comes from, by field name.
    """

    arch: str
    backend: Backend
    warp_size: int
    compute_units: int
    shared_bytes: int
    xcds: int = 1
    l2_bytes: int = 0
    registers_per_lane: int = 0
    memory_bandwidth: float = 0.0
    bf16_flops: float = 0.0
    sources: Mapping[str, str] = attrs.field(factory=dict, hash=False, eq=False, repr=False)

    @property
    def is_gpu(self) -> bool:
        """Whether it is anything but the host."""
        return self.backend != "cpu"

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names that `named` accepts."""
        return tuple(_NAMED)

    @staticmethod
    def named(name: str) -> Target:
        """The figures of a machine by its architecture name. Raises ArgumentError for an unknown one."""
        try:
            return _NAMED[name]
        except KeyError:
            raise ArgumentError("target", repr(name), "one of " + ", ".join(_NAMED)) from None

    @staticmethod
    def current(device: Any = None) -> Target:
        """The target that kernels on `device` (a torch device; default: the current one) run on.

        An active `override` wins for CPU tensors, so that an emulated GPU serves them.
        """
        overridden = _override.get()
        if overridden is not None and (device is None or str(device).startswith("cpu")):
            return overridden
        return _detect(None if device is None else str(device))

    def triton_target(self) -> Any:
        """Triton's `GPUTarget` for this machine. Raises ArgumentError for one Triton cannot name."""
        from triton.backends.compiler import GPUTarget

        if self.backend == "hip" and self.arch != "generic":
            return GPUTarget("hip", self.arch, self.warp_size)
        if self.backend == "cuda" and self.arch.startswith("sm_"):
            return GPUTarget("cuda", int(self.arch[3:]), self.warp_size)
        raise ArgumentError("target", self.arch, "a GPU architecture such as gfx950 or sm_90")


_override: contextvars.ContextVar[Target | None] = contextvars.ContextVar("mla_target_override", default=None)


@contextlib.contextmanager
def override(target: Target | None) -> Iterator[None]:
    """Makes `target` the current target for CPU tensors inside the block; None lifts an outer override."""
    token = _override.set(target)
    try:
        yield
    finally:
        _override.reset(token)


def active_override() -> Target | None:
    """The target of the innermost `override` block, or None."""
    return _override.get()


def interpreting() -> bool:
    """Whether Triton kernels are run by Triton's own interpreter (TRITON_INTERPRET=1) on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


@functools.lru_cache(maxsize=64)
def _detect(device: str | None) -> Target:
    import torch

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if not device.startswith("cuda"):
        return _NAMED["cpu"]
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        arch = properties.gcnArchName.split(":")[0]
        base = _NAMED.get(
            arch, attrs.evolve(_NAMED["generic"], arch=arch, backend="hip", warp_size=properties.warp_size)
        )
    else:
        arch = f"sm_{properties.major}{properties.minor}"
        base = _NAMED.get(arch, attrs.evolve(_NAMED["generic"], arch=arch))
    return attrs.evolve(
        base,
        compute_units=properties.multi_processor_count,
        shared_bytes=getattr(properties, "shared_memory_per_block_optin", 0) or base.shared_bytes,
        l2_bytes=base.l2_bytes or getattr(properties, "L2_cache_size", 0),
        sources={**base.sources, "compute_units": "torch.cuda.get_device_properties"},
    )


_CDNA4 = "AMD CDNA 4 architecture white paper (MI355X)"
_HOPPER = (
    "NVIDIA H200 datasheet (SXM) and CUDA C++ Programming Guide, technical specifications for compute capability 9.0"
)

_NAMED: dict[str, Target] = {
    "gfx950": Target(
        arch="gfx950",
        backend="hip",
        warp_size=64,
        compute_units=256,
        shared_bytes=160 * KIB,
        xcds=8,
        l2_bytes=4 * MIB,
        registers_per_lane=512,
        memory_bandwidth=8.0e12,
        bf16_flops=2.516e15,
        sources={
            "warp_size": _CDNA4,
            "compute_units": _CDNA4 + ": 32 active CUs on each of 8 XCDs",
            "shared_bytes": _CDNA4 + ": 160 KB of LDS per CU",
            "xcds": _CDNA4,
            "l2_bytes": _CDNA4 + ": 4 MB of L2 per XCD",
            "registers_per_lane": "AMD CDNA 4 ISA reference: 256 VGPRs and 256 AccVGPRs per lane in a unified file",
            "memory_bandwidth": "AMD Instinct MI355X data sheet: 8 TB/s",
            "bf16_flops": "AMD Instinct MI355X data sheet: 2.5 PFLOP/s dense (2516.6 TFLOP/s)",
        },
    ),
    "sm_90": Target(
        arch="sm_90",
        backend="cuda",
        warp_size=32,
        compute_units=132,
        shared_bytes=227 * KIB,
        xcds=1,
        l2_bytes=50 * MIB,
        registers_per_lane=255,
        memory_bandwidth=4.8e12,
        bf16_flops=9.89e14,
        sources=dict.fromkeys(
            (
                "warp_size",
                "compute_units",
                "shared_bytes",
                "l2_bytes",
                "registers_per_lane",
                "memory_bandwidth",
                "bf16_flops",
            ),
            _HOPPER,
        ),
    ),
    "generic": Target(
        arch="generic",
        backend="cuda",
        warp_size=32,
        compute_units=64,
        shared_bytes=64 * KIB,
        sources={
            "shared_bytes": "smallest LDS or opt-in shared memory of the GPUs Triton supports (AMD CDNA 3: 64 KB)",
            "compute_units": "an assumption that only sizes grids; replaced by the driver's figure on a real machine",
        },
    ),
    "cpu": Target(arch="cpu", backend="cpu", warp_size=1, compute_units=1, shared_bytes=0),
}
