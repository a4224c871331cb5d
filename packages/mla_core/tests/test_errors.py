"""The hierarchy: what a caller may catch, and what a refusal says."""

import pytest

import mla_core
from mla_core.errors import ArgumentError, CompileError, ConfigError, MLAError, TritonUnavailableError, UnsupportedError


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (ArgumentError, ValueError),
        (ConfigError, ValueError),
        (UnsupportedError, NotImplementedError),
        (TritonUnavailableError, ImportError),
        (CompileError, RuntimeError),
    ],
)
def test_each_is_an_mla_error_and_the_builtin_one_expects(error, builtin):
    assert issubclass(error, MLAError) and issubclass(error, builtin)
    assert getattr(mla_core, error.__name__) is error


def test_argument_error_names_argument_value_and_what_is_allowed():
    error = ArgumentError("page_size", 0, "at least 1")
    assert str(error) == "page_size is 0; allowed: at least 1"
    assert (error.argument, error.value, error.allowed) == ("page_size", 0, "at least 1")
