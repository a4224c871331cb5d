"""Dispatch never dead-ends, and a solution that says yes keeps its word, over problems drawn at random.

Two halves: problems as values, of any size and for every target, which are dispatched and built; and small problems as
tensors, which every solution that says yes is launched on, its result held to the reference. The second half runs in
this process and once more under Triton's interpreter, in a process of its own.
"""

import os
import subprocess
import sys

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mla_core import Target, registry
from mla_core.problem import TORCH_DTYPES
from mla_core.target import interpreting
from mla_decode import DecodeProblem, mla_decode_with_kvcache
from mla_prefill import PrefillProblem, mla_prefill
from mla_testing import compare
from mla_testing.paged_cache import paged_cache
from mla_testing.strided import empty_strided
from mla_testing.suites.runners import InterpretedRunner
from mla_testing.varlen import varlen

LAYOUTS = ("contiguous", "padded_rows", "outer_swapped", "interleaved", "misaligned")

LAUNCHES = 8 if interpreting() else 60
"""Examples of each launch property; the interpreter is slow."""

launches = settings(
    max_examples=LAUNCHES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
values = settings(max_examples=150, deadline=None, derandomize=True, database=None)

heads = st.one_of(st.integers(1, 128), st.sampled_from([1, 8, 16, 32, 64, 128]))
batches = st.one_of(st.integers(1, 300), st.sampled_from([1, 64, 128, 2**16]))


@st.composite
def decode_values(draw):
    problem = DecodeProblem.make(
        batch=draw(batches),
        heads=draw(heads),
        q_len=draw(st.integers(1, 8)),
        page_size=draw(st.one_of(st.integers(1, 300), st.sampled_from([1, 16, 64, 128]))),
        max_seqlen_k=draw(st.integers(0, 2**20)),
        num_pages=draw(st.integers(1, 2**22)),
        dtype=draw(st.sampled_from(sorted(TORCH_DTYPES))),
        causal=draw(st.booleans()),
        return_lse=draw(st.booleans()),
    )
    padding = draw(st.sampled_from([0, 1, 8, 64, 2**20]))
    kv = attrs.evolve(
        problem.kv,
        stride_token=problem.kv.stride_token + padding,
        stride_page=(problem.kv.stride_token + padding) * problem.kv.page_size
        + draw(st.sampled_from([0, 3, 64, 2**30])),
    )
    return attrs.evolve(
        problem,
        kv=kv,
        q_strides=tuple(stride + draw(st.sampled_from([0, 5, 2**24])) for stride in problem.q_strides),
        out_strides=tuple(stride + draw(st.sampled_from([0, 7, 2**24])) for stride in problem.out_strides),
        max_pages=problem.max_pages + draw(st.sampled_from([0, 1, 2**20])),
        max_seqlen_k=draw(st.sampled_from([0, 1, problem.max_seqlen_k])),
        aligned=draw(st.booleans()),
    )


@st.composite
def prefill_values(draw):
    kv_heads = draw(st.integers(1, 16))
    problem = PrefillProblem.make(
        batch=draw(batches),
        seqlen=draw(st.integers(0, 5000)),
        seqlen_kv=draw(st.integers(0, 5000)),
        heads=kv_heads * draw(st.integers(1, 9)),
        kv_heads=kv_heads,
        dtype=draw(st.sampled_from(sorted(TORCH_DTYPES))),
        is_causal=draw(st.booleans()),
        return_lse=draw(st.booleans()),
    )
    spread = {
        name: tuple(stride + draw(st.sampled_from([0, 5, 64, 2**24])) for stride in getattr(problem, name))
        for name in ("q_strides", "k_strides", "v_strides", "out_strides")
    }
    bounds = {name: draw(st.sampled_from([0, 1, getattr(problem, name)])) for name in ("max_seqlen_q", "max_seqlen_kv")}
    return attrs.evolve(problem, **spread, **bounds, aligned=draw(st.booleans()))


def check_dispatch(problem, target):
    """One solution is chosen; each that says yes chooses a Config of its own class and builds."""
    explanation = registry.explain(problem, target)
    chosen = [candidate.solution for candidate in explanation.candidates if candidate.chosen]
    assert chosen == [registry.select(problem, target)]
    for candidate in explanation.candidates:
        solution = candidate.solution
        if not candidate.verdict:
            assert candidate.verdict.reason, f"{solution.name} refuses without a reason"
            continue
        config = solution.choose(problem, target)
        assert type(config) is solution.config_type
        program = solution.build(problem, target, config)
        assert program.problem == problem and program.config == config


@pytest.mark.parametrize("name", Target.names())
@values
@given(problem=decode_values())
def test_decode_dispatch(name, problem):
    check_dispatch(problem, Target.named(name))


@pytest.mark.parametrize("name", Target.names())
@values
@given(problem=prefill_values())
def test_prefill_dispatch(name, problem):
    check_dispatch(problem, Target.named(name))


def willing(operation):
    """Solutions to try: those that may run on CPU tensors in this process, the native ones only natively."""
    names = [solution.name for solution in registry.solutions(operation)]
    return [name for name in names if (name == "torch") != interpreting()]


def launch(function, operation, inputs, options, out):
    """Every solution that says yes gives the reference's result; at least one does."""
    expected, expected_lse = inputs.expected
    served = 0
    for name in willing(operation):
        try:
            result = function(*inputs.tensors, **{**inputs.options, **options}, out=out, solution=name)
        except NotImplementedError:
            continue
        served += 1
        result, lse = result if options["return_lse"] else (result, None)
        accuracy = compare(result, expected, lse, expected_lse)
        assert accuracy.ok, f"{name}: {accuracy}"
    assert served


@launches
@given(data=st.data())
def test_decode_launches(data):
    draw = data.draw
    few = 40 if interpreting() else 150
    q_len = draw(st.integers(1, 5))
    inputs = paged_cache(
        seqlens=draw(st.lists(st.integers(-2, few), max_size=4)),
        heads=draw(heads),
        q_len=q_len,
        page_size=draw(st.integers(1, 130)),
        dtype=draw(st.sampled_from(list(TORCH_DTYPES.values()))),
        causal=draw(st.booleans()),
        pool=draw(st.sampled_from(LAYOUTS)),
        head_axis=draw(st.booleans()),
        q_layout=draw(st.sampled_from(LAYOUTS)),
        share_prefix=draw(st.booleans()),
        softmax_scale=draw(st.sampled_from([192**-0.5, -0.1, 0.0, 0.5])),
        max_pages=draw(st.sampled_from([None, 0, 1, 3])),
        seed=draw(st.integers(0, 3)),
    )
    options = {
        "return_lse": draw(st.booleans()),
        "max_seqlen_k": draw(st.sampled_from([None, 0, 1, 2**31])),
    }
    layout = draw(st.sampled_from((None, *LAYOUTS)))
    shape = inputs.expected[0].shape
    out = None if layout is None else empty_strided(layout, shape, inputs.q.dtype, "cpu")
    launch(mla_decode_with_kvcache, "decode", inputs, options, out)


@launches
@given(data=st.data())
def test_prefill_launches(data):
    draw = data.draw
    few = 40 if interpreting() else 150
    kv_heads = draw(st.integers(1, 3))
    inputs = varlen(
        seqlens=draw(st.lists(st.tuples(st.integers(0, few), st.integers(0, few)), max_size=4)),
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        dtype=draw(st.sampled_from(list(TORCH_DTYPES.values()))),
        is_causal=draw(st.booleans()),
        layout=draw(st.sampled_from(LAYOUTS)),
        softmax_scale=draw(st.sampled_from([192**-0.5, -0.1, 0.0, 0.5])),
        gap=draw(st.integers(0, 9)),
        seed=draw(st.integers(0, 3)),
    )
    options = {
        "return_lse": draw(st.booleans()),
        "max_seqlen_q": draw(st.sampled_from([0, 1, inputs.max_seqlen_q, 2**31])),
        "max_seqlen_kv": draw(st.sampled_from([0, 1, inputs.max_seqlen_kv, 2**31])),
    }
    layout = draw(st.sampled_from((None, *LAYOUTS)))
    shape = inputs.expected[0].shape
    out = None if layout is None else empty_strided(layout, shape, inputs.q.dtype, "cpu")
    launch(mla_prefill, "prefill", inputs, options, out)


@pytest.mark.skipif(interpreting(), reason="is the interpreting process")
def test_launches_under_the_interpreter():
    if not all(InterpretedRunner().solutions(operation) for operation in ("decode", "prefill")):
        pytest.skip("no solution can be interpreted with this Triton and NumPy")
    command = [sys.executable, "-m", "pytest", "-q", "-x", __file__, "-k", "launches and not interpreter"]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTEST_ADDOPTS": ""}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize("batch", [1, 63, 64, 65, 100, 127, 128])
def test_64_heads_find_a_solution_whatever_the_batch(batch):
    """A dispatch by enumerated traits had none where the batch is no multiple of 64."""
    for target in map(Target.named, Target.names()):
        check_dispatch(DecodeProblem.make(batch=batch, heads=64), target)
