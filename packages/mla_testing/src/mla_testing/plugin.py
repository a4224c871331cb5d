"""pytest plugin: the contract suites on every target and solution, and builders of hard inputs as fixtures.

A test that takes the fixture `contract_report` and carries `@pytest.mark.contract("decode")` runs once for each case,
solution and place that `--target` names; a solution joins by registering.

    @pytest.mark.contract("decode")
    def test_contract(contract_report):
        assert contract_report.ok, str(contract_report)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mla_core.errors import ArgumentError
from mla_testing.machine import Machine
from mla_testing.paged_cache import DecodeInputs, paged_cache
from mla_testing.suites import OPERATIONS, Report
from mla_testing.suites.runners import Runner, matrix, runners_for
from mla_testing.varlen import PrefillInputs, varlen

RUNNERS = pytest.StashKey[tuple[Runner, ...]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--target`."""
    parser.addoption(
        "--target",
        default="auto",
        help="where contract cases run: auto (the GPU; without one everything a CPU can do), cpu, cuda, or an "
        "architecture such as gfx950 (emulated where the GPU is another)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuses a target that this machine has not."""
    config.addinivalue_line("markers", "contract(operation): runs once for each contract case, solution and place")
    try:
        config.stash[RUNNERS] = runners_for(config.getoption("target"))
    except ArgumentError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the processes that runners started."""
    for runner in config.stash.get(RUNNERS, ()):
        runner.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrises contract tests over places, solutions and cases."""
    if "contract_report" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("contract")
    if marker is None or marker.args[0] not in OPERATIONS:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid} needs @pytest.mark.contract, of " + ", ".join(OPERATIONS)
        )
    parameters = [
        pytest.param((runner, solution, case), id=f"{runner.name}-{solution}-{case.id}")
        for runner in metafunc.config.stash[RUNNERS]
        for solution, case in matrix(runner, marker.args[0])
    ]
    metafunc.parametrize("contract_report", parameters, indirect=True)


@pytest.fixture
def contract_report(request: pytest.FixtureRequest) -> Report:
    """The report of one contract case; a case that the solution does not serve is skipped with its reason."""
    runner, solution, case = request.param
    report = runner.run(case, solution)
    if report.skipped:
        pytest.skip(report.skipped)
    return report


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """torch device that `--target` means for tests which are no contract case: this machine's GPU, or the CPU."""
    gpu = Machine.gpu()
    wanted = request.config.getoption("target")
    return "cuda" if gpu is not None and wanted in ("auto", "cuda", gpu.target.arch) else "cpu"


@pytest.fixture
def make_paged_cache(device: str) -> Callable[..., DecodeInputs]:
    """`mla_testing.paged_cache.paged_cache` on the session's device."""
    return functools.partial(paged_cache, device=device)


@pytest.fixture
def make_varlen(device: str) -> Callable[..., PrefillInputs]:
    """`mla_testing.varlen.varlen` on the session's device."""
    return functools.partial(varlen, device=device)


@pytest.fixture
def clean_program_cache() -> Iterator[None]:
    """Empties the tables of Programs around a test that registers a solution of its own."""
    from mla_decode import api as decode_api
    from mla_prefill import api as prefill_api

    tables: tuple[Any, ...] = (decode_api._programs, prefill_api._programs)
    for table in tables:
        table.clear()
    yield
    for table in tables:
        table.clear()
