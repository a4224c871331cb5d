"""What every MLA kernel of this project is made of: targets, problems, configs, dispatch, layouts and stages.

This package has no kernel of its own; `mla_decode` and `mla_prefill` do.
"""

from mla_core.config import KernelConfig, kernel_config
from mla_core.dispatch import Explanation, Program, Registry, Solution, Verdict, registry
from mla_core.errors import (
    ArgumentError,
    CompileError,
    ConfigError,
    MLAError,
    TritonUnavailableError,
    UnsupportedError,
)
from mla_core.problem import PagedKV
from mla_core.target import Target

__all__ = [
    "ArgumentError",
    "CompileError",
    "ConfigError",
    "Explanation",
    "KernelConfig",
    "MLAError",
    "PagedKV",
    "Program",
    "Registry",
    "Solution",
    "Target",
    "TritonUnavailableError",
    "UnsupportedError",
    "Verdict",
    "kernel_config",
    "registry",
]
