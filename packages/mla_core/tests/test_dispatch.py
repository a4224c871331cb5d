"""Dispatch over made-up solutions: order, refusals, explanations."""

import attrs
import pytest

from mla_core import ArgumentError, ConfigError, KernelConfig, Registry, Target, UnsupportedError, kernel_config
from mla_core.dispatch import YES, Solution, no


@attrs.frozen
class Asked:
    heads: int
    operation: str = "decode"


@kernel_config
class FastConfig(KernelConfig):
    block: int = 64


@kernel_config
class SlowConfig(KernelConfig):
    block: int = 1


@kernel_config
class StrangerConfig(KernelConfig):
    block: int = 1


@attrs.frozen
class Built:
    problem: Asked
    target: Target
    config: KernelConfig


CPU = Target.named("cpu")

FAST = Solution(
    operation="decode",
    name="fast",
    priority=10,
    config_type=FastConfig,
    supports=lambda problem, target: YES if problem.heads % 64 == 0 else no(f"heads is {problem.heads}, not 64 k"),
    choose=lambda problem, target: FastConfig(block=problem.heads),
    build=Built,
)
SLOW = attrs.evolve(
    FAST,
    name="slow",
    priority=0,
    config_type=SlowConfig,
    supports=lambda problem, target: YES,
    choose=lambda problem, target: SlowConfig(),
)


@pytest.fixture
def registry():
    registry = Registry()
    registry.register(SLOW)
    registry.register(FAST)
    return registry


def test_the_highest_priority_that_says_yes_is_chosen_whatever_the_order_of_registration(registry):
    assert registry.solutions("decode") == (FAST, SLOW)
    assert registry.select(Asked(64), CPU) is FAST
    assert registry.select(Asked(65), CPU) is SLOW


def test_operations_are_apart(registry):
    assert registry.solutions("prefill") == ()
    with pytest.raises(UnsupportedError):
        registry.select(Asked(64, operation="prefill"), CPU)


def test_a_name_is_registered_once(registry):
    with pytest.raises(ArgumentError, match="solution is 'fast'; allowed: a name not yet registered for decode"):
        registry.register(FAST)


def test_a_solution_by_name(registry):
    assert registry.select(Asked(64), CPU, solution="slow") is SLOW
    with pytest.raises(ArgumentError, match="solution is 'swift'; allowed: None or one of fast, slow"):
        registry.select(Asked(64), CPU, solution="swift")


def test_a_named_solution_that_says_no_is_refused_with_its_reason(registry):
    with pytest.raises(UnsupportedError, match="'fast' cannot serve this decode on cpu: heads is 65, not 64 k"):
        registry.select(Asked(65), CPU, solution="fast")


def test_a_config_names_its_solution(registry):
    assert registry.select(Asked(64), CPU, config=SlowConfig()) is SLOW
    with pytest.raises(UnsupportedError, match="heads is 65"):
        registry.select(Asked(65), CPU, config=FastConfig())


@pytest.mark.parametrize("config", [StrangerConfig(), {"block": 64}, 3])
def test_a_config_of_no_solution_is_refused(registry, config):
    with pytest.raises(ConfigError, match="allowed: None or one of FastConfig, SlowConfig"):
        registry.select(Asked(64), CPU, config=config)


def test_a_config_of_another_solution_than_the_named_one_is_refused(registry):
    with pytest.raises(ConfigError, match="config is SlowConfig; allowed: a FastConfig for 'fast'"):
        registry.select(Asked(64), CPU, solution="fast", config=SlowConfig())


def test_a_program_gets_the_given_config_or_the_solutions_choice(registry):
    assert registry.program(Asked(128), CPU) == Built(Asked(128), CPU, FastConfig(block=128))
    assert registry.program(Asked(128), CPU, config=FastConfig(block=7)).config == FastConfig(block=7)


def test_explanation_shows_each_candidate_once_with_its_reason(registry):
    refused = registry.explain(Asked(65), CPU)
    assert [(row["solution"], row["chosen"]) for row in refused.as_dict()["candidates"]] == [
        ("fast", False),
        ("slow", True),
    ]
    assert refused.as_dict()["candidates"][0]["reason"] == "heads is 65, not 64 k"
    text = str(refused)
    assert text.splitlines()[0] == "decode on cpu"
    assert "heads is 65, not 64 k" in text and "chosen" in text
    both = str(registry.explain(Asked(64), CPU))
    assert "lower priority" in both


def test_explanation_and_selection_agree(registry):
    for heads in range(1, 130):
        chosen = [row.solution for row in registry.explain(Asked(heads), CPU).candidates if row.chosen]
        assert chosen == [registry.select(Asked(heads), CPU)]


def test_where_none_says_yes_the_error_is_the_explanation():
    registry = Registry()
    registry.register(FAST)
    with pytest.raises(UnsupportedError) as caught:
        registry.select(Asked(3), CPU)
    assert str(caught.value) == str(registry.explain(Asked(3), CPU))
