"""`mla explain`: which solution serves a problem and how, and why the others do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import attrs
import typer

import mla_decode  # noqa: F401  (registers its solutions)
import mla_prefill  # noqa: F401  (registers its solutions)
from mla_core import triton_support
from mla_core.compile import compile_kernel
from mla_core.dispatch import Explanation, registry
from mla_core.errors import ArgumentError
from mla_core.target import KIB, Target
from mla_testing.cli.shapes import decode_problem, prefill_problem
from mla_testing.console import make_console, make_table
from mla_testing.operations import check_operation


def explain(
    operation: Annotated[str, typer.Argument(help="decode or prefill.")],
    batch: Annotated[int, typer.Option(min=0, help="Sequences.")] = 64,
    heads: Annotated[int, typer.Option(help="Query heads.")] = 128,
    kv_heads: Annotated[int | None, typer.Option(help="Key heads (prefill); default: heads.")] = None,
    q_len: Annotated[int, typer.Option(min=0, help="New tokens of each sequence (decode).")] = 1,
    seqlen: Annotated[
        int, typer.Option(min=0, help="Longest cached length (decode), or queries of each (prefill).")
    ] = 4096,
    seqlen_kv: Annotated[
        int | None, typer.Option(min=0, help="Keys of each sequence (prefill); default: seqlen.")
    ] = None,
    page_size: Annotated[int, typer.Option(min=1, help="Tokens in a page (decode).")] = 64,
    pool_gib: Annotated[
        float | None, typer.Option(min=0, help="Size of the pool, GiB; default: what the batch fills.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="bf16 or fp16.")] = "bf16",
    causal: Annotated[bool, typer.Option("--causal/--full", help="Mask the keys behind each row, or not.")] = True,
    lse: Annotated[bool, typer.Option("--lse", help="Return the log-sum-exp as well.")] = False,
    target: Annotated[str | None, typer.Option(help="Architecture; default: this machine's.")] = None,
    solution: Annotated[
        str | None, typer.Option(help="Explain this solution's Program instead of the chosen one's.")
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile for registers and shared memory.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> int:
    """Show the dispatch table for a problem, the Config chosen, its grid, splits and shared memory."""
    check_operation(operation)
    machine = Target.current() if target is None else Target.named(target)
    common: dict[str, Any] = {
        "batch": batch,
        "heads": heads,
        "seqlen": seqlen,
        "dtype": dtype,
        "causal": causal,
        "return_lse": lse,
    }
    if operation == "decode":
        _refuse_others("prefill", kv_heads=kv_heads, seqlen_kv=seqlen_kv)
        problem: Any = decode_problem(q_len=q_len, page_size=page_size, pool_gib=pool_gib, **common)
    else:
        _refuse_others("decode", pool_gib=pool_gib)
        problem = prefill_problem(kv_heads=kv_heads, seqlen_kv=seqlen_kv, **common)
    explanation = registry.explain(problem, machine)
    chosen = registry.select(problem, machine, solution=solution)
    config = chosen.choose(problem, machine)
    program = chosen.build(problem, machine, config)
    kernels = compiled_kernels(program, machine) if compiled else []
    if as_json:
        told = {
            **explanation.as_dict(),
            "problem": attrs.asdict(problem),
            "solution": chosen.name,
            "config": json.loads(config.to_json()),
            "program": dict(derived(program)),
            "kernels": kernels,
        }
        print(json.dumps(told, indent=2, default=str))
    else:
        _print(problem, explanation, chosen.name, config, derived(program), kernels)
    return 0


def _refuse_others(operation: str, **values: Any) -> None:
    for name, value in values.items():
        if value is not None:
            raise ArgumentError("--" + name.replace("_", "-"), value, f"given for {operation} only")


def derived(program: Any) -> Mapping[str, Any]:
    """What a Program shows of its derivation: public attributes that are numbers, names or tuples of them."""
    shown: dict[str, Any] = {}
    for name in sorted(dir(program)):
        if name.startswith("_") or name in ("problem", "target", "config"):
            continue
        value = getattr(program, name)
        parts = value if isinstance(value, tuple) else (value,)
        if all(isinstance(part, (int, float, str)) for part in parts):
            shown[name] = value
    return shown


def compiled_kernels(program: Any, target: Target) -> list[dict[str, Any]]:
    """Resources of every kernel of a Program, or none where there is no Triton or no compiler for the target."""
    if triton_support.missing() or not target.is_gpu or target.arch == "generic":
        return []
    rows = []
    for spec in program.kernels():
        report = compile_kernel(spec, target)
        rows.append(
            {
                "kernel": report.name,
                "warps": report.num_warps,
                "registers": report.registers,
                "spills": report.spills + report.scalar_spills,
                "shared_bytes": report.shared_bytes,
                "occupancy": report.occupancy,
            }
        )
    return rows


def _print(
    problem: Any,
    explanation: Explanation,
    name: str,
    config: Any,
    facts: Mapping[str, Any],
    kernels: list[dict[str, Any]],
) -> None:
    console = make_console()
    table = make_table(f"{explanation.operation} on {explanation.target}", ("solution", "", "reason"), ("priority",))
    for row in explanation.as_dict()["candidates"]:
        verdict = "[green]chosen" if row["chosen"] else "yes" if row["supports"] else "[yellow]no"
        table.add_row(row["solution"], verdict, row["reason"], str(row["priority"]))
    console.print(table)
    within = problem.kv.within_2gb if explanation.operation == "decode" else problem.within_2gb
    offsets = "32-bit byte offsets reach all of it" if within else "64-bit addresses are needed"
    console.print("pool" if explanation.operation == "decode" else "q, k, v and out", f": {offsets}", sep="")
    console.print(f"{name}: {config!r}", markup=False)
    for key, value in facts.items():
        console.print(f"  {key:<16} {value}", markup=False)
    if not kernels:
        return
    table = make_table("kernels", ("kernel",), ("warps", "registers", "spills", "shared KiB", "occupancy"))
    for row in kernels:
        shared = f"{row['shared_bytes'] / KIB:.1f}"
        figures = (row["warps"], row["registers"], row["spills"], shared, row["occupancy"])
        table.add_row(row["kernel"], *map(str, figures))
    console.print(table)
