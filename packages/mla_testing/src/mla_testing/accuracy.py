"""How far a result may be from float64: relative measures, with bounds derived from the dtype.

The bounds follow from two roundings to the output dtype (unit roundoff u: 2^-8 for bf16, 2^-11 for fp16): that of the
result itself and that of the probabilities before they meet V. A rounding has a relative error of at most u and, spread
evenly, of u/sqrt(3) in the mean square; two of them give 0.82 u. The bound on the mean, 1.28 u, is 5e-3 for bf16. One
row, where a single key can carry all the weight and its rounding error then is common to all columns, may reach twice
that. Sums are fp32, whose own error (2^-24) does not count beside u. An absolute bound is never used for out: at long
context the outputs themselves are small.
"""

from __future__ import annotations

import attrs
import torch


@attrs.frozen(kw_only=True)
class Bounds:
    """Largest errors that pass.

    Attributes:
        relative_rms: root mean square over the rows of |error| / |expected|, the norms over the columns.
        row: the same ratio of the worst row.
        element: worst |error| relative to |expected| of the element plus the root mean square of its row.
        lse: worst absolute error of the log-sum-exp, natural base.
    """

    relative_rms: float
    row: float
    element: float
    lse: float = 1e-3

    @staticmethod
    def of(dtype: torch.dtype) -> Bounds:
        """Bounds for an output of `dtype`, by the rule above.

        An element is off by at most u for its own rounding, plus the rounding of the probabilities, which is u of the
        row's size, and spread over many keys reaches about 3 u in the worst of a million elements.
        """
        unit = torch.finfo(dtype).eps / 2
        return Bounds(relative_rms=1.28 * unit, row=2.56 * unit, element=4 * unit)


@attrs.frozen(kw_only=True)
class Accuracy:
    """Errors of a result against float64, and what is wrong with it, if anything.

    Attributes: as in `Bounds`, whose limits they are held to (lse is 0 where none was compared); `failures`: one
    sentence for each broken bound.
    """

    relative_rms: float
    row: float
    element: float
    lse: float
    bounds: Bounds
    failures: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every bound held."""
        return not self.failures

    def __str__(self) -> str:
        figures = (
            f"relative RMS {self.relative_rms:.2e} (bound {self.bounds.relative_rms:.1e}), "
            f"worst row {self.row:.2e} ({self.bounds.row:.1e}), worst element {self.element:.2e} "
            f"({self.bounds.element:.1e}), LSE {self.lse:.1e} ({self.bounds.lse:.0e})"
        )
        return "; ".join((*self.failures, figures))


def compare(
    out: torch.Tensor,
    expected: torch.Tensor,
    lse: torch.Tensor | None,
    expected_lse: torch.Tensor,
    bounds: Bounds | None = None,
) -> Accuracy:
    """Measures a result against the reference.

    Args:
        out: `[..., columns]` bf16 or fp16.
        expected: the same shape, float64.
        lse: `[...]` fp32, or None where none was asked for.
        expected_lse: `[...]` float64; where it is -inf the row must be exactly 0 and its lse exactly -inf. Rows where
            it is NaN belong to no sequence and are not compared.
        bounds: limits; default: those of out's dtype.
    """
    bounds = Bounds.of(out.dtype) if bounds is None else bounds
    if out.shape != expected.shape or expected_lse.shape != expected.shape[:-1]:
        raise ValueError(f"out has shape {tuple(out.shape)}, the reference {tuple(expected.shape)}")
    failures: list[str] = []
    compared = ~expected_lse.isnan()
    empty = expected_lse == float("-inf")
    filled = compared & ~empty

    _refuse(failures, "out is NaN or Inf", ~out.isfinite().all(-1) & compared)
    _refuse(failures, "out is not 0 though the row sees no key", (out != 0).any(-1) & empty)
    error = (out.double() - expected)[filled]
    wanted = expected[filled]
    row_rms = wanted.square().mean(-1).sqrt()
    ratio = error.square().mean(-1).sqrt() / row_rms
    relative_rms = _number(ratio.square().mean().sqrt()) if ratio.numel() else 0.0
    row = _worst(ratio)
    element = _worst(error.abs() / (wanted.abs() + row_rms[..., None]))
    lse_error = 0.0
    if lse is not None:
        if lse.shape != expected_lse.shape or lse.dtype != torch.float32:
            raise ValueError(f"lse is {lse.dtype} {tuple(lse.shape)}, allowed: float32 {tuple(expected_lse.shape)}")
        _refuse(failures, "lse is not -inf though the row sees no key", (lse != float("-inf")) & empty)
        _refuse(failures, "lse is NaN or Inf", ~lse.isfinite() & filled)
        lse_error = _worst((lse.double() - expected_lse)[filled].abs())
    measured = {"relative_rms": relative_rms, "row": row, "element": element, "lse": lse_error}
    for name, value in measured.items():
        limit = getattr(bounds, name)
        if not value <= limit:  # NaN compares false, and so never passes
            failures.append(f"{name} {value:.2e} exceeds {limit:.1e}")
    if not row <= bounds.row:
        worst = torch.nan_to_num(ratio, nan=float("inf")).argmax()
        failures.append(f"worst row at {tuple(filled.nonzero()[worst].tolist())}")
    return Accuracy(**measured, bounds=bounds, failures=tuple(failures))


def _refuse(failures: list[str], what: str, wrong: torch.Tensor) -> None:
    """Adds a failure with the number of wrong rows and the first of them."""
    count = int(wrong.sum())
    if count:
        failures.append(f"{what}: {count} rows, the first at {tuple(wrong.nonzero()[0].tolist())}")


def _worst(values: torch.Tensor) -> float:
    return _number(values.max()) if values.numel() else 0.0


def _number(value: torch.Tensor) -> float:
    return float(value.item())
