"""SDWA: an instruction that reads and writes bytes or halves of its registers.

The selected parts are extracted into temporary registers, the plain instruction runs on those, and its result is
merged into the destination.
"""

import re

import attrs
import numpy as np

from .asm import Instruction
from .operands import parse_register, source_u32, strip_modifiers, vgpr
from .registers import TEMPORARIES
from .registry import Builder, Executor, Labels

U32 = np.uint32
_DESTINATION = {"dst_sel", "dst_unused"}
_PARTS = {  # selector -> (first bit, bits)
    "DWORD": (0, 32),
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
    "BYTE_0": (0, 8),
    "BYTE_1": (8, 8),
    "BYTE_2": (16, 8),
    "BYTE_3": (24, 8),
}


def build(item: Instruction, labels: Labels, plain: Builder) -> Executor:
    operands = list(item.operands)
    to_vector = (parse_register(operands[0]) or _NOWHERE).vector
    extractions = []
    for number in range(2):
        selector = item.text_of(f"src{number}_sel")
        if selector is None:
            continue
        # The sources follow the destination, and a carry destination where there is one.
        position = 1 + number + (len(operands) > 3 and operands[1] == "vcc")
        text, extraction = _extract(operands[position], selector, TEMPORARIES[number])
        operands[position] = text
        extractions.append(extraction)
    modifiers = {key: value for key, value in item.modifiers.items() if key not in item.asked | _DESTINATION}
    inner = attrs.evolve(item, encoding="e64", modifiers=modifiers)  # shares item.asked
    if not to_vector:
        item.asked.update(_DESTINATION)
        execute = plain(attrs.evolve(inner, operands=tuple(operands)), labels)
        return _sequence(extractions, execute)
    d, result = vgpr(operands[0]), TEMPORARIES[2]
    operands[0] = f"v{result}"
    execute = plain(attrs.evolve(inner, operands=tuple(operands)), labels)
    merge = _merge(d, result, item.text_of("dst_sel") or "DWORD", item.text_of("dst_unused") or "UNUSED_PAD")
    if "mac" in item.opcode:
        raise ValueError("accumulating SDWA instruction")
    return _sequence(extractions, execute, merge)


@attrs.frozen
class _Nowhere:
    vector: bool = False


_NOWHERE = _Nowhere()


def _sequence(extractions: list[Executor], *rest: Executor) -> Executor:
    steps = (*extractions, *rest)

    def execute(g):
        for step in steps:
            step(g)

    return execute


def _extract(text: str, selector: str, temporary: int) -> tuple[str, Executor]:
    """(operand text that names the temporary, executor that fills it)."""
    negate, absolute, name = strip_modifiers(text)
    signed = re.fullmatch(r"sext\((.*)\)", name)
    source = source_u32(signed[1] if signed else name)
    first, bits = _PARTS[selector]
    shift, unused = U32(first), U32(32 - bits)

    def execute(g):
        part = ((np.asarray(source(g)) >> shift) << unused).view(np.int32 if signed else U32)
        part = part >> part.dtype.type(unused)
        g.v[temporary][...] = part.view(U32)

    replaced = f"v{temporary}"
    replaced = f"|{replaced}|" if absolute else replaced
    return (f"-{replaced}" if negate else replaced), execute


def _merge(d: int, result: int, selector: str, unused: str) -> Executor:
    first, bits = _PARTS[selector]
    shift, mask = U32(first), U32(((1 << bits) - 1) << first)
    sign_bit, above = U32(1 << (first + bits - 1)), U32(0xFFFFFFFF & ~((1 << (first + bits)) - 1))

    def execute(g):
        part = (g.v[result] << shift) & mask
        if unused == "UNUSED_PRESERVE":
            part = part | (g.v[d] & ~mask)
        elif unused == "UNUSED_SEXT":
            part = np.where(part & sign_bit, part | above, part)
        g.write(d, part)

    return execute
