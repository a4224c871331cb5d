"""What an emulation recorded: one :class:`LaunchRecord` per kernel launch, and which output bytes were written."""

from collections.abc import Callable, Mapping

import attrs
import torch

from .asm import Abi
from .checks import Checks
from .errors import UninitialisedOutputError
from .launch import Execution
from .memory import Region


@attrs.frozen
class Resources:
    """Static resources of the compiled kernel."""

    vgprs: int  # including AGPRs
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int  # per lane
    lds_bytes: int  # per workgroup
    occupancy: int  # waves per SIMD that registers allow, as the compiler reports it; 0 when it does not

    @classmethod
    def of(cls, abi: Abi, lds_bytes: int) -> "Resources":
        return cls(
            abi.vgpr_count,
            abi.sgpr_count,
            abi.vgpr_spills,
            abi.sgpr_spills,
            abi.scratch_bytes,
            lds_bytes + abi.static_lds_bytes,
            abi.occupancy,
        )


@attrs.frozen
class LaunchRecord:
    """One kernel launch. ``unwritten``: bytes never written so far, for each tensor this launch stored to."""

    name: str
    grid: tuple[int, int, int]
    num_warps: int
    resources: Resources
    execution: Execution
    unwritten: Mapping[str, int]
    asm: str = attrs.field(repr=False)

    @property
    def instructions(self) -> dict[str, int]:
        """Executed wave instructions by class: mfma, valu, transcendental, salu, smem, lds, vmem, wait, barrier."""
        return self.execution.instructions

    @property
    def seconds(self) -> float:
        return self.execution.seconds

    @property
    def instructions_per_second(self) -> float:
        return self.execution.total / max(self.execution.seconds, 1e-9)


class Session:
    """State of one ``emulate`` block. ``launches`` lists what ran, in order. Tensors that were passed stay alive.

    For tests of the emulator itself: ``rewrite`` maps the assembly text of every launch to the text that is run;
    ``max_jumps`` stops a kernel that loops longer than that.
    """

    def __init__(self, checks: Checks, reverse: bool):
        self.checks, self.reverse = checks, reverse
        self.rewrite: Callable[[str], str] | None = None
        self.max_jumps: int | None = None
        self.launches: list[LaunchRecord] = []
        self._regions: dict[tuple[int, int], Region] = {}

    def region(self, name: str, tensor: torch.Tensor) -> Region:
        """The memory that ``tensor`` spans, with what the session knows about it."""
        low, high = span(tensor)
        known = self._regions.get((low, high))
        unit = min(4, tensor.element_size())
        if known is None:
            known = Region(name, low, high - low, unit, tensor.dtype.is_floating_point, keep=tensor.untyped_storage())
            self._regions[low, high] = known
        known.name = name
        known.floating = tensor.dtype.is_floating_point
        return known

    def unwritten(self, tensor: torch.Tensor) -> int:
        """Bytes of a contiguous tensor that no launch of this session has stored to."""
        region = self._regions.get(span(tensor))
        return region.unwritten_bytes() if region else tensor.numel() * tensor.element_size()

    def check_written(self, tensor: torch.Tensor, name: str = "out") -> None:
        """Raise UninitialisedOutputError unless every byte of ``tensor`` has been stored to."""
        missing = self.unwritten(tensor)
        if missing:
            raise UninitialisedOutputError(f"{missing} bytes of {name} were never written")


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """[low, high): addresses between the first and the last element of a tensor with non-negative strides."""
    if tensor.numel() == 0:
        return tensor.data_ptr(), tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
