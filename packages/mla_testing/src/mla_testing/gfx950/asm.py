"""Read the AMDGCN text that Triton emits: instructions, labels, kernel source lines, and the kernel's ABI.

Triton hands out LLVM's textual assembly. Three parts matter here: the instructions between the kernel's label and
``.Lfunc_end``; the ``.loc`` comments, which name the line of the kernel an instruction came from; and the
``.amdhsa_*`` directives plus the metadata note, which say how SGPRs and the kernarg segment are initialised. The
ABI differs between Triton versions (3.6 passes the kernarg pointer in s[0:1], 3.9 in s[4:5]), so it is always read.
"""

import re
from collections.abc import Mapping

import attrs

from .errors import EmulationError, UnknownInstructionError

# User SGPRs in the order the hardware fills them, with their size in dwords
# (LLVM AMDGPU usage guide, "Initial Kernel Execution State").
USER_SGPRS = (
    ("private_segment_buffer", 4),
    ("dispatch_ptr", 2),
    ("queue_ptr", 2),
    ("kernarg_segment_ptr", 2),
    ("dispatch_id", 2),
    ("flat_scratch_init", 2),
    ("private_segment_size", 1),
)

_ENCODING = re.compile(r"_(e32|e64|dpp|sdwa)$")
_LOC = re.compile(r"\s*\.loc\s+\d+ \d+ \d+.*?; (.+)$")
_MODIFIER_TOKEN = re.compile(r"[a-z]\w*:\[[^\]]*\]|[^\s]+")
_FLAGS = frozenset(
    ("offen", "idxen", "lds", "sc0", "sc1", "nt", "glc", "slc", "clamp", "gds", "fi", "row_mirror", "row_half_mirror")
)


@attrs.frozen(eq=False)
class Instruction:
    """One machine instruction. ``opcode`` carries no encoding suffix (``v_add_f32_e32`` reads ``v_add_f32``)."""

    opcode: str
    encoding: str
    operands: tuple[str, ...]
    modifiers: Mapping[str, str]
    text: str
    source: str  # "file.py:line:column", plus the inline chain where the compiler gives one
    line: int  # line of the assembly text, counted from 1
    asked: set[str] = attrs.field(factory=set, repr=False)  # modifiers that the builder looked at

    def __str__(self) -> str:
        return f"{self.source}: `{self.text}`"

    def has(self, flag: str) -> bool:
        """Whether a modifier is present."""
        self.asked.add(flag)
        return flag in self.modifiers

    def text_of(self, modifier: str) -> str | None:
        """Text after ``modifier:``, or None."""
        self.asked.add(modifier)
        return self.modifiers.get(modifier)

    def number(self, modifier: str, default: int = 0) -> int:
        """Integer value of ``modifier:value``."""
        self.asked.add(modifier)
        return int(self.modifiers.get(modifier, str(default)), 0)

    def numbers(self, modifier: str, default: list[int]) -> list[int]:
        """Value of ``modifier:[a,b,...]``, padded with the tail of ``default``."""
        self.asked.add(modifier)
        if modifier not in self.modifiers:
            return list(default)
        given = [int(x, 0) for x in self.modifiers[modifier].strip("[]").split(",")]
        return given + list(default[len(given) :])


@attrs.frozen
class KernelArgument:
    """One argument in the kernarg segment."""

    offset: int  # bytes into the kernarg segment
    size: int  # bytes
    kind: str  # "global_buffer", "by_value", "hidden_block_count_x", ...


@attrs.frozen
class Abi:
    """How the hardware starts a wave of this kernel."""

    sgpr_offsets: Mapping[str, int]  # user SGPR name -> first register
    user_sgpr_count: int
    workgroup_id_enabled: tuple[bool, bool, bool]
    kernarg_size: int  # bytes
    arguments: tuple[KernelArgument, ...]
    scratch_bytes: int  # private segment, bytes per lane
    vgpr_count: int  # architectural VGPRs plus AGPRs, as allocated
    sgpr_count: int
    vgpr_spills: int
    sgpr_spills: int
    static_lds_bytes: int
    occupancy: int  # waves per SIMD that the registers allow; 0 when the compiler did not say


@attrs.frozen(eq=False)
class Program:
    """The parsed kernel."""

    name: str
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]  # label -> index of the instruction it stands before
    abi: Abi


def parse(asm: str, name: str) -> Program:
    """Parse kernel ``name`` out of the assembly text ``asm``."""
    start = re.search(rf"^{re.escape(name)}:", asm, re.M)
    if start is None:
        raise EmulationError(f"the assembly text holds no kernel {name!r}")
    end = asm.index(".Lfunc_end", start.end())
    first_line = asm.count("\n", 0, start.end()) + 1
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    source = "?"
    for number, raw in enumerate(asm[start.end() : end].split("\n"), first_line):
        location = _LOC.match(raw)
        if location:
            # Line 0 means "no line": the previous one is the better hint.
            if not re.match(r"[^:]*:0\b", location[1]):
                source = location[1].strip()
            continue
        code = raw.split(";")[0].split("//")[0].strip()
        if not code:
            continue
        if code.endswith(":"):
            labels[code[:-1]] = len(instructions)
        elif not code.startswith("."):
            instructions.append(parse_instruction(code, source, number))
    return Program(name, tuple(instructions), labels, _parse_abi(asm, name))


def parse_instruction(text: str, source: str = "?", line: int = 0) -> Instruction:
    """Parse one line, for example ``buffer_load_dwordx4 v[0:3], v8, s[4:7], 0 offen offset:64``."""
    head, rest = [*re.split(r"\s+", text, maxsplit=1), ""][:2]
    encoding = _ENCODING.search(head)
    opcode = head[: encoding.start()] if encoding else head
    operands = _split_operands(rest.strip())
    modifiers: dict[str, str] = {}
    if operands and opcode != "s_waitcnt" and "(" not in operands[-1].split()[0]:
        tokens = _MODIFIER_TOKEN.findall(operands.pop())
        if not _is_modifier(tokens[0]):
            operands.append(tokens.pop(0))
        for token in tokens:
            key, colon, value = token.partition(":")
            if not _is_modifier(token):
                raise UnknownInstructionError(f"{source}: `{text}`: modifier {token!r} is not understood")
            modifiers[key] = value if colon else "1"
    return Instruction(opcode, encoding[1] if encoding else "", tuple(operands), modifiers, text, source, line)


def _is_modifier(token: str) -> bool:
    return token in _FLAGS or bool(re.match(r"[a-z]\w*:", token))


def _split_operands(text: str) -> list[str]:
    """Split at commas outside brackets and parentheses."""
    operands, depth, current = [], 0, ""
    for char in text:
        depth += (char in "[(") - (char in "])")
        if char == "," and depth == 0:
            operands.append(current.strip())
            current = ""
        else:
            current += char
    return [*operands, current.strip()] if current.strip() else operands


def _parse_abi(asm: str, name: str) -> Abi:
    begin = re.search(rf"\.amdhsa_kernel {re.escape(name)}\s", asm)
    if begin is None:
        raise EmulationError(f"the assembly text holds no .amdhsa_kernel {name}")
    directives = dict(
        re.findall(r"\.amdhsa_(\w+) (\d+)", asm[begin.end() : asm.index(".end_amdhsa_kernel", begin.end())])
    )

    def directive(key: str) -> int:
        return int(directives.get(key, 0))

    def enabled(axis: str) -> bool:
        return bool(directive(f"system_sgpr_workgroup_id_{axis}"))

    offsets, position = {}, 0
    for key, dwords in USER_SGPRS:
        if directive(f"user_sgpr_{key}"):
            offsets[key] = position
            position += dwords
    metadata = asm[asm.index("amdhsa.kernels:") :]
    listed = metadata.split(".group_segment_fixed_size")[0]
    arguments = re.findall(r"\.offset:\s+(\d+)\s+\.size:\s+(\d+)\s+\.value_kind:\s+(\w+)", listed)

    def noted(pattern: str, text: str = asm) -> int:
        found = re.search(pattern, text)
        return int(found[1]) if found else 0

    return Abi(
        sgpr_offsets=offsets,
        user_sgpr_count=directive("user_sgpr_count"),
        workgroup_id_enabled=(enabled("x"), enabled("y"), enabled("z")),
        kernarg_size=directive("kernarg_size"),
        arguments=tuple(KernelArgument(int(offset), int(size), kind) for offset, size, kind in arguments),
        scratch_bytes=directive("private_segment_fixed_size"),
        vgpr_count=directive("next_free_vgpr"),
        sgpr_count=directive("next_free_sgpr"),
        vgpr_spills=noted(r"\.vgpr_spill_count:\s+(\d+)", metadata),
        sgpr_spills=noted(r"\.sgpr_spill_count:\s+(\d+)", metadata),
        static_lds_bytes=directive("group_segment_fixed_size"),
        occupancy=noted(r"; Occupancy: (\d+)"),
    )
