"""Programs by call signature, so that validation and dispatch run once per distinct set of shapes and options."""

from __future__ import annotations

import collections
from typing import Any

import torch

from mla_core.dispatch import Program
from mla_core.problem import COPY_BYTES
from mla_core.target import active_override, interpreting

MISSING: Any = object()
"""What `ProgramCache.get` returns for a signature not seen yet (None stands for an empty problem)."""

Key = tuple[Any, ...] | None


def signature_key(tensors: tuple[torch.Tensor | None, ...], options: tuple[Any, ...]) -> Key:
    """A hashable description of everything that validation and dispatch look at, or None where there is none.

    Tensors count by shape, strides, dtype, device, alignment and whether they would need a gradient, never by content;
    options by value and type, so that 1 does not pass for True.
    """
    parts: list[Any] = []
    try:
        for tensor in tensors:
            if tensor is None:
                parts.append(None)
            else:
                needs_grad = tensor.requires_grad and torch.is_grad_enabled()
                misaligned = tensor.data_ptr() % COPY_BYTES
                parts += (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, needs_grad, misaligned)
        on_host = tensors[0].device.type == "cpu"  # type: ignore[union-attr]
        key = (*parts, options, *map(type, options), (active_override(), interpreting()) if on_host else None)
        hash(key)
    except (AttributeError, TypeError, RuntimeError):
        return None  # something is not what it should be (a list, a sparse tensor): validation says what
    return key


def scheduling_bound(length: Any) -> Any:
    """An upper bound of lengths, rounded up to a power of two; anything but a positive int as it is.

    Such bounds only guide scheduling, and a server's grow by one a step: rounded, they share a Program.
    """
    return 1 << (length - 1).bit_length() if type(length) is int and length > 0 else length


class ProgramCache:
    """Programs by signature, as many as `entries`; the one added first goes first."""

    def __init__(self, entries: int = 4096) -> None:
        self._entries = entries
        self._programs: collections.OrderedDict[Key, Program | None] = collections.OrderedDict()

    def get(self, key: Key) -> Any:
        """The Program of a signature, None for one known to be empty, MISSING for one not seen yet."""
        return self._programs.get(key, MISSING)

    def put(self, key: Key, program: Program | None) -> Program | None:
        """Keeps `program` for `key` (not for None) and returns it."""
        if key is not None:
            self._programs[key] = program
            if len(self._programs) > self._entries:
                self._programs.popitem(last=False)
        return program

    def clear(self) -> None:
        """Forgets every Program."""
        self._programs.clear()
