"""Clearing the rows of V past the end of a sequence, whatever LDS held."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.layouts.cdna4_flat import flat_copy_layout
from mla_prefill.cdna4.ring import STAGES, make_ring
from mla_testing import emulate

BLOCK_N = 64
V_DIM = 128


@gluon.jit
def clear(rows_ptr, slot, remaining, BLOCK_N: gl.constexpr, V_DIM: gl.constexpr):
    """Puts `[BLOCK_N, V_DIM]` in a slot of the ring, clears its tail there, and brings it back."""
    ring = make_ring(rows_ptr.dtype.element_ty, V_DIM, V_DIM, BLOCK_N)
    layout: gl.constexpr = flat_copy_layout(BLOCK_N, V_DIM, gl.num_warps())
    row = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, V_DIM, layout=gl.SliceLayout(0, layout))
    offsets = row[:, None] * V_DIM + column[None, :]
    ring.v.index(slot).store(gl.load(rows_ptr + offsets))
    ring.clear_tail(slot, remaining)
    gl.store(rows_ptr + offsets, ring.v.index(slot).load(layout))


@pytest.mark.parametrize("slot", range(STAGES.value))
@pytest.mark.parametrize("remaining", [-5, 0, 1, 33, 63])
def test_rows_past_the_end_become_zero_and_the_others_stay(slot: int, remaining: int) -> None:
    rows = torch.randn(BLOCK_N, V_DIM).bfloat16()
    expected = rows.clone()
    rows[max(remaining, 0) :] = float("nan")
    expected[max(remaining, 0) :] = 0
    with emulate():
        clear[(1,)](rows, slot, remaining, BLOCK_N=BLOCK_N, V_DIM=V_DIM)
    assert torch.equal(rows, expected)
