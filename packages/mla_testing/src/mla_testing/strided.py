"""Tensors the hard way: strided views into larger buffers, everything outside the view poisoned.

Each layout is a function from the wanted shape to a view of that shape whose last dimension is contiguous. The buffer
behind it is filled with NaN and Inf, so an address computed wrongly reads something that cannot pass unnoticed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from mla_core.problem import ELEMENT_BYTES, MAX_INT32

Layout = Callable[[Sequence[int], torch.dtype, torch.device], torch.Tensor]


def poisoned(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A contiguous tensor of NaN with an Inf in every fourth element."""
    size = math.prod(shape)
    buffer = torch.full((size,), float("nan"), dtype=dtype, device=device)
    buffer[::4] = float("inf")
    return buffer.view(tuple(shape))


def padded_rows(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """64 spare columns behind each row: a larger stride than the row has columns."""
    return poisoned((*shape[:-1], shape[-1] + 64), dtype, device)[..., : shape[-1]]


def outer_swapped(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The dimension before the last stored outermost: its stride is the largest."""
    order = (len(shape) - 2, *range(len(shape) - 2), len(shape) - 1)
    stored = poisoned([shape[dim] for dim in order], dtype, device)
    return stored.permute(*(order.index(dim) for dim in range(len(shape))))


def interleaved(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The middle one of three such tensors in one buffer, as the layers of a model share a pool."""
    return poisoned((shape[0], 3, *shape[1:]), dtype, device)[:, 1]


def misaligned(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Starts 3 elements into an odd row stride: no row but by chance at a 16-byte address."""
    return poisoned((*shape[:-1], shape[-1] + 5), dtype, device)[..., 3 : 3 + shape[-1]]


def untouched(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Contiguous and not even poisoned: on a CPU, a pool of many GiB then takes only the memory of the rows in use."""
    return torch.empty(tuple(shape), dtype=dtype, device=device)


def far(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Index 1 of the outermost dimension beyond 2 GiB, index 2 beyond 4 GiB; what lies between is not touched."""
    return _apart(shape, (MAX_INT32 + 1) // ELEMENT_BYTES + 8, dtype, device)


def spread(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The outermost dimension spread evenly, its last index beyond 4 GiB; what lies between is not touched."""
    return _apart(shape, 2 * (MAX_INT32 + 1) // ELEMENT_BYTES // max(shape[0] - 1, 1) + 8, dtype, device)


def _apart(shape: Sequence[int], stride: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The outermost dimension `stride` elements apart, the others contiguous."""
    inner = torch.empty(tuple(shape[1:]), device="meta").stride()
    buffer = torch.empty((max(shape[0] - 1, 0) * stride + math.prod(shape[1:]),), dtype=dtype, device=device)
    return buffer.as_strided(tuple(shape), (stride, *inner))


def far_swapped(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """As `far`, for the dimension before the last (the heads of packed sequences)."""
    order = (len(shape) - 2, *range(len(shape) - 2), len(shape) - 1)
    stored = far([shape[dim] for dim in order], dtype, device)
    return stored.permute(*(order.index(dim) for dim in range(len(shape))))


LAYOUTS: dict[str, Layout] = {
    "contiguous": poisoned,
    "padded_rows": padded_rows,
    "outer_swapped": outer_swapped,
    "interleaved": interleaved,
    "misaligned": misaligned,
    "untouched": untouched,
    "far": far,
    "far_swapped": far_swapped,
    "spread": spread,
}
"""Layouts by the name that a case spells."""

SPARSE = ("untouched", "far", "far_swapped", "spread")
"""Those without poison, most of whose memory is never touched."""


def empty_strided(layout: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """A poisoned view of `shape` in the named layout."""
    return LAYOUTS[layout](shape, dtype, torch.device(device))


def scatter(values: torch.Tensor, layout: str) -> torch.Tensor:
    """A copy of `values` in the named layout."""
    view = empty_strided(layout, values.shape, values.dtype, values.device)
    return view.copy_(values)
