"""Test equipment of the MLA kernels: references, hard inputs, accuracy bounds, contract suites. No kernel needs it."""

from mla_testing.accuracy import Accuracy, Bounds, compare
from mla_testing.emulation import emulate
from mla_testing.reference import decode_reference, prefill_reference

__all__ = ["Accuracy", "Bounds", "compare", "decode_reference", "emulate", "prefill_reference"]
