"""Where the tools run kernels: this machine's GPU, an emulated one, or the CPU."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from typing import Any

import attrs
import torch

from mla_core import triton_support
from mla_core.target import Target
from mla_testing.emulation import EMULATED, emulate


@attrs.frozen(kw_only=True)
class Machine:
    """A place to run kernels.

    Attributes:
        device: of the tensors, as torch spells it.
        target: what the kernels are compiled for.
        emulated: whether the target is emulated on CPU tensors.
        name: for people.
    """

    device: str
    target: Target
    emulated: bool
    name: str

    @staticmethod
    def gpu() -> Machine | None:
        """This machine's GPU, or None without one."""
        if not torch.cuda.is_available():
            return None
        target = Target.current("cuda")
        return Machine(
            device="cuda", target=target, emulated=False, name=f"{torch.cuda.get_device_name()} ({target.arch})"
        )

    @staticmethod
    def emulator() -> Machine | None:
        """The emulated GPU, or None where no Triton is installed to compile for it."""
        if triton_support.missing():
            return None
        target = Target.named(EMULATED[0])
        return Machine(device="cpu", target=target, emulated=True, name=f"{target.arch}, emulated on a CPU")

    @staticmethod
    def cpu() -> Machine:
        """Plain torch on this machine's CPU."""
        return Machine(device="cpu", target=Target.named("cpu"), emulated=False, name=f"CPU ({platform.machine()})")

    @staticmethod
    def best() -> Machine:
        """The GPU, or else the emulated one, or else the CPU."""
        return Machine.gpu() or Machine.emulator() or Machine.cpu()

    @contextlib.contextmanager
    def session(self, **options: Any) -> Iterator[Any]:
        """Makes the machine current; yields the emulator's session (`options` go to it), or None on a real machine."""
        if not self.emulated:
            yield None
            return
        with emulate(self.target.arch, **options) as session:
            yield session

    def versions(self) -> str:
        """Device and versions in one line, for reports."""
        triton = triton_support.version()
        return (
            f"{self.name}; Python {platform.python_version()}, torch {torch.__version__}, "
            f"Triton {'none' if triton is None else '.'.join(map(str, triton))}"
        )
