"""Telling the gfx950 compiler that a value is the same in all lanes."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def make_uniform(value):
    """An int32 scalar in a scalar register.

    A scalar that comes from a reduction or a load lies in vector registers, and the compiler then treats everything
    derived from it, loop bounds and buffer addresses among them, as different in each lane: a copy from such an
    address becomes a loop over the lanes.
    """
    return gl.inline_asm_elementwise("v_readfirstlane_b32 $0, $1", "=s,v", [value], gl.int32, is_pure=True, pack=1)
