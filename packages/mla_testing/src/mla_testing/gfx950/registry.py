"""The instruction set as a table: mnemonic -> builder.

A *builder* looks at one parsed instruction and returns an *executor*, a function of the wave group that performs it.
All parsing happens in the builder, once; the executor only touches arrays. Each instruction family registers its
builders with :func:`instruction`; :func:`decode` turns a program into steps and refuses whatever is not in the table.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import attrs

from .asm import Instruction, Program
from .errors import UnknownInstructionError
from .operands import Registers, used_registers

Executor = Callable[..., Any]  # group -> None, or which waves branch
Builder = Callable[["Instruction", "Labels"], Executor]
Labels = dict[str, int]

_BUILDERS: dict[str, Builder] = {}


class Control(IntEnum):
    """What the scheduler does after a step."""

    NEXT = 0  # fall through
    BRANCH = 1  # the executor returns which waves jump, as bool[waves] or one bool
    BARRIER = 2
    END = 3


def instruction(*mnemonics: str) -> Callable[[Builder], Builder]:
    """Register a builder for the given mnemonics (encoding suffixes removed)."""

    def register(builder: Builder) -> Builder:
        for mnemonic in mnemonics:
            if mnemonic in _BUILDERS:
                raise ValueError(f"{mnemonic} is registered twice")
            _BUILDERS[mnemonic] = builder
        return builder

    return register


def mnemonics() -> frozenset[str]:
    """Every mnemonic the emulator implements."""
    return frozenset(_BUILDERS)


@attrs.frozen(eq=False)
class Step:
    """One decoded instruction."""

    instruction: Instruction
    execute: Executor
    uses: Registers  # registers that must not have a load outstanding
    control: Control
    target: int  # of a branch; -1 otherwise
    category: str  # "mfma", "valu", ... (see :func:`category_of`)


def decode(program: Program) -> tuple[Step, ...]:
    """Decode every instruction of ``program``; raises UnknownInstructionError naming all that are not implemented."""
    steps: list[Step] = []
    unknown: dict[str, str] = {}  # mnemonic -> complaint about its first use
    for item in program.instructions:
        try:
            steps.append(decode_one(item, dict(program.labels)))
        except UnknownInstructionError as error:
            unknown.setdefault(item.opcode, str(error))
    if unknown:
        listing = "\n  ".join(unknown.values())
        raise UnknownInstructionError(f"kernel {program.name} uses instructions the emulator lacks:\n  {listing}")
    return tuple(steps)


# Cache policy, DPP's fetch of inactive lanes (which the emulator always does), and "no SGPR base".
WITHOUT_MEANING = frozenset(("sc0", "sc1", "nt", "glc", "slc", "fi", "off"))


def decode_one(item: Instruction, labels: Labels) -> Step:
    """Decode one instruction; raises UnknownInstructionError naming it and its source line."""
    from . import sdwa

    builder = _BUILDERS.get(item.opcode)
    if builder is None:
        raise UnknownInstructionError(f"{item}: {item.opcode} is not implemented")
    try:
        execute = sdwa.build(item, labels, builder) if item.encoding == "sdwa" else builder(item, labels)
        if ignored := set(item.modifiers) - item.asked - WITHOUT_MEANING:
            raise ValueError(f"modifiers {sorted(ignored)}")
        target = labels[item.operands[0]] if item.opcode.startswith(("s_branch", "s_cbranch")) else -1
    except (UnknownInstructionError, KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise UnknownInstructionError(f"{item}: this form is not implemented ({error})") from error
    control = Control.NEXT
    if item.opcode == "s_endpgm":
        control = Control.END
    elif item.opcode == "s_barrier":
        control = Control.BARRIER
    elif target >= 0:
        control = Control.BRANCH
    return Step(item, execute, used_registers(item), control, target, category_of(item.opcode))


_TRANSCENDENTAL = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")


def category_of(opcode: str) -> str:
    """Class an instruction is counted under."""
    if "mfma" in opcode:
        return "mfma"
    if opcode.startswith(_TRANSCENDENTAL):
        return "transcendental"
    if opcode.startswith("v_"):
        return "valu"
    if opcode.startswith("ds_"):
        return "lds"
    if opcode.startswith(("buffer_", "global_", "flat_", "scratch_")):
        return "vmem"
    if opcode == "s_barrier":
        return "barrier"
    if opcode.startswith(("s_waitcnt", "s_nop", "s_sleep", "s_setprio")):
        return "wait"
    if opcode.startswith("s_load"):
        return "smem"
    return "salu"
