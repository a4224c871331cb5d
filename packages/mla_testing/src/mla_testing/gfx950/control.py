"""Program flow: branches, waits, barriers, and instructions that change nothing the emulator models."""

import re

from .asm import Instruction
from .errors import UnknownInstructionError
from .operands import EXEC, VCC
from .registry import Executor, Labels, instruction


@instruction("s_nop", "s_setprio", "s_sleep", "s_icache_inv", "s_dcache_wb", "s_dcache_inv", "s_ttracedata")
@instruction("s_setreg_imm32_b32", "s_setreg_b32", "s_sethalt", "s_code_end")
def no_effect(item: Instruction, labels: Labels) -> Executor:
    """Timing, cache maintenance and MODE register writes: not modelled."""
    return lambda g: None


@instruction("s_endpgm", "s_barrier")
def stop(item: Instruction, labels: Labels) -> Executor:
    """Handled by the scheduler (see registry.Control)."""
    return lambda g: None


@instruction("s_trap")
def trap(item: Instruction, labels: Labels) -> Executor:
    """A device-side assertion failed."""
    return lambda g: g.fail("the kernel trapped (a device assertion, or an unreachable place)")


@instruction("s_branch")
def branch(item: Instruction, labels: Labels) -> Executor:
    return lambda g: True


@instruction("s_cbranch_scc0")
def branch_scc0(item: Instruction, labels: Labels) -> Executor:
    return lambda g: ~g.scc


@instruction("s_cbranch_scc1")
def branch_scc1(item: Instruction, labels: Labels) -> Executor:
    return lambda g: g.scc


def _branch_on_mask(index: int, when_zero: bool) -> Executor:
    if when_zero:
        return lambda g: (g.s[index] | g.s[index + 1]) == 0
    return lambda g: (g.s[index] | g.s[index + 1]) != 0


@instruction("s_cbranch_vccz")
def branch_vccz(item: Instruction, labels: Labels) -> Executor:
    return _branch_on_mask(VCC, when_zero=True)


@instruction("s_cbranch_vccnz")
def branch_vccnz(item: Instruction, labels: Labels) -> Executor:
    return _branch_on_mask(VCC, when_zero=False)


@instruction("s_cbranch_execz")
def branch_execz(item: Instruction, labels: Labels) -> Executor:
    return _branch_on_mask(EXEC, when_zero=True)


@instruction("s_cbranch_execnz")
def branch_execnz(item: Instruction, labels: Labels) -> Executor:
    return _branch_on_mask(EXEC, when_zero=False)


@instruction("s_waitcnt")
def wait(item: Instruction, labels: Labels) -> Executor:
    """``s_waitcnt vmcnt(n) lgkmcnt(m)``; expcnt counts exports and GDS, which compute kernels do not use."""
    counts = {name: int(value) for name, value in re.findall(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)", item.text)}
    if not counts:
        # The numeric form: vmcnt in bits 3:0 and 15:14, expcnt in 6:4, lgkmcnt in 11:8 (gfx9 encoding).
        if len(item.operands) != 1:
            raise UnknownInstructionError(f"{item}: wait counts are not understood")
        code = int(item.operands[0], 0)
        counts = {"vmcnt": code & 15 | (code >> 14 & 3) << 4, "lgkmcnt": code >> 8 & 15}
    vmcnt, lgkmcnt = counts.get("vmcnt"), counts.get("lgkmcnt")
    return lambda g: g.wait(vmcnt, lgkmcnt)
