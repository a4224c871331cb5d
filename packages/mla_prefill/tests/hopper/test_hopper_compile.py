"""Every variant of the Hopper prefill compiles for sm_90 on any machine, within the limits it promises."""

import pytest

from mla_core import Target, triton_support
from mla_prefill.hopper.solution import SOLUTION

if triton_support.missing():
    pytest.skip(triton_support.missing(), allow_module_level=True)

TARGET = Target.named("sm_90")
SAMPLES = SOLUTION.samples(TARGET)


@pytest.fixture(scope="module", params=SAMPLES)
def reports(request):
    from mla_core.compile import compile_kernel

    problem = SAMPLES[request.param]
    program = SOLUTION.build(problem, TARGET, SOLUTION.choose(problem, TARGET))
    return {spec.name: compile_kernel(spec, TARGET) for spec in program.kernels()}


def test_no_spill_and_no_serialised_wgmma(reports):
    for report in reports.values():
        assert report.broken_limits(TARGET) == []


def test_one_cta_of_three_warpgroups_per_sm(reports):
    report = reports["mla_prefill_hopper"]
    assert report.num_warps == 12  # two consumer warpgroups, and the producer's, of which one warp works
    assert report.shared_bytes <= TARGET.shared_bytes


def test_tensor_cores_and_bulk_copies(reports):
    assembly = reports["mla_prefill_hopper"].assembly
    assert "wgmma.mma_async.sync.aligned.m64n128k16" in assembly
    assert "cp.async.bulk.tensor.2d" in assembly
    assert "setmaxnreg" in assembly
    assert "mma.sync" not in assembly
