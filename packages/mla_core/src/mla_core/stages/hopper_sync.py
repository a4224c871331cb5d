"""Synchronisation between the warps of a partition and between workgroups, on Hopper."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

# Triton 3.6 has the second name, 3.9 the first; both make the warps of a partition wait for each other.
sync_partition = getattr(gl, "barrier", None) or gl.thread_barrier


@gluon.jit
def load_acquire(pointer):
    """An int64 in global memory; what was stored before the arrivals that it counts is seen by loads after it."""
    return gl.inline_asm_elementwise(
        "ld.acquire.gpu.global.b64 $0, [$1];", "=l,l", [pointer], dtype=gl.int64, is_pure=False, pack=1
    )


@gluon.jit
def publish_arrival(counter_ptr):
    """Adds 1 to an int64 counter in global memory, after everything that this partition's warps have stored."""
    sync_partition()
    gl.atomic_add(counter_ptr, 1, sem="release", scope="gpu")


@gluon.jit
def wait_arrivals(counter_ptr, count):
    """Until a counter has reached `count`; what was stored before those arrivals may be loaded then.

    Every workgroup that arrives must be running, or be sure to: the launch is a cooperative one.
    """
    while load_acquire(counter_ptr) < count:
        pass
    sync_partition()
