"""Synchronisation between the warps of a partition and between workgroups, on Hopper."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

# Triton 3.6 has the second name, 3.9 the first; both make the warps of a partition wait for each other.
sync_partition = getattr(gl, "barrier", None) or gl.thread_barrier


@gluon.jit
def publish_arrival(counter_ptr):
    """Adds 1 to a counter in global memory, after everything that this partition's warps have stored."""
    sync_partition()
    gl.atomic_add(counter_ptr, 1, sem="release", scope="gpu")


@gluon.jit
def wait_arrivals(counter_ptr, count):
    """Until a counter has reached `count`; what was stored before those arrivals may be loaded then.

    Every workgroup that arrives must be running, or be sure to: the launch is a cooperative one.
    """
    seen = gl.atomic_add(counter_ptr, 0, sem="acquire", scope="gpu")
    while seen < count:
        seen = gl.atomic_add(counter_ptr, 0, sem="acquire", scope="gpu")
    sync_partition()


@gluon.jit
def leave_arrivals(counter_ptr, count):
    """Adds 1 to a counter, and sets it back to 0 where that makes `count`: nobody waits for it any more."""
    sync_partition()
    seen = gl.atomic_add(counter_ptr, 1, sem="acq_rel", scope="gpu")
    if seen == count - 1:
        gl.store(counter_ptr, 0)
