"""Signatures of calls, and the table of Programs behind them."""

import pytest
import torch

from mla_core import Target
from mla_core.program_cache import MISSING, ProgramCache, scheduling_bound, signature_key
from mla_core.target import override


def key_of(tensor, *options):
    return signature_key((tensor, None), options)


def test_contents_do_not_count():
    assert key_of(torch.zeros(4, 8), 1) == key_of(torch.ones(4, 8), 1)


@pytest.mark.parametrize(
    "other",
    [
        lambda: torch.zeros(8, 4),
        lambda: torch.zeros(8, 4).t(),
        lambda: torch.zeros(4, 8, dtype=torch.float16),
        lambda: torch.zeros(4, 8, device="meta"),
        lambda: torch.zeros(4, 8, requires_grad=True),
        lambda: torch.zeros(33)[1:].view(4, 8),
        lambda: None,
    ],
    ids=["shape", "strides", "dtype", "device", "grad", "alignment", "none"],
)
def test_what_counts(other):
    assert key_of(torch.zeros(4, 8), 1) != key_of(other(), 1)


def test_options_count_with_their_type():
    tensor = torch.zeros(4)
    assert key_of(tensor, True) != key_of(tensor, 1)
    assert key_of(tensor, 512) != key_of(tensor, 512.0)
    assert key_of(tensor, 0.5) == key_of(tensor, 0.5)


def test_grad_only_counts_where_it_is_recorded():
    tensor = torch.zeros(4, requires_grad=True)
    recorded = key_of(tensor)
    with torch.no_grad():
        assert key_of(tensor) != recorded


def test_what_serves_cpu_tensors_counts(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    tensor = torch.zeros(4)
    plain = key_of(tensor)
    with override(Target.named("gfx950")):
        assert key_of(tensor) != plain
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert key_of(tensor) != plain


@pytest.mark.parametrize(
    ("tensor", "option"),
    [([1, 2], 1), (None, 1), (torch.zeros(2), []), (torch.zeros(2).to_sparse(), 1)],
    ids=["no tensor", "none first", "unhashable option", "sparse"],
)
def test_no_key_for_what_validation_has_to_refuse(tensor, option):
    assert signature_key((tensor,), (option,)) is None


def test_the_oldest_program_goes_first():
    cache = ProgramCache(entries=2)
    for name in "abc":
        assert cache.put((name,), name) == name
    assert cache.get(("a",)) is MISSING
    assert (cache.get(("b",)), cache.get(("c",))) == ("b", "c")


def test_an_empty_problem_is_known_and_no_key_is_not_kept():
    cache = ProgramCache()
    cache.put(("empty",), None)
    cache.put(None, "program")
    assert cache.get(("empty",)) is None
    assert cache.get(None) is MISSING
    cache.clear()
    assert cache.get(("empty",)) is MISSING


@pytest.mark.parametrize(
    ("length", "bound"),
    [(1, 1), (2, 2), (3, 4), (4096, 4096), (4097, 8192), (0, 0), (-3, -3), (None, None), (True, True)],
)
def test_scheduling_bound_rounds_positive_ints_up(length, bound):
    found = scheduling_bound(length)
    assert found == bound and type(found) is type(bound)
