"""Global memory: the tensors a launch was given, and nothing else.

An address outside every tensor raises instead of faulting, and names the nearest one. Shadow state (which bytes were
written, by whom) is allocated on first use and costs only the pages that are touched: tensors beyond 4 GiB work as long
as the kernel touches little of them.
"""

import bisect
import ctypes
from typing import Any

import numpy as np

from .errors import MisalignedAccessError, OutOfBoundsError
from .sparse import SparseArray

Views = dict[int, Any]  # element width in bytes -> the memory as elements of that width

_BYTES_TO_VIEW: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


class Region:
    """One contiguous range of addresses that the kernel may touch."""

    def __init__(self, name: str, base: int, size: int, unit: int = 4, floating: bool = False, keep: object = None):
        self.name, self.base, self.end = name, base, base + size
        self.unit = unit  # bytes per element, at most 4: granularity of the shadows
        self.floating = floating  # holds floats: stored NaN patterns can be recognised as poison
        self.keep = keep  # owner of the memory
        self.start = base & ~15  # 16-byte aligned, so that every view below is aligned
        length = (self.end - self.start + 15) & ~15
        self.raw = np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(self.start))
        self.views: Views = {width: self.raw.view(dtype) for width, dtype in _BYTES_TO_VIEW.items()}
        self._written: SparseArray | None = None  # bool per element

    @property
    def size(self) -> int:
        return self.end - self.base

    def mark_written(self, offset: np.ndarray, size: int) -> None:
        """Note stores of ``size`` bytes at byte offsets int64[k] from ``start``."""
        if self._written is None:
            self._written = SparseArray(len(self.raw) // self.unit, bool)
        self._written[offset[:, None] // self.unit + np.arange(max(1, size // self.unit))] = True

    @property
    def is_written(self) -> bool:
        """Whether any launch of the session has stored to it."""
        return self._written is not None

    def unwritten_bytes(self) -> int:
        """Bytes that no launch of the session has stored to."""
        return self.size - (self._written.count_nonzero() * self.unit if self._written else 0)


class Memory:
    """The address space of one launch."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self._bases: list[int] = []

    def add(self, region: Region) -> None:
        self.regions.append(region)
        self.regions.sort(key=lambda r: r.base)
        self._bases = [r.base for r in self.regions]

    def locate(self, low: int, high: int) -> Region | None:
        """The region that holds all of [low, high)."""
        position = bisect.bisect_right(self._bases, low) - 1
        if position >= 0 and high <= self.regions[position].end:
            return self.regions[position]
        return None

    def split(self, address: np.ndarray, size: int) -> list[tuple[Region, np.ndarray | slice]]:
        """Group accesses ``[address, address + size)`` by region; address is int64[k]."""
        low, high = int(address.min()), int(address.max()) + size
        region = self.locate(low, high)
        if region is not None:
            return [(region, slice(None))]
        parts: list[tuple[Region, np.ndarray | slice]] = []
        owner = np.searchsorted(np.array(self._bases, np.int64), address, side="right") - 1
        for index in np.unique(owner):
            chosen = np.flatnonzero(owner == index)
            region = self.regions[index] if index >= 0 else None
            bad = chosen if region is None else chosen[address[chosen] + size > region.end]
            if region is None or len(bad):
                raise OutOfBoundsError(self.describe(int(address[bad[0]]), size, len(bad)))
            parts.append((region, chosen))
        return parts

    def describe(self, address: int, size: int, count: int = 1) -> str:
        tensors = [r for r in self.regions if r.name != KERNARG]
        text = f"{count} lane(s) access {size} bytes at address {address:#x}, outside every tensor of the launch"
        if not tensors:
            return text
        nearest = min(tensors, key=lambda r: max(r.base - address, address + size - r.end))
        offset = address - nearest.base
        place = f"{-offset} bytes before" if offset < 0 else f"byte {offset} of"
        return f"{text}; nearest: {place} {nearest.name}, which has {nearest.size} bytes"

    def name_at(self, address: int) -> str:
        region = self.locate(address, address)
        return f"of {region.name}" if region else f"at {address:#x}"

    # ------------------------------------------------------------------ data

    def load(self, address: np.ndarray, size: int) -> np.ndarray:
        """Read ``size`` bytes (1, 2 or a multiple of 4) per address: uint32[k, max(1, size / 4)]."""
        parts = self.split(address, size)
        if len(parts) == 1:
            return gather(parts[0][0].views, address - parts[0][0].start, size)
        data = np.zeros((len(address), max(1, size // 4)), np.uint32)
        for region, chosen in parts:
            data[chosen] = gather(region.views, address[chosen] - region.start, size)
        return data

    def store(self, address: np.ndarray, data: np.ndarray, size: int) -> None:
        """Write uint32[k, max(1, size / 4)]; where lanes overlap the last one wins."""
        for region, chosen in self.split(address, size):
            offset = address[chosen] - region.start
            scatter(region.views, offset, data[chosen], size)
            region.mark_written(offset, size)


KERNARG = "kernarg segment"


def gather(views: Views, offset: np.ndarray, size: int) -> np.ndarray:
    """``size`` bytes at each byte offset, with the widest element that the alignment permits."""
    width = _width(offset, size)
    if size < 4:
        if width == size:
            return views[size][offset // size].astype(np.uint32)[:, None]
        return (views[1][offset].astype(np.uint32) | (views[1][offset + 1].astype(np.uint32) << np.uint32(8)))[:, None]
    if width == size:
        return views[width][offset // width].view(np.uint32).reshape(len(offset), size // 4)
    if width >= 4:
        elements = views[width][offset[:, None] // width + np.arange(size // width)]
    else:
        elements = views[1][offset[:, None] + np.arange(size)]
    return elements.view(np.uint32).reshape(len(offset), size // 4)


def scatter(views: Views, offset: np.ndarray, data: np.ndarray, size: int) -> None:
    width = _width(offset, size)
    if size < 4:
        value = data[:, 0]
        if width == size:
            views[size][offset // size] = value.astype(_BYTES_TO_VIEW[size])
        else:
            views[1][offset] = value.astype(np.uint8)
            views[1][offset + 1] = (value >> np.uint32(8)).astype(np.uint8)
        return
    data = np.ascontiguousarray(data)
    if width >= 4:
        elements = data.view(_BYTES_TO_VIEW[width])
        views[width][offset[:, None] // width + np.arange(size // width)] = elements
    else:
        views[1][offset[:, None] + np.arange(size)] = data.view(np.uint8)


def _width(offset: np.ndarray, size: int) -> int:
    """Widest element, up to 16 bytes, that divides the size and every offset."""
    width = size & -size
    combined = int(np.bitwise_or.reduce(offset))
    while width > 1 and combined & (width - 1):
        width //= 2
    return min(width, 16) if width >= 4 or width == size else 1


def require_aligned(address: np.ndarray, alignment: int) -> None:
    if int(np.bitwise_or.reduce(address)) & (alignment - 1):
        raise MisalignedAccessError(f"an address is not a multiple of {alignment} bytes")
