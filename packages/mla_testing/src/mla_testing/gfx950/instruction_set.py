"""Importing this module fills the instruction table with every family."""

from . import (
    atomics,
    buffer,
    control,
    convert,
    crosslane,
    flat,
    lds,
    matrix,
    scalar,
    scalar_compare,
    scalar_memory,
    scratch,
    vector_compare,
    vector_float,
    vector_half,
    vector_int,
    vector_packed,
)
from .registry import decode, decode_one, mnemonics

FAMILIES = (
    atomics,
    buffer,
    control,
    convert,
    crosslane,
    flat,
    lds,
    matrix,
    scalar,
    scalar_compare,
    scalar_memory,
    scratch,
    vector_compare,
    vector_float,
    vector_half,
    vector_int,
    vector_packed,
)

__all__ = ["FAMILIES", "decode", "decode_one", "mnemonics"]
