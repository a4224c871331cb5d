"""Configs: frozen, validated values that survive JSON and name every field in their repr."""

import enum

import attrs
import pytest

from mla_core import ConfigError, KernelConfig, kernel_config
from mla_core.config import between, one_of, power_of_two


class Order(enum.Enum):
    ROWS = "rows"
    COLUMNS = "columns"


@kernel_config
class ExampleConfig(KernelConfig):
    block_n: int = attrs.field(default=64, validator=power_of_two)
    stages: int = attrs.field(default=2, validator=between(1, 4))
    regime: str = attrs.field(default="split", validator=one_of("split", "direct"))
    order: Order = Order.ROWS
    tile: tuple[int, int] = (16, 64)
    splits: int | None = None


@kernel_config
class OtherConfig(KernelConfig):
    block_n: int = 64


def test_equal_values_are_one_cache_entry():
    first, second = ExampleConfig(block_n=32), ExampleConfig().evolve(block_n=32)
    assert first == second and hash(first) == hash(second) and repr(first) == repr(second)
    assert {first: 1}[second] == 1


def test_repr_tells_every_field_apart():
    changes = {"block_n": 128, "stages": 3, "regime": "direct", "order": Order.COLUMNS, "tile": (32, 64), "splits": 4}
    assert set(changes) == {field.name for field in attrs.fields(ExampleConfig)}
    reprs = {repr(ExampleConfig().evolve(**{name: value})) for name, value in changes.items()}
    assert len(reprs | {repr(ExampleConfig())}) == len(changes) + 1


def test_configs_of_two_classes_differ():
    assert ExampleConfig() != OtherConfig()


def test_fields_cannot_be_assigned():
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        ExampleConfig().block_n = 32


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("block_n", 48, "a positive power of two"),
        ("block_n", 0, "a positive power of two"),
        ("block_n", -2, "a positive power of two"),
        ("block_n", True, "a positive power of two"),
        ("block_n", 64.0, "a positive power of two"),
        ("stages", 0, "an int from 1 to 4"),
        ("stages", 5, "an int from 1 to 4"),
        ("regime", "both", "one of split, direct"),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_domain(field, value, allowed):
    for make in (lambda: ExampleConfig(**{field: value}), lambda: ExampleConfig().evolve(**{field: value})):
        with pytest.raises(ConfigError) as caught:
            make()
        assert (caught.value.argument, caught.value.value) == (field, value)
        assert str(caught.value) == f"{field} is {value}; allowed: {allowed}"


def test_unknown_field_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"block_m is 64; allowed: a field of ExampleConfig: block_n, stages"):
        ExampleConfig().evolve(block_m=64)


@pytest.mark.parametrize(
    "config", [ExampleConfig(), ExampleConfig(order=Order.COLUMNS, tile=(1, 2), splits=7, block_n=8)]
)
def test_json_round_trip(config):
    rebuilt = ExampleConfig.from_json(config.to_json())
    assert rebuilt == config and repr(rebuilt) == repr(config)


def test_json_of_another_class_or_with_other_fields_is_refused():
    with pytest.raises(ConfigError, match="config is 'ExampleConfig'; allowed: 'OtherConfig'"):
        OtherConfig.from_json(ExampleConfig().to_json())
    text = ExampleConfig().to_json().replace('"stages"', '"stage"')
    with pytest.raises(ConfigError, match="stage is 2; allowed: a field of ExampleConfig"):
        ExampleConfig.from_json(text)
    with pytest.raises(ConfigError, match="block_n is 3"):
        ExampleConfig.from_json(ExampleConfig().to_json().replace("64,", "3,", 1))


def test_a_config_is_one_constexpr_argument():
    triton = pytest.importorskip("triton")
    constexpr = triton.language.constexpr
    assert constexpr(ExampleConfig()).value == ExampleConfig()
    assert repr(constexpr(ExampleConfig(block_n=32))) == repr(constexpr(ExampleConfig().evolve(block_n=32)))
