"""The measure itself: rounding passes, everything else does not."""

import pytest
import torch

from mla_testing import Bounds, compare

INF = float("inf")


@pytest.fixture(params=[torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def result(request):
    """(out, expected, lse, expected_lse) of 40 rows, the last two of them empty; out is expected, rounded once."""
    generator = torch.Generator().manual_seed(0)
    # Rows of very different size, as short and long contexts give.
    size = torch.logspace(0, -4, 40, dtype=torch.float64)[:, None]
    expected = torch.randn((40, 512), generator=generator, dtype=torch.float64) * size
    expected_lse = torch.randn(40, generator=generator, dtype=torch.float64)
    expected[-2:], expected_lse[-2:] = 0, -INF
    if request.param == torch.float16:
        expected = expected.clamp(min=-(2.0**10), max=2.0**10)
        expected[20:-2] *= 1e3  # fp16 has no relative precision below 2^-14
    return expected.to(request.param), expected, expected_lse.float(), expected_lse


def test_one_rounding_passes_with_room(result):
    accuracy = compare(*result)
    assert accuracy.ok, str(accuracy)
    assert 0 < accuracy.relative_rms < 0.5 * accuracy.bounds.relative_rms
    assert str(accuracy).startswith("relative RMS")


def test_two_roundings_pass(result):
    out, expected, lse, expected_lse = result
    unit = torch.finfo(out.dtype).eps / 2
    noise = torch.rand(expected.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 2 - 1
    assert compare((expected * (1 + unit * noise)).to(out.dtype), expected, lse, expected_lse).ok


def test_bounds_are_the_promised_ones():
    assert Bounds.of(torch.bfloat16).relative_rms == pytest.approx(5e-3)
    assert Bounds.of(torch.bfloat16).lse == 1e-3
    assert Bounds.of(torch.float16).relative_rms == pytest.approx(5e-3 / 8)


@pytest.mark.parametrize("value", [float("nan"), INF, -INF])
@pytest.mark.parametrize("row", [0, 37, 38])
def test_nan_and_inf_never_pass(result, value, row):
    out, expected, lse, expected_lse = result
    out[row, 3] = value
    accuracy = compare(out, expected, lse, expected_lse)
    assert not accuracy.ok and f"out is NaN or Inf: 1 rows, the first at ({row},)" in str(accuracy)


@pytest.mark.parametrize("value", [float("nan"), INF, -INF])
def test_a_lse_that_is_no_number_never_passes(result, value):
    out, expected, lse, expected_lse = result
    lse[5] = value
    assert "lse is NaN or Inf: 1 rows, the first at (5,)" in str(compare(out, expected, lse, expected_lse))


@pytest.mark.parametrize("value", [1e-4, float("nan")])
def test_empty_rows_are_exactly_zero(result, value):
    out, expected, lse, expected_lse = result
    out[39, 511] = value
    assert "out is not 0 though the row sees no key: 1 rows, the first at (39,)" in str(
        compare(out, expected, lse, expected_lse)
    )


@pytest.mark.parametrize("value", [INF, 0.0, -1e30, float("nan")])
def test_empty_rows_have_lse_minus_inf(result, value):
    out, expected, lse, expected_lse = result
    lse[38] = value
    assert "lse is not -inf though the row sees no key" in str(compare(out, expected, lse, expected_lse))


def test_a_zero_row_is_wrong_where_keys_are_seen(result):
    out, expected, lse, expected_lse = result
    out[37] = 0
    accuracy = compare(out, expected, lse, expected_lse)
    assert not accuracy.ok and "worst row at (37,)" in str(accuracy)


def test_a_wrong_row_does_not_hide_behind_larger_ones(result):
    """Row 37 is 10^4 times smaller than row 0: a common norm would not see it."""
    out, expected, lse, expected_lse = result
    out[37] *= 1.03
    assert not compare(out, expected, lse, expected_lse).ok


def test_a_single_wrong_element_is_seen(result):
    out, expected, lse, expected_lse = result
    out[4, 100] += 0.1 * expected[4].abs().mean()
    accuracy = compare(out, expected, lse, expected_lse)
    assert not accuracy.ok and any("element" in failure for failure in accuracy.failures)


def test_a_wrong_lse_is_seen(result):
    out, expected, lse, expected_lse = result
    lse[3] += 2e-3
    assert "lse 2.00e-03 exceeds 1.0e-03" in str(compare(out, expected, lse, expected_lse))


def test_rows_of_no_sequence_are_not_compared(result):
    out, expected, lse, expected_lse = result
    expected[7], expected_lse[7] = float("nan"), float("nan")
    out[7], lse[7] = 123.0, float("nan")
    assert compare(out, expected, lse, expected_lse).ok
    out[8] = 123.0
    assert not compare(out, expected, lse, expected_lse).ok


def test_no_row_at_all_passes_and_wrong_shapes_do_not(result):
    out, expected, lse, expected_lse = result
    assert compare(out[:0], expected[:0], lse[:0], expected_lse[:0]).ok
    assert compare(out[38:], expected[38:], None, expected_lse[38:]).ok
    with pytest.raises(ValueError, match="out has shape"):
        compare(out[1:], expected, lse, expected_lse)
    with pytest.raises(ValueError, match=r"lse is torch\.float64"):
        compare(out, expected, lse.double(), expected_lse)
