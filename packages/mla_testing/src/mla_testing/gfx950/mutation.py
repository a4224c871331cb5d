"""Self-test of the checks: break the compiled code on purpose and see whether the emulator notices.

    python -m mla_testing.gfx950.mutation [--sample N]

Mutants of every subject kernel: each ``s_waitcnt`` dropped, and each of its counts raised by one; each ``s_barrier``
dropped; each integer constant of a comparison off by one; each toggle between two buffers undone; each LDS offset
shifted by 16 bytes. A mutant is *caught* when a check raises or when the output differs from the unbroken kernel's by
more than an accuracy test would accept. Survivors are listed with what they changed. Instructions that the inputs never
reach are left alone.
"""

import argparse
import functools
import re
from collections.abc import Callable, Iterator

import attrs
import torch

from mla_testing.emulation import emulate
from mla_testing.gfx950.asm import Instruction, Program, parse
from mla_testing.gfx950.errors import EmulationError
from mla_testing.quiet_exit import silence_leak_report

TOLERANCE = 2e-3  # of the largest magnitude of each output
MAX_JUMPS = 20_000  # a mutant that loops longer than this is stopped (and thereby caught)


@attrs.frozen
class Mutant:
    """One instruction replaced by another."""

    kind: str
    line: int  # of the assembly text
    before: str
    after: str

    def apply(self, asm: str) -> str:
        lines = asm.split("\n")
        lines[self.line - 1] = "\t" + self.after
        return "\n".join(lines)


@attrs.frozen
class Outcome:
    """What became of a mutant."""

    subject: str
    mutant: Mutant
    caught: str  # "" for a survivor, else the check or "output"
    equivalent: str  # for a survivor: why it cannot be noticed, or ""
    source: str


@attrs.frozen
class Subject:
    """A kernel with inputs. ``run`` launches it (and perhaps others) and returns the outputs."""

    name: str
    run: Callable[[], list[torch.Tensor]]
    kernel: str = ""  # name of the kernel to break; the last one launched by default


# ------------------------------------------------------------------ mutants


def mutants(asm: str, kernel: str) -> list[Mutant]:
    return [m for item in parse(asm, kernel).instructions for m in _of(item)]


def _of(item: Instruction) -> Iterator[Mutant]:
    def change(kind: str, after: str) -> Mutant:
        return Mutant(kind, item.line, item.text, after)

    if item.opcode == "s_waitcnt":
        yield change("dropped wait", "s_nop 0")
        for count in re.finditer(r"(vmcnt|lgkmcnt)\((\d+)\)", item.text):
            weaker = f"{count[1]}({int(count[2]) + 1})"
            yield change("weakened wait", item.text[: count.start()] + weaker + item.text[count.end() :])
    elif item.opcode == "s_barrier":
        yield change("dropped barrier", "s_nop 0")
    elif item.opcode.startswith(("v_cmp_", "s_cmp_", "s_cmpk_")):
        for number in re.finditer(r"(?<=, )-?\d+\b(?!:)|(?<=, )0x[0-9a-f]+\b", item.text):
            off = str(int(number[0], 0) + 1)
            yield change("mask off by one", item.text[: number.start()] + off + item.text[number.end() :])
    elif item.opcode == "s_xor_b32" and re.fullmatch(r"0x[0-9a-f]+|[1-9]\d*", item.operands[2]):
        yield change("swapped buffer", f"s_mov_b32 {item.operands[0]}, {item.operands[1]}")
    elif item.opcode.startswith(("ds_read", "ds_write")) and "offset0" not in item.text and "offset1" not in item.text:
        plain = re.sub(r" offset:\d+", "", item.text)
        yield change("LDS offset", f"{plain} offset:{item.number('offset') + 16}")
    elif item.opcode.startswith(("ds_read2", "ds_write2")):
        plain = re.sub(r" offset0:\d+", "", item.text)
        yield change("LDS offset", f"{plain} offset0:{item.number('offset0') + 4}")
    elif item.opcode in ("s_add_i32", "s_add_u32") and item.operands[0] == "m0":
        constant = item.operands[2]
        if re.fullmatch(r"0x[0-9a-f]+|\d+", constant):
            yield change("LDS offset", f"{item.opcode} m0, {item.operands[1]}, {int(constant, 0) + 16}")


# ------------------------------------------------------------------ running them


def examine(subject: Subject, sample: int | None = None) -> list[Outcome]:
    """Run every mutant of a subject, or an evenly spaced ``sample`` of them."""
    with emulate("gfx950", compute_units=4) as session:
        session.max_jumps = MAX_JUMPS
        expected = subject.run()
        record = [r for r in session.launches if subject.kernel in ("", r.name)][-1]
        executed = {line for r in session.launches if r.asm == record.asm for line in r.execution.lines}
        chosen = [m for m in mutants(record.asm, record.name) if m.line in executed]
        if sample is not None and len(chosen) > sample:
            chosen = [chosen[i * len(chosen) // sample] for i in range(sample)]
        program = parse(record.asm, record.name)
        sources = {item.line: item.source for item in program.instructions}
        outcomes = []
        for mutant in chosen:
            session.rewrite = functools.partial(_rewrite, record.asm, mutant)
            try:
                caught = "output" if _differs(subject.run(), expected) else ""
            except EmulationError as error:
                caught = type(error).__name__
            reason = "" if caught else _equivalent(mutant, program)
            outcomes.append(Outcome(subject.name, mutant, caught, reason, sources[mutant.line]))
    return outcomes


def _rewrite(original: str, mutant: Mutant, asm: str) -> str:
    return mutant.apply(asm) if asm == original else asm


def _differs(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    for new, old in zip(found, expected, strict=True):
        bound = TOLERANCE * old.double().abs().max()
        if not bool(((new.double() - old.double()).abs() <= bound).all()):  # also false for NaN
            return True
    return False


def _equivalent(mutant: Mutant, program: Program) -> str:
    """Why the mutant behaves like the original, where a rule can tell; "" otherwise."""
    here = next(i for i, item in enumerate(program.instructions) if item.line == mutant.line)
    if mutant.kind in ("dropped wait", "weakened wait"):
        return _covered_wait(program, here, mutant.after)
    if mutant.kind == "dropped barrier":
        return _doubled_barrier(program, here)
    if mutant.kind == "mask off by one" and re.match(r"v_cmp_eq_u32_e32 vcc, 0, ", mutant.before):
        return "the comparison elects one lane to store what all lanes hold: lane 1 stores the same as lane 0"
    return ""


_MEMORY = ("buffer_", "global_", "flat_", "scratch_", "ds_", "s_load")


_COUNT = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_COUNTED = {"vmcnt": ("buffer_", "global_", "flat_", "scratch_"), "lgkmcnt": ("ds_", "s_load", "flat_")}


def _covered_wait(program: Program, here: int, after: str) -> str:
    """Another wait retires the same operations. (That nothing they fill is used in between is what `strict` checked.)"""
    weaker = dict(_COUNT.findall(after))
    reasons = []
    for counter, count in _COUNT.findall(program.instructions[here].text):
        if weaker.get(counter) == count:
            continue
        reason = _earlier_wait(program, here, counter, int(count)) or _later_wait(program, here, counter, int(count))
        if not reason:
            return ""
        reasons.append(reason)
    return "; ".join(reasons)


def _earlier_wait(program: Program, here: int, counter: str, count: int) -> str:
    for item in reversed(program.instructions[:here]):
        if item.opcode.startswith((*_COUNTED[counter], "s_branch", "s_cbranch")):
            return ""
        if item.opcode == "s_waitcnt" and int(dict(_COUNT.findall(item.text)).get(counter, 99)) <= count:
            return f"`{item.text}` in line {item.line} has retired everything, and nothing was issued since"
    return ""


def _later_wait(program: Program, here: int, counter: str, count: int) -> str:
    issued, position = 0, here + 1
    while position < len(program.instructions):
        item = program.instructions[position]
        position += 1
        if item.opcode == "s_waitcnt" and int(dict(_COUNT.findall(item.text)).get(counter, 99)) <= count + issued:
            return f"`{item.text}` in line {item.line} retires the same operations before anything they fill is used"
        if item.opcode.startswith(_COUNTED[counter]):
            issued += 1
        elif item.opcode == "s_endpgm":
            return "nothing after it depends on it: the wave ends"
        elif item.opcode == "s_branch":
            target = program.labels[item.operands[0]]
            if target < position:
                return ""
            position = target
    return ""


def _doubled_barrier(program: Program, here: int) -> str:
    for direction in (1, -1):
        position = here + direction
        while 0 <= position < len(program.instructions):
            item = program.instructions[position]
            if item.opcode == "s_barrier":
                return f"line {item.line} is another barrier, with no memory access in between"
            if item.opcode.startswith(_MEMORY) or item.opcode.startswith(("s_branch", "s_cbranch", "s_endpgm")):
                break
            position += direction
    return ""


def subjects() -> list[Subject]:
    """The kernels of demo_kernels.py on small random inputs."""
    from mla_testing.gfx950 import demo_kernels as demo

    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    keys, dim, rows = 200, 64, 64
    q, k, v = (normal(n, dim, dtype=torch.bfloat16) for n in (rows, keys, keys))

    def attention(size: int) -> Callable[[], list[torch.Tensor]]:
        def run() -> list[torch.Tensor]:
            results = []
            meta = {"BLOCK_M": rows, "BLOCK_N": 64, "DIM": dim, "NUM_WARPS": rows // size, "MFMA": size}
            for visible in (keys, 1):
                out, lse = torch.empty(rows, dim, dtype=torch.bfloat16), torch.empty(rows)
                demo.attention[(1,)](q, k, v, out, lse, visible, 0.18, **meta, num_warps=rows // size)
                results += [out, lse]
            return results

        return run

    a, b = normal(64, 256, dtype=torch.float16), normal(256, 64, dtype=torch.float16)

    def split_matmul() -> list[torch.Tensor]:
        out = torch.empty(2, 64, 64)
        demo.split_matmul[(2,)](a, b, out, 256, SIZE=64, BLOCK_K=64, NUM_WARPS=4, num_warps=4)
        return [out]

    x = normal(13, 300)

    def row_softmax() -> list[torch.Tensor]:
        out = torch.empty(3, 300)
        demo.row_softmax[(3,)](x, out, 300, BLOCK=512, num_warps=4)
        return [out]

    def ticket_sum() -> list[torch.Tensor]:
        results = []
        for programs in (13, 8, 1):
            out, ticket = torch.empty(300), torch.zeros(1, dtype=torch.int32)
            demo.ticket_sum[(programs,)](x, torch.empty(programs, 300), ticket, out, 300, BLOCK=512, num_warps=4)
            results.append(out)
        return results

    return [
        Subject("attention 16x16", attention(16)),
        Subject("attention 32x32", attention(32)),
        Subject("split_matmul", split_matmul),
        Subject("row_softmax", row_softmax),
        Subject("ticket_sum", ticket_sum),
    ]


# ------------------------------------------------------------------ report


def report(outcomes: list[Outcome]) -> str:
    lines = [f"{'kernel':18}{'mutation':18}{'caught':>8}{'of':>6}"]
    keys = dict.fromkeys((o.subject, o.mutant.kind) for o in outcomes)
    for subject, kind in keys:
        group = [o for o in outcomes if (o.subject, o.mutant.kind) == (subject, kind)]
        lines.append(f"{subject:18}{kind:18}{sum(bool(o.caught) for o in group):8}{len(group):6}")
    survivors = [o for o in outcomes if not o.caught]
    lines.append(f"{len(outcomes) - len(survivors)} of {len(outcomes)} caught")
    for o in survivors:
        lines.append(f"survived: {o.subject}: {o.source}: `{o.mutant.before}` -> `{o.mutant.after}`")
        lines.append(f"          {o.equivalent or 'NOT EXPLAINED'}")
    return "\n".join(lines)


def acceptable(outcomes: list[Outcome]) -> bool:
    """At least 95 % of the mutants that change anything are caught, and every survivor is known to be equivalent."""
    survivors = [o for o in outcomes if not o.caught]
    different = len(outcomes) - sum(bool(o.equivalent) for o in survivors)
    return len(outcomes) - len(survivors) >= 0.95 * different and all(o.equivalent for o in survivors)


def main() -> int:
    """Run the mutants of every subject and print the report; 1 unless the outcome is acceptable."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=int, help="mutants per kernel; all by default")
    options = parser.parse_args()
    silence_leak_report()
    outcomes = [o for subject in subjects() for o in examine(subject, options.sample)]
    print(report(outcomes))
    return 0 if acceptable(outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
