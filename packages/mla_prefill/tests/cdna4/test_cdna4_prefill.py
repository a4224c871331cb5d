"""The gfx950 prefill kernel in the emulator, with all its checks: strict, race, poison and bounds."""

from __future__ import annotations

import attrs
import pytest
import torch

from mla_core import triton_support

MISSING = triton_support.missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

from mla_core import Target, UnsupportedError, registry  # noqa: E402
from mla_prefill import PrefillProblem, mla_prefill  # noqa: E402
from mla_prefill.cdna4.config import CDNA4PrefillConfig  # noqa: E402
from mla_testing import compare, emulate  # noqa: E402
from mla_testing.reference import prefill_reference  # noqa: E402
from mla_testing.suites import run_case  # noqa: E402
from mla_testing.suites.prefill import PrefillCase  # noqa: E402
from mla_testing.varlen import varlen  # noqa: E402

SOLUTION = "cdna4"
COMPUTE_UNITS = 8

CASES = [
    PrefillCase(heads=1, batch=1, first=0, is_causal=False),
    PrefillCase(heads=2, batch=17, first=1, keys="mixed"),
    PrefillCase(heads=5, batch=5, first=2, keys="longer", layout="interleaved"),
    PrefillCase(heads=2, group=3, batch=2, first=3, keys="shorter", dtype="fp16"),
    PrefillCase(heads=16, batch=3, first=4, keys="mixed", is_causal=False, layout="outer_swapped"),
]

CHECKS = ("accuracy", "outputs", "repeatable", "shuffled")


@pytest.mark.parametrize("wave_order", ["forward", "reverse"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_contract(case: PrefillCase, wave_order: str) -> None:
    with emulate(compute_units=COMPUTE_UNITS, wave_order=wave_order):
        report = run_case(case, SOLUTION, "cpu", CHECKS)
    assert report.ok and not report.skipped, str(report)


def test_a_batch_that_fits_no_number_of_slots() -> None:
    inputs = varlen(seqlens=[(1, 1), (2, 2), (0, 3), (1, 2), (1, 0)], heads=128, is_causal=True)
    with emulate(compute_units=COMPUTE_UNITS):
        out, lse = mla_prefill(*inputs.tensors, **inputs.options, return_lse=True, solution=SOLUTION)
    expected, expected_lse = inputs.expected
    assert not compare(out, expected, lse, expected_lse).failures


@pytest.mark.parametrize("block_n", [32, 64])
def test_every_tile_shape(block_n: int) -> None:
    config = CDNA4PrefillConfig(block_n=block_n)
    inputs = varlen(seqlens=[(200, 330), (65, 65)], heads=1, is_causal=True)
    with emulate(compute_units=COMPUTE_UNITS):
        out, lse = mla_prefill(*inputs.tensors, **inputs.options, return_lse=True, config=config)
    expected, expected_lse = inputs.expected
    assert not compare(out, expected, lse, expected_lse).failures


def test_unmasked_steps_in_odd_and_even_number() -> None:
    """Long sequences: the steady loop runs, leaves early or takes both of its steps, whatever the tails are."""
    lengths = [(130, keys) for keys in (64 * 7, 64 * 8, 64 * 8 + 1, 64 * 9 + 63)]
    inputs = varlen(seqlens=lengths, heads=1, is_causal=True)
    with emulate(compute_units=COMPUTE_UNITS):
        out, lse = mla_prefill(*inputs.tensors, **inputs.options, return_lse=True, solution=SOLUTION)
    expected, expected_lse = inputs.expected
    assert not compare(out, expected, lse, expected_lse).failures


@pytest.mark.parametrize("softmax_scale", [-0.07, 0.0, 3.0])
def test_any_softmax_scale(softmax_scale: float) -> None:
    inputs = varlen(seqlens=[(70, 70), (3, 1)], heads=2, is_causal=True)
    with emulate(compute_units=COMPUTE_UNITS):
        out, lse = mla_prefill(
            *inputs.tensors,
            **{**inputs.options, "softmax_scale": softmax_scale},
            return_lse=True,
            solution=SOLUTION,
        )
    expected, expected_lse = prefill_reference(*inputs.tensors, softmax_scale=softmax_scale, is_causal=True)
    assert not compare(out, expected, lse, expected_lse).failures


def far_rows(tokens: int, heads: int, columns: int, stride: int) -> torch.Tensor:
    """Rows `stride` elements apart; what lies between them is never touched."""
    storage = torch.empty((tokens - 1) * stride + heads * columns, dtype=torch.bfloat16)
    view = storage.as_strided((tokens, heads, columns), (stride, columns, 1))
    view.copy_(torch.randn(view.shape, generator=torch.Generator().manual_seed(columns)))
    return view


def test_tensors_beyond_four_gib() -> None:
    """The second sequence starts past 2**31 elements of q, k, v and out: offsets of it fit in no 32 bits."""
    start, tokens, heads, stride = 560, 600, 1, 4_000_000
    assert start * stride > 2**31
    q, k = far_rows(tokens, heads, 192, stride), far_rows(tokens, heads, 192, stride)
    v, out = far_rows(tokens, heads, 128, stride), far_rows(tokens, heads, 128, stride)
    starts = torch.tensor([530, start, tokens], dtype=torch.int32)
    with emulate(compute_units=COMPUTE_UNITS):
        _, lse = mla_prefill(
            q, k, v, starts, starts, max_seqlen_q=tokens, max_seqlen_kv=tokens, softmax_scale=0.1, return_lse=True,
            out=out, solution=SOLUTION,
        )  # fmt: skip
    near = [tensor.contiguous() for tensor in (q, k, v)]
    expected, expected_lse = prefill_reference(*near, starts, starts, softmax_scale=0.1, is_causal=True)
    assert not compare(out.contiguous(), expected, lse, expected_lse).failures


def test_dispatch_selects_it_on_gfx950_only() -> None:
    problem = PrefillProblem.make(batch=3, seqlen=100, heads=16)
    assert registry.select(problem, Target.named("gfx950")).name == SOLUTION
    assert registry.select(problem, Target.named("sm_90")).name != SOLUTION


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aligned": False}, "16-byte addresses"),
        ({"q_strides": (192 * 16 + 4, 192)}, "token stride of q must be a multiple of 8 elements, and is 3076"),
        ({"v_strides": (128 * 16, 129)}, "head stride of v"),
        ({"k_strides": (2**24, 192)}, "128 rows of k must lie within 2 GiB, and its token stride is 16777216"),
    ],
)
def test_refusals_name_the_limit_and_the_value(changes: dict[str, object], reason: str) -> None:
    problem = attrs.evolve(PrefillProblem.make(batch=3, seqlen=100, heads=16), **changes)
    target = Target.named("gfx950")
    assert registry.select(problem, target).name != SOLUTION
    with pytest.raises(UnsupportedError, match=reason):
        registry.select(problem, target, solution=SOLUTION)


def test_strides_of_a_single_token_or_head_do_not_matter() -> None:
    problem = attrs.evolve(PrefillProblem.make(batch=1, seqlen=1, heads=1), q_strides=(3, 5), v_strides=(7, 9))
    assert registry.select(problem, Target.named("gfx950")).name == SOLUTION
