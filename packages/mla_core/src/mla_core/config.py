"""Base of the frozen Configs: how a kernel is done, as one immutable value.

A Config is passed to its kernel as a single `gl.constexpr` (or `tl.constexpr`) argument and read there as
`cfg.block_n`. Triton keys its compile cache on the argument's `repr`, so a Config's repr lists every field and
nothing else: one value, one binary. What varies per call (batch, lengths, table width) never enters a Config.

    @kernel_config
    class MyConfig(KernelConfig):
        block_n: int = attrs.field(default=64, validator=power_of_two)
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Callable
from typing import Any, Self, TypeVar, dataclass_transform

import attrs

from mla_core.errors import ConfigError

C = TypeVar("C", bound=type)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(attrs.field,))
def kernel_config(cls: C) -> C:
    """Class decorator: frozen, keyword-only attrs class with value equality and a stable hash and repr."""
    return attrs.frozen(kw_only=True, slots=True)(cls)


@attrs.frozen(kw_only=True, slots=True)
class KernelConfig:
    """Base of every Config. Subclasses are decorated with `kernel_config` and validate their fields."""

    def evolve(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated anew. Raises ConfigError for an unknown field or bad value."""
        known = [field.name for field in attrs.fields(type(self))]
        for name, value in changes.items():
            if name not in known:
                raise ConfigError(name, value, f"a field of {type(self).__name__}: " + ", ".join(known))
        return attrs.evolve(self, **changes)

    def to_json(self) -> str:
        """The Config as JSON text with its class name; `from_json` is the inverse."""
        return json.dumps(
            {"config": type(self).__name__, **attrs.asdict(self, value_serializer=_plain)}, sort_keys=True
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Rebuilds a Config from `to_json`. Raises ConfigError for the text of another class or with other fields."""
        values = json.loads(text)
        name = values.pop("config", None)
        if name != cls.__name__:
            raise ConfigError("config", repr(name), repr(cls.__name__))
        hints = typing.get_type_hints(cls)
        known = {field.name for field in attrs.fields(cls)}
        for field in values:
            if field not in known:
                raise ConfigError(field, values[field], f"a field of {cls.__name__}: " + ", ".join(sorted(known)))
        return cls(**{field: _rebuild(hints[field], value) for field, value in values.items()})


def _plain(_instance: Any, _field: Any, value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _rebuild(hint: Any, value: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        return None if value is None else _rebuild(options[0], value)
    if isinstance(value, list):
        return tuple(value)
    return hint(value) if isinstance(hint, type) and issubclass(hint, enum.Enum) else value


Validator = Callable[[Any, Any, Any], None]


def power_of_two(_instance: Any, field: Any, value: Any) -> None:
    """attrs validator: a positive power of two."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or value & (value - 1):
        raise ConfigError(field.name, value, "a positive power of two")


def one_of(*allowed: Any) -> Validator:
    """attrs validator: one of the values."""

    def check(_instance: Any, field: Any, value: Any) -> None:
        if value not in allowed:
            raise ConfigError(field.name, value, "one of " + ", ".join(map(str, allowed)))

    return check


def between(low: int, high: int) -> Validator:
    """attrs validator: an int in [low, high]."""

    def check(_instance: Any, field: Any, value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ConfigError(field.name, value, f"an int from {low} to {high}")

    return check
