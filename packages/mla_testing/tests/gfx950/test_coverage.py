"""Every instruction the emulator implements has a unit test, and nothing unknown passes silently."""

import importlib
import sys
from pathlib import Path

import pytest

from mla_testing.gfx950 import EmulationError, UnknownInstructionError
from mla_testing.gfx950.asm import parse, parse_instruction
from mla_testing.gfx950.instruction_set import decode_one, mnemonics
from mla_testing.gfx950.kernel import Kernel
from mla_testing.gfx950.probe import run

HERE = Path(__file__).parent
NO_EFFECT = "s_nop 0|s_setprio 1|s_sleep 1|s_icache_inv|s_dcache_wb|s_dcache_inv|s_ttracedata|s_sethalt 0|s_code_end"
NO_EFFECT += "|s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0|s_setreg_b32 hwreg(HW_REG_MODE), s0"
CONTROL = {"s_trap", "s_endpgm", "s_barrier", "s_branch", "s_waitcnt"}
CONTROL |= {f"s_cbranch_{c}" for c in ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")}


def unit_tested():
    names = CONTROL | {text.split()[0] for text in NO_EFFECT.split("|")}
    for path in HERE.glob("test_*.py"):
        if path.stem != "test_coverage" and "\nMNEMONICS" in path.read_text():
            sys.path.insert(0, str(HERE))
            try:
                names |= importlib.import_module(path.stem).MNEMONICS
            finally:
                sys.path.remove(str(HERE))
    return names


def test_every_instruction_has_a_unit_test():
    assert unit_tested() == mnemonics()


@pytest.mark.parametrize("text", NO_EFFECT.split("|"))
def test_instructions_without_effect(text):
    result = run(f"{text}\ns_mov_b32 s1, 5", s={0: 3})
    assert result.s[:2, 0].tolist() == [3, 5]


@pytest.mark.parametrize(
    ("condition", "setup"),
    [
        ("scc1", "s_cmp_eq_u32 s0, {}"),
        ("scc0", "s_cmp_lg_u32 s0, {}"),
        ("vccz", "s_sub_u32 vcc_lo, s0, {}\ns_mov_b32 vcc_hi, 0"),
        ("vccnz", "s_cmp_eq_u32 s0, {}\ns_cselect_b64 vcc, 1, 0"),
        ("execz", "s_sub_u32 exec_lo, s0, {}\ns_mov_b32 exec_hi, 0"),
        ("execnz", "s_cmp_eq_u32 s0, {}\ns_cselect_b64 exec, 1, 0"),
    ],
)
def test_branches_diverge_wave_by_wave_and_meet_again(condition, setup):
    text = f"{setup.format(2)}\ns_cbranch_{condition} over\ns_mov_b32 s1, 9\nover:\ns_mov_b32 s2, 4\n"
    result = run(text, s={0: [0, 1, 2, 3, 2], 1: 0}, waves=5)
    assert result.s[1].tolist() == [9, 9, 0, 9, 0]
    assert result.s[2].tolist() == [4] * 5
    # Five waves, executed once each: they were one group again after the branch.
    assert result.machine.hits.tolist()[-2:] == [5, 5]


def test_loops_with_different_trip_counts():
    text = "loop:\ns_add_i32 s1, s1, 1\ns_cmp_lt_u32 s1, s0\ns_cbranch_scc1 loop\nv_mov_b32_e32 v0, s1"
    result = run(text, s={0: range(1, 12), 1: 0}, waves=11)
    assert result.v[0][:, 0].tolist() == list(range(1, 12))


def test_traps_raise():
    with pytest.raises(EmulationError, match=r"probe:3.*trapped"):
        run("s_cmp_eq_u32 s0, 1\ns_cbranch_scc0 fine\ns_trap 2\nfine:", s={0: [0, 1]}, waves=2)
    run("s_cmp_eq_u32 s0, 1\ns_cbranch_scc0 fine\ns_trap 2\nfine:", s={0: [0, 2]}, waves=2)


def test_numeric_wait_counts():
    # gfx9: vmcnt in bits 3:0 and 15:14, lgkmcnt in 11:8. 0xc07f waits for LDS only.
    run("ds_read_b32 v1, v0\ns_waitcnt 0xc07f\nv_mov_b32_e32 v2, v1", v={0: 0})


@pytest.mark.parametrize(
    "text",
    [
        "v_frobnicate_b32 v0, v1",
        "v_add_f32_dpp v0, v1, v2 row_wiggle:1 row_mask:0xf bank_mask:0xf",
        "buffer_load_dword v0, v1, s[0:3], 0 idxen",
        "v_mul_lo_u32 v0, v1, v2 clamp",
        "s_cbranch_scc0 nowhere",
        "v_mov_b32_e32 v0, ttmp3",
    ],
)
def test_what_is_not_understood_raises_at_load(text):
    with pytest.raises(UnknownInstructionError, match=text.split()[0].removesuffix("_e64")):
        decode_one(parse_instruction(text, "kernel.py:7:3"), {})


ASM = """
probe:
\t.loc\t1 7 3 prologue_end             ; kernel.py:7:3
\tv_frobnicate_b32 v0, v1
\tv_frobnicate_b32 v1, v1
\t.loc\t1 0 0                          ; kernel.py:0:0
\tv_confuse_b32_e32 v1, v1  ; comment
.LBB0_1:
\ts_endpgm
.Lfunc_end0:
\t.amdhsa_kernel probe
\t\t.amdhsa_user_sgpr_count 16
\t\t.amdhsa_user_sgpr_dispatch_ptr 1
\t\t.amdhsa_user_sgpr_queue_ptr 1
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_system_sgpr_workgroup_id_x 1
\t\t.amdhsa_next_free_vgpr 40
\t.end_amdhsa_kernel
; Occupancy: 5
amdhsa.kernels:
  - .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
    .group_segment_fixed_size: 0
    .vgpr_spill_count: 3
"""


def test_parsing():
    program = parse(ASM, "probe")
    first, _, third, _ = program.instructions
    assert (first.opcode, first.operands, first.source, first.line) == (
        "v_frobnicate_b32",
        ("v0", "v1"),
        "kernel.py:7:3",
        4,
    )
    assert (third.opcode, third.encoding, third.source) == ("v_confuse_b32", "e32", "kernel.py:7:3")
    assert program.labels == {".LBB0_1": 3}
    assert program.abi.sgpr_offsets == {"dispatch_ptr": 0, "queue_ptr": 2, "kernarg_segment_ptr": 4}
    assert program.abi.workgroup_id_enabled == (True, False, False)
    assert (program.abi.vgpr_count, program.abi.occupancy, program.abi.vgpr_spills) == (40, 5, 3)
    assert [(a.offset, a.size, a.kind) for a in program.abi.arguments] == [(0, 8, "global_buffer")]


def test_all_unknown_instructions_of_a_kernel_are_listed_once_with_their_line():
    with pytest.raises(UnknownInstructionError) as caught:
        Kernel.load(ASM, "probe")
    message = str(caught.value)
    assert message.count("v_frobnicate_b32 is not implemented") == 1
    assert "kernel.py:7:3: `v_confuse_b32_e32 v1, v1`" in message


def test_modifiers():
    item = parse_instruction("v_pk_fma_f32 v[0:1], v[2:3], s[4:5], -v[6:7] op_sel:[0,1,0] op_sel_hi:[1,0,1] clamp")
    assert item.operands == ("v[0:1]", "v[2:3]", "s[4:5]", "-v[6:7]")
    assert item.numbers("op_sel", [0, 0, 0]) == [0, 1, 0]
    assert item.has("clamp")
    item = parse_instruction("buffer_load_dwordx4 v0, s[24:27], 0 offen offset:64 lds")
    assert (item.operands, item.number("offset"), item.has("lds")) == (("v0", "s[24:27]", "0"), 64, True)
    assert parse_instruction("buffer_wbl2 sc1").operands == ()
