"""Scratch between the decode kernel and the merge: one fp32 buffer.

    [2 * batch, rounded up to 4]     int32 bits: first item and number of items of each request
    [items, rows, 512 + 4]           rows of one item of several, normalised; column 512 is their log-sum-exp

A row of a partial result is as long as its own 16-byte pieces need, so that rows start at multiples of 16 bytes.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def _rows_begin(batch):
    return (2 * batch + 3) // 4 * 4


@gluon.jit
def partial_row_starts(batch, item, row, geo: gl.constexpr):
    """int64 element offset of a row of an item; item and row broadcast."""
    return (item.to(gl.int64) * geo.rows + row) * geo.partial_stride + _rows_begin(batch)


@gluon.jit
def store_item_range(scratch, request, first_item, items):
    """Tells the merge where the items of a request are."""
    gl.store(scratch + 2 * request, first_item.to(gl.float32, bitcast=True))
    gl.store(scratch + 2 * request + 1, items.to(gl.float32, bitcast=True))


@gluon.jit
def load_item_range(scratch, request):
    """(first item, number of items) of a request."""
    first_item = gl.load(scratch + 2 * request).to(gl.int32, bitcast=True)
    return first_item, gl.load(scratch + 2 * request + 1).to(gl.int32, bitcast=True)


@gluon.jit
def store_partial(rows, lse, scratch, batch, item, first_row, geo: gl.constexpr):
    """Stores `[rows, 512]` fp32 and lse `[rows]` of one item of several."""
    layout: gl.constexpr = rows.type.layout
    row = first_row + gl.arange(0, rows.shape[0], layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, rows.shape[1], layout=gl.SliceLayout(0, layout))
    starts = partial_row_starts(batch, item, row, geo)
    inside = row < geo.rows
    gl.store(scratch + (starts[:, None] + column[None, :]), rows, mask=inside[:, None])
    gl.store(scratch + (starts + geo.kv_lora_rank), lse, mask=inside)
