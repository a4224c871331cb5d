"""Checks of tensor arguments."""

import pytest
import torch

from mla_core.errors import ArgumentError
from mla_core.validation import check_disjoint, check_number, check_tensor, check_writable


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), -float("inf"), torch.ones(1)])
def test_no_number(value):
    with pytest.raises(ArgumentError, match="softmax_scale is"):
        check_number("softmax_scale", value, "a finite number")


def test_numbers():
    check_number("n", 0, "an int", low=0, integer=True)
    check_number("x", -0.5, "a finite number")
    for bad in (-1, 1.0):
        with pytest.raises(ArgumentError, match=f"n is {bad}; allowed: an int"):
            check_number("n", bad, "an int", low=0, integer=True)


def test_a_sparse_tensor_is_refused():
    sparse = torch.zeros(2, 2, dtype=torch.bfloat16).to_sparse()
    with pytest.raises(ArgumentError, match=r"q.layout is torch.sparse_coo; allowed: torch.strided"):
        check_tensor("q", sparse, 2, None, None)


def test_expanded_outputs_are_refused_and_permuted_ones_are_not():
    check_writable("out", torch.empty(4, 3, 8).transpose(0, 1))
    check_writable("out", torch.empty(1, 8).expand(1, 8))
    check_writable("out", torch.empty(0, 8))
    for shared in (torch.empty(1, 8).expand(4, 8), torch.empty(20).as_strided((4, 8), (4, 1))):
        with pytest.raises(ArgumentError, match=r"out.stride\(\) is"):
            check_writable("out", shared)


def test_overlapping_memory_is_refused():
    buffer = torch.empty(16)
    check_disjoint("out", buffer[:8], {"q": buffer[8:]})
    check_disjoint("out", buffer[:0], {"q": buffer})
    with pytest.raises(ArgumentError, match="out is overlapping q in memory"):
        check_disjoint("out", buffer[:9], {"q": buffer[8:]})
