"""Vocabulary shared by the Problems of both operations: dtypes, strides, byte extents, the paged pool.

A Problem says what is asked: everything the host knows about a call, and nothing about how it is done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import torch

from mla_core.errors import ArgumentError

MAX_INT32 = 2**31 - 1
"""Largest byte offset that a signed 32-bit register holds."""

DTYPE_NAMES: dict[torch.dtype, str] = {torch.bfloat16: "bf16", torch.float16: "fp16"}
"""Element types of q, kv and out, with the name Triton's signatures use."""

TORCH_DTYPES: dict[str, torch.dtype] = {name: dtype for dtype, name in DTYPE_NAMES.items()}

ELEMENT_BYTES = 2
"""Bytes of a bf16 or fp16 element."""


def last_byte_offset(shape: Sequence[int], strides: Sequence[int], itemsize: int = ELEMENT_BYTES) -> int:
    """Byte offset of the last addressable byte of a strided view, relative to its first element.

    A view with a zero-sized dimension has no byte; -1 stands for that. Strides are in elements, and not negative.
    """
    if any(size == 0 for size in shape):
        return -1
    elements = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return elements * itemsize + itemsize - 1


def fits_int32(shape: Sequence[int], strides: Sequence[int], itemsize: int = ELEMENT_BYTES) -> bool:
    """Whether every byte of the view is reached by a signed 32-bit byte offset from its first element."""
    return last_byte_offset(shape, strides, itemsize) <= MAX_INT32


def contiguous_strides(*shape: int) -> Any:
    """Elements between neighbours in each dimension of a contiguous tensor, as a tuple without the last one's 1."""
    return tuple(math.prod(shape[dimension + 1 :]) for dimension in range(len(shape) - 1))


COPY_BYTES = 16
"""Bytes of the widest copy of one lane (128 bits on gfx950 and sm_90), and the alignment that it and TMA need."""


def is_aligned(*tensors: torch.Tensor) -> bool:
    """Whether every tensor starts at a multiple of COPY_BYTES."""
    return all(tensor.data_ptr() % COPY_BYTES == 0 for tensor in tensors)


@attrs.frozen(kw_only=True)
class PagedKV:
    """A paged pool of compressed KV rows.

    Attributes:
        num_pages: pages in the pool.
        page_size: tokens in a page, >= 1.
        head_dim: columns of a row, kv_lora_rank + qk_rope_head_dim.
        stride_page, stride_token: elements between pages and between tokens of a page; columns are contiguous.
        dtype: `bf16` or `fp16`.
    """

    num_pages: int
    page_size: int
    head_dim: int
    stride_page: int
    stride_token: int
    dtype: str

    @staticmethod
    def from_tensor(kv_cache: torch.Tensor) -> PagedKV:
        """Reads a pool `[num_pages, page_size, head_dim]` that has passed validation."""
        num_pages, page_size, head_dim = kv_cache.shape
        stride_page, stride_token, _ = kv_cache.stride()
        return PagedKV(
            num_pages=num_pages,
            page_size=page_size,
            head_dim=head_dim,
            stride_page=stride_page,
            stride_token=stride_token,
            dtype=DTYPE_NAMES[kv_cache.dtype],
        )

    @property
    def max_byte_offset(self) -> int:
        """Offset of the last byte of the pool: the largest one that a lane may form.

        Kernels clamp the token and page of a masked lane to one inside the pool, or disable the lane before the
        address is formed, so masked lanes stay within it too.
        """
        return last_byte_offset(
            (self.num_pages, self.page_size, self.head_dim), (self.stride_page, self.stride_token, 1)
        )

    @property
    def within_2gb(self) -> bool:
        """Whether a signed 32-bit byte offset reaches the whole pool."""
        return self.max_byte_offset <= MAX_INT32


def check_head_dim(name: str, value: int, allowed: int) -> None:
    """Refuses a head dimension that no kernel is written for."""
    if value != allowed:
        raise ArgumentError(name, value, f"{allowed}")
