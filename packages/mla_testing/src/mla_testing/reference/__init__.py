"""The truth: both operations in float64 torch, written from their definition and sharing nothing with the kernels."""

from mla_testing.reference.decode import decode_reference
from mla_testing.reference.prefill import prefill_reference

__all__ = ["decode_reference", "prefill_reference"]
