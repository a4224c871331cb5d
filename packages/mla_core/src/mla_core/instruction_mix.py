"""Loops and instruction classes of compiled kernels, read from their assembly."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Mapping

import attrs

CDNA_CLASSES: tuple[tuple[str, str], ...] = (
    ("mfma", r"v_(s?)mfma_"),
    ("trans", r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_"),
    ("lds", r"ds_"),
    ("vmem", r"(buffer|global|flat|scratch)_"),
    ("barrier", r"s_barrier"),
    ("wait/nop", r"s_(waitcnt|nop|sleep)"),
    ("valu", r"v_"),
    ("salu", r"s_"),
)
"""Class of a gfx950 instruction by the start of its mnemonic; the first match counts."""

HOPPER_CLASSES: tuple[tuple[str, str], ...] = (
    ("mma", r"(HGMMA|QGMMA|IGMMA|HMMA|WARPGROUP)"),
    ("trans", r"MUFU"),
    ("shared", r"(LDS|STS|LDSM|STSM)"),
    ("global", r"(LDG|STG|UTMA|LDGSTS|RED|ATOM)"),
    ("local", r"(LDL|STL)"),
    ("barrier", r"(BAR|SYNCS|DEPBAR)"),
    ("float", r"(F[A-Z0-9]+|H[A-Z0-9]+2)"),
    ("other", r""),
)
"""Class of a Hopper instruction (SASS) by the start of its mnemonic; the first match counts."""


@attrs.frozen
class Loop:
    """One loop of a kernel: its label, its instructions in order, and how many of each class."""

    label: str
    instructions: tuple[str, ...]
    mix: Mapping[str, int]

    @property
    def total(self) -> int:
        """Instructions of all classes."""
        return len(self.instructions)

    @property
    def matrix(self) -> int:
        """Matrix instructions."""
        return self.mix.get("mfma", 0) + self.mix.get("mma", 0)


def loops(asm: str) -> list[Loop]:
    """Every backward branch of an amdgcn or SASS text with the instructions that it spans, in order of the text."""
    cdna = "amdgcn" in asm or "amdhsa" in asm
    classes = CDNA_CLASSES if cdna else HOPPER_CLASSES
    code: list[str] = []
    labels: dict[str, int] = {}
    found: list[Loop] = []
    for kind, value in _scan_cdna(asm) if cdna else _scan_sass(asm):
        if kind == "label":
            labels[value] = len(code)
            continue
        code.append(value)
        branch = re.match(r"(?:s_c?branch\w*\s+(\.\w+))|(?:BRA.*`\((\.\w+)\))", value)
        label = branch and (branch[1] or branch[2])
        if label in labels:
            body = tuple(code[labels[label] :])
            found.append(Loop(label, body, count(body, classes)))
    return found


def hot_loop(asm: str) -> Loop | None:
    """The steady loop: the innermost loop with the most matrix instructions; None where no loop has any."""
    candidates = [loop for loop in loops(asm) if loop.matrix]
    inner = [loop for loop in candidates if not any(other is not loop and _inside(other, loop) for other in candidates)]
    return max(inner, key=lambda loop: loop.matrix, default=None)


def count(instructions: tuple[str, ...], classes: tuple[tuple[str, str], ...]) -> dict[str, int]:
    """How many instructions fall in each class."""
    mix: collections.Counter[str] = collections.Counter()
    for instruction in instructions:
        mix[next(name for name, pattern in classes if re.match(pattern, instruction))] += 1
    return dict(mix)


def _inside(inner: Loop, outer: Loop) -> bool:
    joined, part = "\n".join(outer.instructions), "\n".join(inner.instructions)
    return len(inner.instructions) < len(outer.instructions) and part in joined


def _scan_cdna(asm: str) -> Iterator[tuple[str, str]]:
    for line in asm.splitlines():
        text = line.split(";")[0].strip()
        label = re.match(r"(\.LBB\w+):", text)
        if label:
            yield "label", label[1]
        elif re.match(r"(s_|v_|ds_|buffer_|global_|flat_|scratch_)", text):
            yield "code", text


def _scan_sass(sass: str) -> Iterator[tuple[str, str]]:
    for line in sass.splitlines():
        label = re.match(r"\s*(\.L_x_\d+):", line)
        if label:
            yield "label", label[1]
            continue
        code = re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ +)?([A-Z][^;]*);", line)
        if code:
            yield "code", code[1].strip()
