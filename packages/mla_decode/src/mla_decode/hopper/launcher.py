"""Launches of one compiled kernel at little cost to the host: what Triton looks up in every call is looked up once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

LAYOUT = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=3)
"""Shared-memory tile as the bulk copy writes and wgmma reads it; the first dimension is 1."""


class Launcher:
    """A kernel with its grid and constants. The first call compiles; later ones go straight to the compiled kernel.

    Every call must agree with the first in what Triton specialises on: types, and the alignment of the pointers that the
    kernel does not exempt.
    """

    def __init__(
        self, fn: Any, grid: tuple[int, int, int], constants: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        self._fn, self._grid, self._constants, self._options = fn, grid, dict(constants), dict(options)
        self._constant_values = tuple(self._constants[name] for name in fn.arg_names if name in self._constants)
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> None:
        """Enqueues the kernel on the current stream; `arguments` are the run-time ones, which come before the constants."""
        if self._compiled is None:
            self._compiled = self._fn[self._grid](*arguments, **self._constants, **self._options)
        else:
            self._compiled[self._grid](*arguments, *self._constant_values)


class View:
    """A tensor as bulk copies see it: `[outer, inner, columns]` with strides in elements, in boxes `[1, rows, box]`.

    A stride of a dimension of size 1 means nothing, and is replaced by one that a descriptor may have.
    """

    def __init__(self, shape: tuple[int, int, int], outer_stride: int, inner_stride: int) -> None:
        outer, inner, columns = shape
        self.shape = list(shape)
        inner_stride = inner_stride if inner > 1 else columns
        self.strides = [outer_stride if outer > 1 else inner * inner_stride, inner_stride, 1]
        self._checked: dict[tuple[int, int], dict[str, Any]] = {}

    def describe(self, tensor: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
        """The descriptor of `tensor`, which starts at a multiple of 16 bytes. Only the first one is checked in full."""
        fields = self._checked.get((rows, columns))
        if fields is None:
            descriptor = TensorDescriptor(tensor, self.shape, self.strides, [1, rows, columns], LAYOUT)
            self._checked[rows, columns] = {**vars(descriptor), "base": None}
            return descriptor
        descriptor = object.__new__(TensorDescriptor)
        vars(descriptor).update(fields)
        descriptor.base = tensor
        return descriptor
