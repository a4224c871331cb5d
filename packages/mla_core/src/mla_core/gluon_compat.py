"""What differs in the Gluon API between Triton 3.6 and 3.9, under one name each. Imports Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

if TYPE_CHECKING:  # a class decorator that makes a constructor of the fields in order
    from dataclasses import dataclass as aggregate
else:
    try:
        from triton import aggregate  # 3.9
    except ImportError:
        from triton.language.core import _aggregate as aggregate  # 3.6

__all__ = ["aggregate", "reinterpret", "wait_all_waves"]

if hasattr(gl.shared_memory_descriptor, "reinterpret"):  # 3.9

    @gluon.jit
    def reinterpret(memory, dtype: gl.constexpr, shape: gl.constexpr, layout: gl.constexpr):
        """The same bytes of shared memory under another dtype, shape and layout."""
        return memory.reinterpret(dtype, shape, layout)

else:  # 3.6

    @gluon.jit
    def reinterpret(memory, dtype: gl.constexpr, shape: gl.constexpr, layout: gl.constexpr):
        """The same bytes of shared memory under another dtype, shape and layout."""
        return memory._reinterpret(dtype, shape, layout)


wait_all_waves = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
"""Barrier of the workgroup: `barrier` since 3.9, `thread_barrier` before."""
