"""Byte extents at the boundaries of signed 32-bit offsets."""

import attrs
import pytest
import torch

from mla_core.errors import ArgumentError
from mla_core.problem import (
    DTYPE_NAMES,
    MAX_INT32,
    TORCH_DTYPES,
    PagedKV,
    check_head_dim,
    contiguous_strides,
    fits_int32,
    is_aligned,
    last_byte_offset,
)

GIB = 2**30
HEAD_DIM = 576
PAGE_BYTES = 64 * HEAD_DIM * 2


def pool(num_pages, page_size=64, stride_page=None, stride_token=HEAD_DIM):
    return PagedKV(
        num_pages=num_pages,
        page_size=page_size,
        head_dim=HEAD_DIM,
        stride_page=page_size * stride_token if stride_page is None else stride_page,
        stride_token=stride_token,
        dtype="bf16",
    )


def one_byte_sizes(total):
    """A view of single bytes with `total` of them."""
    return fits_int32((total,), (1,), itemsize=1)


def test_exactly_2_gib_fits_and_one_byte_more_does_not():
    assert one_byte_sizes(2 * GIB - 1)
    assert one_byte_sizes(2 * GIB)
    assert not one_byte_sizes(2 * GIB + 1)
    assert not one_byte_sizes(4 * GIB)


@pytest.mark.parametrize("dtype_bytes", [1, 2, 4])
def test_the_last_element_counts_with_all_its_bytes(dtype_bytes):
    elements = 2 * GIB // dtype_bytes
    assert last_byte_offset((elements,), (1,), dtype_bytes) == MAX_INT32
    assert fits_int32((elements,), (1,), dtype_bytes)
    assert not fits_int32((elements + 1,), (1,), dtype_bytes)


def test_contiguous_pool_at_the_boundary_of_pages():
    within = 2 * GIB // PAGE_BYTES
    assert within * PAGE_BYTES < 2 * GIB < (within + 1) * PAGE_BYTES
    assert pool(within).max_byte_offset == within * PAGE_BYTES - 1
    assert pool(within).within_2gb
    assert not pool(within + 1).within_2gb
    assert not pool(4 * GIB // PAGE_BYTES + 1).within_2gb


def test_pool_of_exactly_2_gib_with_padded_rows():
    # Rows of 1024 elements: 2^20 of them are 2 GiB of buffer, whose last row ends 448 elements short of it.
    kv = pool(num_pages=2**14, page_size=64, stride_token=1024)
    assert kv.max_byte_offset == 2 * GIB - 1 - 2 * (1024 - HEAD_DIM)
    assert kv.within_2gb
    assert not attrs.evolve(kv, num_pages=2**14 + 1).within_2gb


def test_strided_view_reaches_further_than_its_element_count():
    few = pool(num_pages=3, stride_page=GIB)
    assert few.num_pages * few.page_size * HEAD_DIM * 2 < GIB
    assert few.max_byte_offset == 2 * 2 * GIB + PAGE_BYTES - 1
    assert not few.within_2gb
    assert pool(num_pages=1, stride_page=GIB).within_2gb


def test_strided_view_one_byte_on_either_side():
    # The last page starts so that its last byte is the last one a signed 32-bit offset reaches.
    start = (2 * GIB - PAGE_BYTES) // 2
    assert pool(num_pages=2, stride_page=start).max_byte_offset == MAX_INT32
    assert pool(num_pages=2, stride_page=start).within_2gb
    assert not pool(num_pages=2, stride_page=start + 1).within_2gb


def test_empty_views_have_no_byte():
    assert last_byte_offset((0, 64, HEAD_DIM), (4 * GIB, HEAD_DIM, 1)) == -1
    assert pool(num_pages=0, stride_page=8 * GIB).within_2gb


def test_max_byte_offset_is_that_of_the_tensor():
    buffer = torch.empty((7, 3, 16, 640), dtype=torch.bfloat16)
    view = buffer[:, 1, :, :HEAD_DIM]
    kv = PagedKV.from_tensor(view)
    last = view[-1, -1, -1:]
    assert kv.max_byte_offset == last.data_ptr() + last.element_size() - 1 - view.data_ptr()
    assert (kv.num_pages, kv.page_size, kv.stride_page, kv.stride_token) == (7, 16, 3 * 16 * 640, 640)


def test_alignment_is_of_the_first_element():
    buffer = torch.empty(64, dtype=torch.bfloat16)
    offset = -(buffer.data_ptr() // 2) % 8
    assert is_aligned(buffer[offset:])
    assert not is_aligned(buffer[offset:], buffer[offset + 1 :])
    assert is_aligned(buffer[offset + 8 :])


def test_dtype_tables_are_inverse():
    assert {name: dtype for dtype, name in DTYPE_NAMES.items()} == TORCH_DTYPES


def test_head_dim_is_named_in_the_refusal():
    check_head_dim("kv_lora_rank", 512, 512)
    with pytest.raises(ArgumentError, match="kv_lora_rank is 256; allowed: 512"):
        check_head_dim("kv_lora_rank", 256, 512)


@pytest.mark.parametrize("shape", [(3, 2, 5, 576), (7, 4, 128), (1, 9)])
def test_contiguous_strides_are_torchs(shape):
    assert contiguous_strides(*shape) == torch.empty(shape).stride()[:-1]
