"""What this machine sustains, measured: the roofs that every percentage refers to."""

from __future__ import annotations

import attrs
import torch
import triton
import triton.language as tl

from mla_core.problem import ELEMENT_BYTES
from mla_testing.bench.timing import GraphTimer

STREAM_BYTES = 2 * 2**30
"""Bytes that a bandwidth run reads: many times every cache."""

MATMUL_SIZE = 8192
"""Rows, columns and depth of the matrix product."""

BLOCK = 8192
"""Elements that one program of the read kernel takes at a time."""

PROGRAMS_PER_UNIT = 8
"""Programs of the read kernel for each CU or SM: enough loads in flight to hide the latency of memory."""


@attrs.frozen(kw_only=True)
class Roofs:
    """Measured ceilings.

    Attributes:
        read: bytes per second of a kernel that only reads.
        copy: bytes per second of a device copy, read and written together.
        matmul: bf16 FLOP per second of torch's matrix product on random values.
    """

    read: float
    copy: float
    matmul: float

    @property
    def bandwidth(self) -> float:
        """The higher of both bandwidths, bytes per second."""
        return max(self.read, self.copy)

    def attainable(self, flops: float, bytes_moved: float) -> float:
        """Least time for the work by these roofs, seconds."""
        return max(flops / self.matmul, bytes_moved / self.bandwidth)

    def __str__(self) -> str:
        return (
            f"read {self.read / 1e12:.2f} TB/s, copy {self.copy / 1e12:.2f} TB/s, "
            f"bf16 matmul {MATMUL_SIZE}^3 {self.matmul / 1e12:.0f} TFLOP/s"
        )


@triton.jit
def read_kernel(source_ptr, sums_ptr, count, BLOCK: tl.constexpr):
    """Reads `count` elements, a multiple of BLOCK, and keeps one fp32 sum for each program."""
    program = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(program * BLOCK, count, tl.num_programs(0) * BLOCK):
        total += tl.load(source_ptr + start + tl.arange(0, BLOCK)).to(tl.float32)
    tl.store(sums_ptr + program, tl.sum(total, 0))


def measure(timer: GraphTimer) -> Roofs:
    """Measures the roofs of the current GPU; takes about a second and 4 GiB."""
    roofs = Roofs(read=read_roof(timer), copy=copy_roof(timer), matmul=matmul_roof(timer))
    torch.cuda.empty_cache()
    return roofs


def read_roof(timer: GraphTimer) -> float:
    """Bytes per second of `read_kernel` over STREAM_BYTES."""
    units = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    grid = (PROGRAMS_PER_UNIT * units,)
    source = torch.randn(STREAM_BYTES // ELEMENT_BYTES, dtype=torch.bfloat16, device="cuda")
    sums = torch.empty(grid, dtype=torch.float32, device="cuda")
    us = timer.median_us(lambda: read_kernel[grid](source, sums, source.numel(), BLOCK=BLOCK, num_warps=8))
    return STREAM_BYTES / (us * 1e-6)


def copy_roof(timer: GraphTimer) -> float:
    """Bytes per second, read and written, of a device copy of STREAM_BYTES."""
    source = torch.randn(STREAM_BYTES // ELEMENT_BYTES, dtype=torch.bfloat16, device="cuda")
    copied = torch.empty_like(source)
    return 2 * STREAM_BYTES / (timer.median_us(lambda: copied.copy_(source)) * 1e-6)


def matmul_roof(timer: GraphTimer) -> float:
    """bf16 FLOP per second of torch's MATMUL_SIZE^3 product."""
    a = torch.randn((MATMUL_SIZE, MATMUL_SIZE), dtype=torch.bfloat16, device="cuda")
    b, product = torch.randn_like(a), torch.empty_like(a)
    return 2 * MATMUL_SIZE**3 / (timer.median_us(lambda: torch.matmul(a, b, out=product)) * 1e-6)
