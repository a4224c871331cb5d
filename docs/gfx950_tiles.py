"""Compiles the gfx950 prefill kernel with other tiles than the chosen one and prints what each costs.

`python docs/gfx950_tiles.py`; needs Triton 3.9 and no GPU.
"""

from __future__ import annotations

import attrs

from mla_core import Target, registry
from mla_core.compile import compile_kernel
from mla_core.instruction_mix import hot_loop
from mla_prefill import PrefillProblem
from mla_prefill.cdna4.program import scheduling_options
from mla_testing.quiet_exit import silence_leak_report

TARGET = Target.named("gfx950")

PROBLEM = PrefillProblem.make(batch=4, seqlen=4096, heads=16, return_lse=True)

NO_ACCUMULATION_REGISTERS = ("amdgpu-agpr-alloc", "0")
"""LLVM attribute: all of a wave's registers are VGPRs. Two waves a SIMD have 256 registers each; without it, 128 and 128."""


@attrs.frozen
class Tile:
    """What the kernel reads of a Config."""

    block_m: int
    block_n: int


TILES = (
    # queries, keys, waves, scheduling strategy, further LLVM attributes
    (128, 64, 4, "iterative-ilp", ()),
    (128, 64, 4, "", ()),
    (128, 32, 4, "iterative-ilp", ()),
    (256, 64, 8, "iterative-ilp", (NO_ACCUMULATION_REGISTERS,)),
    (256, 64, 8, "iterative-minreg", (NO_ACCUMULATION_REGISTERS,)),
    (256, 64, 4, "", ()),
    (256, 32, 4, "", ()),
)


def main() -> None:
    """Prints a row a tile, the chosen one first."""
    silence_leak_report()
    (spec,) = registry.program(PROBLEM, TARGET, solution="cdna4").kernels()
    print("tile      waves  strategy          LDS KiB  registers  spills  a matrix instruction: others")
    for queries, keys, waves, strategy, attributes in TILES:
        chosen = scheduling_options(strategy).get("llvm_fn_attrs", ())
        tried = attrs.evolve(
            spec,
            constexprs={**spec.constexprs, "cfg": Tile(queries, keys)},
            num_warps=waves,
            options={"llvm_fn_attrs": (*chosen, *attributes)},
        )
        report = compile_kernel(tried, TARGET)
        loop = hot_loop(report.assembly)
        assert loop is not None
        others = (loop.total - loop.matrix) / loop.matrix
        print(
            f"{queries:3} x {keys:2}  {waves:5}  {strategy or 'default':16}  {report.shared_bytes / 1024:7.1f}"
            f"  {report.registers:9}  {report.spills:6}  {others:28.2f}"
        )


if __name__ == "__main__":
    main()
