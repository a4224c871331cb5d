"""What the contract promises, as checks that each case goes through. A check returns one sentence for each fault."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import attrs
import torch

from mla_testing.accuracy import compare
from mla_testing.strided import SPARSE, empty_strided
from mla_testing.suites.graph import replay

SENTINEL = 7.75
"""Exact in bf16 and fp16, and no likely result."""


@attrs.define(eq=False)
class Run:
    """One case on one solution and device, with what the checks share."""

    case: Any
    solution: str | None
    device: torch.device

    @functools.cached_property
    def inputs(self) -> Any:
        """The case's inputs, built once."""
        return self.case.build(self.device)

    @functools.cached_property
    def plain(self) -> tuple[torch.Tensor, torch.Tensor]:
        """out and lse of the plain call."""
        return self.call(self.inputs, return_lse=True)

    def call(self, inputs: Any, **options: Any) -> Any:
        """Calls the public function."""
        return self.case.function(*inputs.tensors, **{**inputs.options, "solution": self.solution, **options})


LIBRARY_SUMS = ("torch",)
"""Solutions whose sums are a matrix library's: it may order them by a row's place among the operands."""

BALANCED = ("hopper",)
"""Solutions that cut the whole batch into equal parts: where a request is cut depends on those before it."""

Check = Callable[[Run], list[str]]


def accuracy(run: Run) -> list[str]:
    """Near float64 in every visible row, 0 and -inf in empty ones, whatever poison surrounds them; inputs unchanged."""
    before = [tensor.clone() for tensor in run.inputs.tensors] if not _is_sparse(run) else []
    out, lse = run.plain
    expected, expected_lse = run.inputs.expected
    faults = list(compare(out, expected, lse, expected_lse).failures)
    for index, (old, new) in enumerate(zip(before, run.inputs.tensors, strict=False)):
        if not _same_bits(old, new):
            faults.append(f"positional argument {index} was changed by the call")
    return faults


def without_lse(run: Run) -> list[str]:
    """return_lse=False gives out alone, just as near."""
    out = run.call(run.inputs, return_lse=False)
    if not isinstance(out, torch.Tensor):
        return [f"returned a {type(out).__name__} where return_lse is False"]
    expected, expected_lse = run.inputs.expected
    return list(compare(out, expected, None, expected_lse).failures)


def outputs(run: Run) -> list[str]:
    """out= and lse_out= are written, returned, and nothing around or between their rows is."""
    expected, expected_lse = run.inputs.expected
    layout = getattr(run.case, "q_layout", None) or run.case.layout
    dtype = run.inputs.q.dtype
    sparse = layout in SPARSE
    out = empty_strided("padded_rows" if layout == "contiguous" else layout, expected.shape, dtype, run.device)
    out.fill_(SENTINEL)
    whole = out.as_strided((out.untyped_storage().size() // out.element_size(),), (1,), 0)
    before = None if sparse else whole.clone()
    lse = torch.full(expected_lse.shape, SENTINEL, dtype=torch.float32, device=run.device)
    returned = run.call(run.inputs, return_lse=True, out=out, lse_out=lse)
    faults = list(compare(out, expected, lse, expected_lse).failures)
    if returned[0] is not out or returned[1] is not lse:
        faults.append("did not return the tensors given as out and lse_out")
    unowned = expected_lse.isnan()
    if (out[unowned] != SENTINEL).any() or (lse[unowned] != SENTINEL).any():
        faults.append("wrote rows that belong to no sequence")
    if before is not None:
        out.fill_(SENTINEL)
        if not _same_bits(before, whole):
            faults.append("wrote outside out")
    return faults


def repeatable(run: Run) -> list[str]:
    """A second call gives the same bits."""
    first, second = run.plain, run.call(run.inputs, return_lse=True)
    owned = ~run.inputs.expected[1].isnan()
    return [
        f"{name} differs from run to run"
        for name, one, other in zip(("out", "lse"), first, second, strict=True)
        if not _same_bits(one[owned], other[owned])
    ]


def shuffled(run: Run) -> list[str]:
    """The order of the requests does not matter: each row has the same bits in another one, or is as near."""
    moved, rows = run.case.shuffled(run.inputs)
    out, lse = run.call(moved, return_lse=True)
    expected, expected_lse = run.inputs.expected
    faults = list(compare(out, expected[rows], lse, expected_lse[rows]).failures)
    if run.solution not in LIBRARY_SUMS + BALANCED:
        for name, one, other in zip(("out", "lse"), run.plain, (out, lse), strict=True):
            if not _same_bits(one[rows], other):
                faults.append(f"{name} of a request depends on its place in the batch")
    return faults


def hints(run: Run) -> list[str]:
    """max_seqlen_* only guides scheduling: far too small or too large, the result is as near."""
    faults = []
    for hint in run.case.hints:
        out, lse = run.call(run.inputs, return_lse=True, **hint)
        expected, expected_lse = run.inputs.expected
        faults += [f"with {hint}: {failure}" for failure in compare(out, expected, lse, expected_lse).failures]
    return faults


def graph(run: Run) -> list[str]:
    """Captured in a graph and replayed with other requests, the result is that of the new ones (GPU only)."""
    if run.device.type != "cuda":
        return []
    replaced = run.case.replaced(run.inputs)
    out, lse = replay(run.call, run.case.build(run.device), replaced)
    expected, expected_lse = replaced.expected
    out, lse = out[: expected.shape[0]], lse[: expected.shape[0]]
    return list(compare(out, expected, lse, expected_lse).failures)


CHECKS: dict[str, Check] = {
    check.__name__: check for check in (accuracy, without_lse, outputs, repeatable, shuffled, hints, graph)
}
"""Checks by name, in the order they run."""

LARGE_CHECKS = ("accuracy", "outputs")
"""Those that a case with gigabytes, touched or not, goes through."""


def _is_sparse(run: Run) -> bool:
    layouts = {getattr(run.case, name, "") for name in ("pool", "q_layout", "layout")}
    return bool(layouts & set(SPARSE))


def checks_for(run: Run) -> tuple[str, ...]:
    """Names of the checks that apply to a case."""
    return LARGE_CHECKS if _is_sparse(run) or run.case.is_huge else tuple(CHECKS)


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equality of every bit, so that NaN equals itself and 0 is not -0."""
    integer = {2: torch.int16, 4: torch.int32}[first.element_size()]
    return torch.equal(first.contiguous().view(integer), second.contiguous().view(integer))
