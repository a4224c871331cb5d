"""The contract suites notice broken solutions: each fault here is one that a kernel could have."""

import attrs
import pytest
import torch

from mla_core import ArgumentError, registry
from mla_core.dispatch import YES, no
from mla_decode.portable.torch_solution import SOLUTION as TORCH_DECODE
from mla_decode.portable.torch_solution import TorchDecodeProgram
from mla_prefill.portable.torch_solution import SOLUTION as TORCH_PREFILL
from mla_prefill.portable.torch_solution import TorchPrefillProgram
from mla_testing.suites import CHECKS, OPERATIONS, cases, find, run_case
from mla_testing.suites.pairwise import pairs_of, pairwise

DECODE = next(case for case in cases("decode", "smoke") if case.batch == 8)
PREFILL = next(case for case in cases("prefill", "smoke") if case.keys == "mixed")


@pytest.fixture
def broken(monkeypatch, clean_program_cache):
    """Registers a solution `broken` whose launch is the given function of (program, correct launch, arguments)."""

    def register(operation, launch, supports=lambda problem, target: YES):
        base, program = {
            "decode": (TORCH_DECODE, TorchDecodeProgram),
            "prefill": (TORCH_PREFILL, TorchPrefillProgram),
        }[operation]

        class Broken(program):
            def launch(self, *arguments):
                launch(self, super().launch, *arguments)

        solution = attrs.evolve(base, name="broken", priority=-1, build=Broken, supports=supports)
        monkeypatch.setitem(registry._solutions, operation, [*registry._solutions[operation], solution])

    return register


def fails(case, check):
    report = run_case(case, "broken", checks=(check,))
    assert not report.ok, f"{check} did not notice"
    assert f"python -m mla_testing.suites --case {case.id} --solution broken --device cpu" in str(report)
    return str(report)


def test_the_unbroken_solution_passes(broken):
    broken("decode", lambda program, launch, *arguments: launch(*arguments))
    broken("prefill", lambda program, launch, *arguments: launch(*arguments))
    assert run_case(DECODE, "broken").ok
    # The sums of the torch prefill are a matrix library's, which `shuffled` allows to no other solution.
    assert run_case(PREFILL, "broken", checks=tuple(name for name in CHECKS if name != "shuffled")).ok


def test_a_lost_key(broken):
    broken("decode", lambda program, launch, q, kv, table, seqlens, *rest: launch(q, kv, table, seqlens - 1, *rest))
    assert "accuracy" in fails(DECODE, "accuracy")


def test_a_key_too_many(broken):
    """It is NaN, or lies on a page that does not exist."""

    def launch(program, launch, q, kv, table, seqlens, *rest):
        launch(q, kv, table.clamp(0, kv.shape[0] - 1), seqlens + 1, *rest)

    broken("decode", launch)
    assert "NaN or Inf" in fails(DECODE, "accuracy")


def test_pages_read_in_order(broken):
    def launch(program, launch, q, kv, table, *rest):
        launch(q, kv, torch.arange(table.shape[1], dtype=torch.int32).expand(table.shape) % kv.shape[0], *rest)

    broken("decode", launch)
    fails(DECODE, "accuracy")


def test_a_mask_that_ignores_the_query_token(broken):
    def launch(program, launch, *arguments):
        program.problem = attrs.evolve(program.problem, causal=False)
        launch(*arguments)

    broken("decode", launch)
    fails(next(case for case in cases("decode", "smoke") if case.q_len > 1 and case.causal), "accuracy")


def test_an_lse_of_base_2(broken):
    def launch(program, launch, *arguments):
        launch(*arguments)
        if arguments[5] is not None:
            arguments[5].mul_(1.4427)

    broken("decode", launch)
    assert "lse" in fails(DECODE, "accuracy")


def test_empty_rows_left_alone(broken):
    def launch(program, launch, q, kv, table, seqlens, out, lse, scale):
        before = out.fill_(3.0).clone()
        launch(q, kv, table, seqlens, out, lse, scale)
        out[seqlens <= 0] = before[seqlens <= 0]

    broken("decode", launch)
    assert "out is not 0 though the row sees no key" in fails(DECODE, "accuracy")


def test_an_input_scaled_in_place(broken):
    def launch(program, launch, q, kv, table, seqlens, out, lse, scale):
        q.mul_(scale)
        launch(q, kv, table, seqlens, out, lse, 1.0)

    broken("decode", launch)
    assert "positional argument 0 was changed" in fails(DECODE, "accuracy")


def test_a_fault_without_lse_only(broken):
    def launch(program, launch, *arguments):
        launch(*arguments)
        if arguments[5] is None:
            arguments[4].zero_()

    broken("decode", launch)
    assert run_case(DECODE, "broken", checks=("accuracy",)).ok
    fails(DECODE, "without_lse")


def test_strides_of_out_ignored(broken):
    def launch(program, launch, q, kv, table, seqlens, out, lse, scale):
        launch(q, kv, table, seqlens, out.as_strided(out.shape, torch.empty(out.shape).stride()), lse, scale)

    broken("decode", launch)
    assert run_case(DECODE, "broken", checks=("accuracy",)).ok
    fails(DECODE, "outputs")


def test_a_write_outside_out(broken):
    def launch(program, launch, q, kv, table, seqlens, out, lse, scale):
        launch(q, kv, table, seqlens, out, lse, scale)
        whole = out.as_strided((out.untyped_storage().size() // 2,), (1,), 0)
        if whole.numel() > out.numel():
            whole[-1] = 0

    broken("decode", launch)
    assert "wrote outside out" in fails(DECODE, "outputs")


def test_rows_of_no_sequence_written(broken):
    def launch(program, launch, *arguments):
        launch(*arguments)
        arguments[5][-1] = 0

    broken("prefill", launch)
    assert "wrote rows that belong to no sequence" in fails(PREFILL, "outputs")


def test_results_that_differ_from_run_to_run(broken):
    def launch(program, launch, *arguments):
        launch(*arguments)
        program.bit = 1 - getattr(program, "bit", 0)
        arguments[4].view(torch.int16)[0, 0, 0, 0] ^= program.bit

    broken("decode", launch)
    assert run_case(DECODE, "broken", checks=("accuracy",)).ok
    assert "out differs from run to run" in fails(DECODE, "repeatable")


def test_results_that_depend_on_the_place_in_the_batch(broken):
    def launch(program, launch, *arguments):
        launch(*arguments)
        arguments[4].view(torch.int16)[3] ^= 1

    broken("decode", launch)
    assert "depends on its place in the batch" in fails(DECODE, "shuffled")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_hints_taken_for_bounds(broken, operation):
    def decode(program, launch, q, kv, table, seqlens, *rest):
        launch(q, kv, table, seqlens.clamp(max=program.problem.max_seqlen_k), *rest)

    def prefill(program, launch, q, k, v, cu_q, cu_kv, *rest):
        launch(
            q, k, v, cu_q, cu_kv.clamp(max=int(cu_kv[0]) + program.problem.batch * program.problem.max_seqlen_kv), *rest
        )

    broken(operation, {"decode": decode, "prefill": prefill}[operation])
    case = {"decode": DECODE, "prefill": PREFILL}[operation]
    assert run_case(case, "broken", checks=("accuracy",)).ok
    assert "with {'max_seqlen" in fails(case, "hints")


@pytest.mark.parametrize(
    "case", [case for case in cases("decode", "large") if case.pool_pages > 29127], ids=lambda c: c.id
)
def test_offsets_of_32_bits(broken, case):
    """Pages that reach beyond 2 GiB are read from the start of the pool."""

    def launch(program, launch, q, kv, table, *rest):
        beyond = (table.long() + 1) * kv.stride(0) * kv.element_size() > 2**31
        launch(q, kv, torch.where(beyond, 0, table), *rest)

    broken("decode", launch)
    fails(case, "accuracy")


def test_a_table_larger_than_32_bits_of_tokens(broken):
    def launch(program, launch, q, kv, table, seqlens, *rest):
        tokens = torch.tensor(program.problem.max_kv_tokens).int()  # wraps
        launch(q, kv, table, torch.minimum(seqlens, tokens), *rest)

    broken("decode", launch)
    fails(next(case for case in cases("decode", "smoke") if case.table_tokens), "accuracy")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_scale_taken_for_positive(broken, operation):
    broken(operation, lambda program, launch, *arguments: launch(*arguments[:-1], abs(arguments[-1])))
    fails(next(case for case in cases(operation, "smoke") if case.scale < 0), "accuracy")


def test_sequences_that_leak_into_each_other(broken):
    def launch(program, launch, q, k, v, cu_q, cu_kv, *rest):
        launch(q, k, v, cu_q, cu_kv.clone().index_fill_(0, torch.tensor([1]), int(cu_kv[2])), *rest)

    broken("prefill", launch)
    fails(PREFILL, "accuracy")


def test_an_exception_is_a_failure_and_names_its_place(broken):
    def launch(program, launch, *arguments):
        raise ZeroDivisionError("no tiles")

    broken("decode", launch)
    assert "ZeroDivisionError at launch line" in fails(DECODE, "accuracy")


def test_a_refusal_is_no_failure_but_says_why(broken):
    broken("decode", None, supports=lambda problem, target: no("too tired"))
    report = run_case(DECODE, "broken")
    assert report.ok and "too tired" in report.skipped and "too tired" in str(report)


def test_an_unknown_solution_is_a_failure():
    assert "solution is 'nobody'; allowed: None or one of" in str(run_case(DECODE, "nobody"))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_ids_are_unique_and_found(operation):
    every = [case for subset in ("smoke", "full", "large") for case in cases(operation, subset)]
    assert all(find(case.id) == case for case in every)
    by_id = {case.id: case for case in every}
    assert len(by_id) == len(set(every))
    with pytest.raises(ArgumentError, match="case is 'decode-nothing'"):
        find("decode-nothing")


def test_smoke_is_part_of_full():
    for operation in OPERATIONS:
        assert set(cases(operation, "smoke")) <= set(cases(operation, "full"))
        assert len(cases(operation, "smoke")) <= 8


def test_full_covers_every_pair_of_the_factors_that_kernels_depend_on():
    seen = {
        pair
        for case in cases("decode", "full")
        for pair in pairs_of(
            {"heads": case.heads, "q_len": case.q_len, "batch": case.batch, "page_size": case.page_size}
        )
    }
    for heads in (1, 5, 8, 12, 16, 17, 32, 40, 64, 96, 128):
        assert all((("heads", heads), ("q_len", q_len)) in seen for q_len in (1, 2, 4))
        assert all((("heads", heads), ("batch", batch)) in seen for batch in (1, 3, 8, 65))
        assert all((("heads", heads), ("page_size", page)) in seen for page in (1, 16, 48, 64, 128))


def test_pairwise_covers_all_pairs_with_few_combinations():
    factors = {"a": range(5), "b": "xyz", "c": (True, False), "d": (1, 2, 3, 4)}
    chosen = pairwise(factors)
    covered = {pair for combination in chosen for pair in pairs_of(combination)}
    for first, second in ("ab", "ac", "ad", "bc", "bd", "cd"):
        for one in factors[first]:
            for other in factors[second]:
                assert ((first, one), (second, other)) in covered
    assert 5 * 4 <= len(chosen) <= 30
    assert chosen == pairwise(factors)
