"""Command line of the contract suites: `python -m mla_testing.suites`."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable

import attrs

from mla_core import registry
from mla_core.errors import ArgumentError
from mla_testing.machine import Machine
from mla_testing.suites import CHECKS, OPERATIONS, SUBSETS, Case, Report, cases, find, run_case
from mla_testing.suites.runners import EmulatedRunner


def main(arguments: list[str] | None = None) -> int:
    """Runs what the arguments name; 0 where at least one case ran and none failed."""
    parser = argparse.ArgumentParser(prog="python -m mla_testing.suites", description="Runs the contract suites.")
    parser.add_argument("--operation", choices=tuple(OPERATIONS), help="default: both")
    parser.add_argument("--subset", choices=SUBSETS, default="smoke")
    parser.add_argument("--case", action="append", help="run this case only (may be repeated)")
    parser.add_argument("--solution", action="append", help="default: every registered one")
    parser.add_argument("--device", default="cpu", help="torch device (default cpu), or gfx950 to emulate one")
    parser.add_argument("--list", action="store_true", help="print the ids and stop")
    parser.add_argument("--serve", action="store_true", help="answer JSON requests on stdin, line by line")
    options = parser.parse_args(arguments)
    if options.serve:
        return serve()
    try:
        chosen = [find(case_id) for case_id in options.case or ()]
    except ArgumentError as error:
        parser.error(str(error))
    if not chosen:
        operations = [options.operation] if options.operation else list(OPERATIONS)
        chosen = [case for operation in operations for case in cases(operation, options.subset)]
    emulator = Machine.emulator()
    run: Callable[[Case, str], Report] = functools.partial(run_case, device=options.device)
    if emulator is not None and options.device == emulator.target.arch:
        run = EmulatedRunner(emulator, checks=tuple(CHECKS)).run
    ran = failed = 0
    for case in chosen:
        if options.list:
            print(case.id)
            continue
        for solution in options.solution or [entry.name for entry in registry.solutions(case.operation)]:
            report = run(case, solution)
            print(report, flush=True)
            ran += not report.skipped
            failed += not report.ok
    if options.list:
        return 0
    print(f"{ran} ran, {failed} failed")
    return 1 if failed or not ran else 0


def serve() -> int:
    """Answers requests `{"case", "solution", "device"}` with reports, a JSON line each: a test session's worker."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what a kernel prints must not mix with the answers
    for line in sys.stdin:
        request = json.loads(line)
        report = run_case(find(request["case"]), request["solution"], request["device"])
        print(json.dumps(attrs.asdict(report)), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
