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


@gluon.jit
def keep_here(value):
    """A uniform int32 scalar that the compiler knows nothing about, so that what depends on it is computed where it
    is used. Inside a loop over work items this keeps masks, offsets and LDS addresses of one item's prologue and
    epilogue from being computed before the loop and resting in registers, and spilling, through the steady loop."""
    return gl.inline_asm_elementwise("s_mov_b32 $0, $1", "=s,s", [value], gl.int32, is_pure=False, pack=1)


@gluon.jit
def keep_in_lanes(value):
    """An int32 value that the compiler takes for different in each lane: sums of it with constants then stay in vector
    registers, where there are more of them than of scalar registers."""
    return gl.inline_asm_elementwise("v_mov_b32 $0, $1", "=v,v", [value], gl.int32, is_pure=True, pack=1)


@gluon.jit
def keep_order():
    """Keeps the compiler from moving LDS and memory accesses across this point. Code that runs once an item, outside
    the steady loop, gains nothing from early loads and may run out of registers by them."""
    keep_here(0)
