"""Bulk tensor copies (TMA) from global to shared memory, under the one name that all supported Triton releases share."""

from __future__ import annotations

from triton.experimental.gluon.language.nvidia.hopper import tma

# Triton 3.6 has the second name, 3.9 the first; both take (descriptor, coordinates, barrier, destination).
issue_bulk_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
