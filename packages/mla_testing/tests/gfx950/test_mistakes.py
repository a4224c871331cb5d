"""Mistakes made in the source of a Gluon or Triton kernel are reported with the line they were made in."""

import inspect
import mmap

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_testing import emulate
from mla_testing.gfx950 import (
    EmulationError,
    GlobalRaceError,
    LdsRaceError,
    OutOfBoundsError,
    PendingAccessError,
    PoisonError,
    demo_kernels,
)


def line_of(kernel, text, nth=0):
    """file:line of the nth line of ``kernel`` that contains ``text``."""
    lines, first = inspect.getsourcelines(kernel.fn)
    numbers = [first + i for i, line in enumerate(lines) if text in line]
    return rf"{inspect.getsourcefile(kernel.fn).rsplit('/', 1)[-1]}:{numbers[nth]}\b"


def attention(keys=200, **mistake):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(n, 64, generator=generator).bfloat16() for n in (64, keys, keys))
    out, lse = torch.empty_like(q), torch.empty(64)
    meta = {"BLOCK_M": 64, "BLOCK_N": 64, "DIM": 64, "NUM_WARPS": 4, "MFMA": 16, **mistake}
    with emulate("gfx950"):
        demo_kernels.attention[(1,)](q, k, v, out, lse, keys, 0.18, **meta, num_warps=4)


def test_without_mistakes():
    attention()


def test_waiting_for_too_few_copies():
    """wait_group(2) lets the copy of this block's K stay in flight; the read of K is the line to blame."""
    where = line_of(demo_kernels.attention, "load_shared_relaxed(k_tiles")
    with pytest.raises(PendingAccessError, match=where) as caught:
        attention(OUTSTANDING=2)
    assert "direct-to-LDS load has not filled" in str(caught.value)
    assert "buffer_load_dwordx4" in str(caught.value)


def test_reading_the_other_buffer():
    where = line_of(demo_kernels.attention, "load_shared_relaxed(k_tiles")
    with pytest.raises(PendingAccessError, match=where):
        attention(WRONG_BUFFER=1)


def test_a_tail_mask_that_is_too_wide():
    where = line_of(demo_kernels.attention, "following * DIM + offsets")
    with pytest.raises(OutOfBoundsError, match=where) as caught:
        attention(EXTRA_KEYS=1)
    assert "byte 25600 of k_ptr, which has 25600 bytes" in str(caught.value)


def test_a_missing_mask():
    where = line_of(demo_kernels.attention, "following * DIM + offsets")
    with pytest.raises(OutOfBoundsError, match=where) as caught:
        attention(UNMASKED=1)
    assert "outside every tensor" in str(caught.value)


@gluon.jit
def sum_rows(pool_ptr, pages_ptr, out_ptr, stride, WIDE: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [4], [0])
    column = gl.arange(0, 256, layout=layout)
    total = gl.zeros([256], gl.float32, layout)
    for i in range(2):
        page = gl.load(pages_ptr + i)
        if WIDE:
            row = pool_ptr + page.to(gl.int64) * stride
            total += gl.load(row + column).to(gl.float32)
        else:
            total += gl.amd.cdna4.buffer_load(pool_ptr, page * stride + column).to(gl.float32)  # overflows
    gl.store(out_ptr + column, total)


@pytest.mark.parametrize("page", [5, 13])
def test_32_bit_overflow_on_a_large_pool(page):
    """The pool has more than 2 (or 4) GiB, and page 13 wraps around; only the two rows are ever touched."""
    stride = 1 << 28  # elements of 2 bytes: 0.5 GiB per page
    pool = sparse_pool(page + 1, stride)
    pool[0, :256], pool[page, :256] = 1.0, 2.0
    pages, out = torch.tensor([0, page], dtype=torch.int32), torch.empty(256)
    with emulate():
        sum_rows[(1,)](pool, pages, out, stride, WIDE=True, num_warps=4)
        assert (out == 3.0).all()
        with pytest.raises(OutOfBoundsError, match=line_of(sum_rows, "# overflows")) as caught:
            sum_rows[(1,)](pool, pages, out, stride, WIDE=False, num_warps=4)
    assert "32-bit overflow" in str(caught.value)


@triton.jit
def scatter_rows(pool_ptr, pages_ptr, stride, n: tl.constexpr):
    page = tl.load(pages_ptr + tl.program_id(0)).to(tl.int64)
    tl.store(pool_ptr + page * stride + tl.arange(0, n), tl.program_id(0).to(tl.float32))


def test_storing_to_a_large_pool():
    stride = 1 << 28
    pool = sparse_pool(14, stride)
    pages = torch.tensor([0, 13, 9], dtype=torch.int32)
    with emulate() as session:
        scatter_rows[(3,)](pool, pages, stride, n=256)
        assert session.unwritten(pool) == pool.numel() * 2 - 3 * 256 * 2
        assert [pool[page, 255].item() for page in pages] == [0.0, 1.0, 2.0]
        with pytest.raises(GlobalRaceError, match="pool_ptr"):
            scatter_rows[(3,)](pool, torch.tensor([13, 0, 13], dtype=torch.int32), stride, n=256)


def sparse_pool(pages, stride):
    """bf16 [pages, stride] that occupies memory only where it is touched."""
    backing = np.frombuffer(mmap.mmap(-1, pages * stride * 2), np.int16)
    return torch.from_numpy(backing).view(torch.bfloat16).view(pages, stride)


@gluon.jit
def exchange(x_ptr, out_ptr, WRITE: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    i = gl.arange(0, 256, layout=layout)
    tile = gl.allocate_shared_memory(gl.float32, [256], shared)
    if WRITE:
        tile.store(gl.load(x_ptr + i))
    gl.store(out_ptr + i, tile.load(layout))  # read


def test_reading_lds_that_nobody_wrote():
    with emulate(), pytest.raises(PoisonError, match=line_of(exchange, "# read")):
        exchange[(1,)](torch.ones(256), torch.empty(256), WRITE=0, num_warps=4)


@triton.jit
def unmasked_store(out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, i)


def test_a_store_past_the_end_names_the_tensor():
    where = line_of(unmasked_store, "tl.store")
    with emulate(), pytest.raises(OutOfBoundsError, match=rf"{where}.*which has 400 bytes"):
        unmasked_store[(1,)](torch.empty(100, dtype=torch.int32), n=128)


def test_errors_have_a_common_base():
    assert issubclass(LdsRaceError, EmulationError)
