"""`python -m mla_testing.demo`: a decode step and a prefill of a DeepSeek-V3-shaped layer, on what this machine has.

Each case runs through the public API, is compared with float64, and shows the solution that dispatch chose. On a GPU
the times are those of graph replays with cold caches; without one the gfx950 kernels are compiled and emulated, and the
time is the emulator's, which says nothing about the hardware's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial

import attrs
import torch
from rich.markup import escape

from mla_core.dispatch import registry
from mla_testing.accuracy import Accuracy, compare
from mla_testing.console import make_console, make_progress, make_table
from mla_testing.machine import Machine
from mla_testing.operations import Inputs, call, problem_of
from mla_testing.paged_cache import paged_cache
from mla_testing.quiet_exit import silence_leak_report
from mla_testing.varlen import varlen


@attrs.frozen(kw_only=True)
class DemoCase:
    """One call of one operation.

    Attributes:
        operation: `decode` or `prefill`.
        heads: query heads; 128 is DeepSeek-V3's layer on one device, 16 the same layer over 8 devices.
        seqlens: cached keys of each request, or tokens of each prompt.
        q_len: new tokens of each request (decode).
    """

    operation: str
    heads: int
    seqlens: tuple[int, ...]
    q_len: int = 1

    @property
    def sizes(self) -> str:
        """The case in a few characters, as the table's column says."""
        low, high = min(self.seqlens), max(self.seqlens)
        lengths = f"{high}" if low == high else f"{low}..{high}"
        new = f" x {self.q_len}" if self.operation == "decode" else ""
        return f"{len(self.seqlens)} x {lengths}{new} x {self.heads}"

    def inputs(self, device: str) -> Inputs:
        """Random tensors with poison wherever a kernel must not look."""
        if self.operation == "decode":
            return paged_cache(seqlens=self.seqlens, heads=self.heads, q_len=self.q_len, device=device)
        return varlen(seqlens=[(n, n) for n in self.seqlens], heads=self.heads, device=device)


def cases(machine: Machine) -> list[DemoCase]:
    """Sizes that take seconds: those of a server on a GPU, of a few tiles in the emulator, of a CPU otherwise."""
    if machine.emulated:
        decode = [(16, (1000,), 1), (128, (1, 190, 65), 1), (16, (130, 64), 2)]
        prefill = [(2, (200,)), (1, (1, 130, 65))]
    elif machine.target.is_gpu:
        decode = [(128, (4096,) * 64, 1), (16, (8192,) * 8, 1), (128, tuple(range(1024, 4097, 48)), 2)]
        prefill = [(128, (4096,)), (16, (1024,) * 8)]
    else:
        decode = [(128, (1, 190, 1000), 1), (16, (4096,), 1), (128, (130, 64), 2)]
        prefill = [(16, (500,)), (8, (1, 130, 65))]
    rows = [DemoCase(operation="decode", heads=heads, seqlens=lens, q_len=q_len) for heads, lens, q_len in decode]
    return rows + [DemoCase(operation="prefill", heads=heads, seqlens=lens) for heads, lens in prefill]


@attrs.frozen(kw_only=True)
class DemoResult:
    """What one case gave: the solution that served it, its errors against float64, and its time in seconds."""

    solution: str
    accuracy: Accuracy
    seconds: float


def run(case: DemoCase, machine: Machine) -> DemoResult:
    """Runs one case on the current machine and compares it with float64."""
    inputs = case.inputs(machine.device)
    problem = problem_of(inputs, return_lse=True)
    solution = registry.select(problem, machine.target).name
    start = time.perf_counter()
    out, lse = call(inputs, return_lse=True)
    seconds = time.perf_counter() - start
    expected, expected_lse = inputs.expected
    accuracy = compare(out, expected, lse, expected_lse)
    if machine.device == "cuda":
        from mla_testing.bench.timing import GraphTimer

        seconds = GraphTimer().median_us(partial(call, inputs, return_lse=True)) * 1e-6
    return DemoResult(solution=solution, accuracy=accuracy, seconds=seconds)


def spell_time(seconds: float) -> str:
    """Microseconds, milliseconds or seconds, whichever reads best."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs every case and prints the table. Returns 0, or 1 where any case failed."""
    parser = argparse.ArgumentParser(
        prog="mla_testing.demo", description="A decode step and a prefill on this machine."
    )
    parser.add_argument("--cpu", action="store_true", help="plain torch on the CPU, even where a GPU is")
    options = parser.parse_args(arguments)
    if arguments is None:
        silence_leak_report()
    machine = Machine.cpu() if options.cpu else Machine.best()
    console = make_console()
    console.print(f"MLA on {machine.versions()}")
    title = "bf16 against float64; sizes: batch x keys (x new tokens) x heads"
    table = make_table(title, ("operation", "size", "solution"), ("relative RMS", "worst row", "LSE error", "time"))
    failures: list[str] = []
    rows = cases(machine)
    with torch.no_grad(), machine.session(), make_progress(console) as progress:
        task = progress.add_task("", total=len(rows))
        for case in rows:
            progress.update(task, description=f"{case.operation} {case.sizes}")
            try:
                result = run(case, machine)
            except Exception as error:  # whatever a kernel or the emulator raises is the case's result
                failures.append(f"{case.operation} {case.sizes}: {type(error).__name__}: {error}")
                table.add_row(case.operation, case.sizes, "", "[red]failed", "", "", "")
            else:
                accuracy = result.accuracy
                if not accuracy.ok:
                    failures.append(f"{case.operation} {case.sizes}: {accuracy}")
                mark = "" if accuracy.ok else "[red]"
                table.add_row(
                    case.operation, case.sizes, result.solution, f"{mark}{accuracy.relative_rms:.1e}",
                    f"{mark}{accuracy.row:.1e}", f"{mark}{accuracy.lse:.0e}", spell_time(result.seconds),
                )  # fmt: skip
            progress.advance(task)
    console.print(table)
    if machine.emulated:
        console.print("Times are the emulator's, compilation included; they say nothing about the hardware's.")
    for failure in failures:
        console.print("[red]failed:[/]", escape(failure))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
