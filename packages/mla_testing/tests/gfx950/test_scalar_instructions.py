"""Scalar instructions against definitions on Python integers."""

import itertools

import pytest

from mla_testing.gfx950.operands import EXEC
from mla_testing.gfx950.probe import run

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
EDGES = (0, 1, 2, 31, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678)
EDGES64 = (0, 1, 0x8000000000000000, M64, 0x0123456789ABCDEF)


def s32(x):
    return x - (1 << 32) if x >> 31 else x


def s64(x):
    return x - (1 << 64) if x >> 63 else x


def fits(x):
    return -(2**31) <= x < 2**31


def bits(x, offset, width, size=32):
    return (x >> offset) & ((1 << width) - 1) if width else 0


def sext(x, width):
    return x - (1 << width) if width and x >> (width - 1) else x


# mnemonic -> (a, b, scc) -> (value, scc or None for unchanged)
SOP2 = {
    "s_add_u32": lambda a, b, c: (a + b, a + b > M32),
    "s_add_i32": lambda a, b, c: (a + b, not fits(s32(a) + s32(b))),
    "s_addc_u32": lambda a, b, c: (a + b + c, a + b + c > M32),
    "s_sub_u32": lambda a, b, c: (a - b, b > a),
    "s_sub_i32": lambda a, b, c: (a - b, not fits(s32(a) - s32(b))),
    "s_subb_u32": lambda a, b, c: (a - b - c, b + c > a),
    "s_min_i32": lambda a, b, c: (min(s32(a), s32(b)), s32(a) < s32(b)),
    "s_max_i32": lambda a, b, c: (max(s32(a), s32(b)), s32(a) > s32(b)),
    "s_min_u32": lambda a, b, c: (min(a, b), a < b),
    "s_max_u32": lambda a, b, c: (max(a, b), a > b),
    "s_mul_i32": lambda a, b, c: (a * b, None),
    "s_mul_hi_u32": lambda a, b, c: (a * b >> 32, None),
    "s_mul_hi_i32": lambda a, b, c: (s32(a) * s32(b) >> 32, None),
    "s_lshl1_add_u32": lambda a, b, c: (2 * a + b, 2 * a + b > M32),
    "s_lshl2_add_u32": lambda a, b, c: (4 * a + b, 4 * a + b > M32),
    "s_lshl3_add_u32": lambda a, b, c: (8 * a + b, 8 * a + b > M32),
    "s_lshl4_add_u32": lambda a, b, c: (16 * a + b, 16 * a + b > M32),
    "s_and_b32": lambda a, b, c: (a & b, a & b != 0),
    "s_or_b32": lambda a, b, c: (a | b, a | b != 0),
    "s_xor_b32": lambda a, b, c: (a ^ b, a ^ b != 0),
    "s_andn2_b32": lambda a, b, c: (a & ~b, a & ~b & M32 != 0),
    "s_orn2_b32": lambda a, b, c: (a | ~b, (a | ~b) & M32 != 0),
    "s_nand_b32": lambda a, b, c: (~(a & b), ~(a & b) & M32 != 0),
    "s_nor_b32": lambda a, b, c: (~(a | b), ~(a | b) & M32 != 0),
    "s_xnor_b32": lambda a, b, c: (~(a ^ b), ~(a ^ b) & M32 != 0),
    "s_lshl_b32": lambda a, b, c: (a << b % 32, (a << b % 32) & M32 != 0),
    "s_lshr_b32": lambda a, b, c: (a >> b % 32, a >> b % 32 != 0),
    "s_ashr_i32": lambda a, b, c: (s32(a) >> b % 32, s32(a) >> b % 32 != 0),
    "s_bfm_b32": lambda a, b, c: (((1 << a % 32) - 1) << b % 32, None),
    "s_pack_ll_b32_b16": lambda a, b, c: (a & 0xFFFF | (b & 0xFFFF) << 16, None),
    "s_pack_lh_b32_b16": lambda a, b, c: (a & 0xFFFF | b >> 16 << 16, None),
    "s_pack_hh_b32_b16": lambda a, b, c: (a >> 16 | b >> 16 << 16, None),
    "s_absdiff_i32": lambda a, b, c: (abs(s32(a) - s32(b)), a != b),
}
FIELDS = {
    "s_bfe_u32": lambda a, offset, width: bits(a, offset, width),
    "s_bfe_i32": lambda a, offset, width: sext(bits(a, offset, width), width),
}
SOP2_64 = {
    "s_and_b64": lambda a, b: a & b,
    "s_or_b64": lambda a, b: a | b,
    "s_xor_b64": lambda a, b: a ^ b,
    "s_andn2_b64": lambda a, b: a & ~b,
    "s_orn2_b64": lambda a, b: a | ~b,
    "s_nand_b64": lambda a, b: ~(a & b),
    "s_nor_b64": lambda a, b: ~(a | b),
    "s_xnor_b64": lambda a, b: ~(a ^ b),
}
SHIFTS_64 = {
    "s_lshl_b64": lambda a, b: a << b % 64,
    "s_lshr_b64": lambda a, b: a >> b % 64,
    "s_ashr_i64": lambda a, b: s64(a) >> b % 64,
}
SOP1 = {
    "s_mov_b32": (lambda a: a, False),
    "s_not_b32": (lambda a: ~a, True),
    "s_brev_b32": (lambda a: int(f"{a:032b}"[::-1], 2), False),
    "s_abs_i32": (lambda a: abs(s32(a)), True),
    "s_sext_i32_i8": (lambda a: sext(a & 0xFF, 8), False),
    "s_sext_i32_i16": (lambda a: sext(a & 0xFFFF, 16), False),
    "s_ff1_i32_b32": (lambda a: f"{a:032b}"[::-1].find("1"), False),
    "s_flbit_i32_b32": (lambda a: f"{a:032b}".find("1"), False),
    "s_bcnt1_i32_b32": (lambda a: bin(a).count("1"), True),
}
COMPARE = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
SAVEEXEC = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "andn2": lambda s, e: s & ~e,
    "orn2": lambda s, e: s | ~e,
    "andn1": lambda s, e: ~s & e,
    "orn1": lambda s, e: ~s | e,
    "nand": lambda s, e: ~(s & e),
}
MNEMONICS = {*SOP2, *FIELDS, *SOP2_64, *SHIFTS_64, *SOP1}
MNEMONICS |= {f"s_cmp_{c}_{t}" for c in COMPARE for t in ("i32", "u32")} | {"s_cmp_eq_u64", "s_cmp_lg_u64"}
MNEMONICS |= {f"s_cmpk_{c}_{t}" for c in COMPARE for t in ("i32", "u32")}
MNEMONICS |= {f"s_{name}_saveexec_b64" for name in SAVEEXEC}
MNEMONICS |= {"s_bfe_u64", "s_bfm_b64", "s_mov_b64", "s_not_b64", "s_cselect_b32", "s_cselect_b64", "s_cmov_b32"}
MNEMONICS |= {"s_ff1_i32_b64", "s_bcnt1_i32_b64", "s_bitcmp0_b32", "s_bitcmp1_b32", "s_movk_i32", "s_addk_i32"}
MNEMONICS |= {"s_bfe_i64", "s_bitset0_b32", "s_bitset1_b32", "s_cmov_b64"}
MNEMONICS |= {"s_addk_co_i32", "s_mulk_i32", "s_getreg_b32"}


def pairs64(values):
    return [v & M32 for v in values], [v >> 32 for v in values]


@pytest.mark.parametrize("mnemonic", SOP2)
@pytest.mark.parametrize("carry", [False, True])
def test_two_sources(mnemonic, carry):
    inputs = list(itertools.product(EDGES, EDGES))
    a, b = zip(*inputs, strict=True)
    result = run(f"{mnemonic} s2, s0, s1", s={0: a, 1: b}, scc=carry, waves=len(inputs))
    for wave, (x, y) in enumerate(inputs):
        value, scc = SOP2[mnemonic](x, y, int(carry))
        assert result.s[2, wave] == value & M32, (hex(x), hex(y))
        assert result.scc[wave] == (carry if scc is None else scc), (hex(x), hex(y))


@pytest.mark.parametrize("mnemonic", FIELDS)
def test_bit_fields(mnemonic):
    inputs = [(x, o, w) for x in EDGES for o, w in ((0, 0), (0, 8), (6, 2), (31, 1), (16, 16), (4, 28), (0, 32))]
    a = [x for x, _, _ in inputs]
    result = run(f"{mnemonic} s2, s0, s1", s={0: a, 1: [o | w << 16 for _, o, w in inputs]}, waves=len(inputs))
    for wave, (x, o, w) in enumerate(inputs):
        expected = FIELDS[mnemonic](x, o, w) & M32
        assert result.s[2, wave] == expected, (hex(x), o, w)
        assert result.scc[wave] == (expected != 0)


@pytest.mark.parametrize("mnemonic", SOP2_64)
def test_two_wide_sources(mnemonic):
    inputs = list(itertools.product(EDGES64, EDGES64))
    (a, a_high), (b, b_high) = (pairs64(x) for x in zip(*inputs, strict=True))
    result = run(f"{mnemonic} s[4:5], s[0:1], s[2:3]", s={0: a, 1: a_high, 2: b, 3: b_high}, waves=len(inputs))
    for wave, (x, y) in enumerate(inputs):
        expected = SOP2_64[mnemonic](x, y) & M64
        assert int(result.s[4, wave]) | int(result.s[5, wave]) << 32 == expected
        assert result.scc[wave] == (expected != 0)


@pytest.mark.parametrize("mnemonic", SHIFTS_64)
@pytest.mark.parametrize("amount", [0, 1, 31, 32, 63, 64])
def test_wide_shifts(mnemonic, amount):
    low, high = pairs64(EDGES64)
    result = run(f"{mnemonic} s[4:5], s[0:1], s2", s={0: low, 1: high, 2: amount}, waves=len(EDGES64))
    for wave, x in enumerate(EDGES64):
        assert int(result.s[4, wave]) | int(result.s[5, wave]) << 32 == SHIFTS_64[mnemonic](x, amount) & M64


def test_wide_bit_fields():
    assert run("s_bfm_b64 s[0:1], 8, 40").s[:2, 0].tolist() == [0, 0xFF00]
    result = run("s_bfe_u64 s[4:5], s[0:1], 0x100004", s={0: 0x76543210, 1: 0xFEDCBA98})  # width 16 at bit 4
    assert result.s[4:6, 0].tolist() == [0x4321, 0]
    for constant, expected in (
        (0x080000, 0x10),
        (0x100018, 0xFFFFFFFFFFFF9876),
        (0x400000, 0xFEDCBA9876543210),
        (0, 0),
    ):
        result = run(f"s_bfe_i64 s[4:5], s[0:1], {constant:#x}", s={0: 0x76543210, 1: 0xFEDCBA98})
        assert int(result.s[4, 0]) | int(result.s[5, 0]) << 32 == expected


@pytest.mark.parametrize("mnemonic", SOP1)
def test_one_source(mnemonic):
    function, sets_scc = SOP1[mnemonic]
    result = run(f"{mnemonic} s1, s0", s={0: EDGES}, waves=len(EDGES))
    for wave, x in enumerate(EDGES):
        assert result.s[1, wave] == function(x) & M32, hex(x)
        assert result.scc[wave] == (sets_scc and function(x) & M32 != 0)


def test_wide_to_narrow():
    low, high = pairs64(EDGES64)
    lowest = run("s_ff1_i32_b64 s4, s[0:1]", s={0: low, 1: high}, waves=len(EDGES64))
    assert lowest.s[4].tolist() == [M32, 0, 63, 0, 0]
    ones = run("s_bcnt1_i32_b64 s4, s[0:1]", s={0: low, 1: high}, waves=len(EDGES64))
    assert ones.s[4].tolist() == [0, 1, 1, 64, 32]
    assert ones.scc.tolist() == [False, True, True, True, True]


def test_wide_moves():
    assert run("s_mov_b64 s[0:1], -2").s[:2, 0].tolist() == [0xFFFFFFFE, 0xFFFFFFFF]
    assert run("s_mov_b64 s[0:1], 0x80000000").s[:2, 0].tolist() == [0x80000000, 0]
    result = run("s_not_b64 s[0:1], s[2:3]", s={2: 0xFFFFFFFF, 3: 0xFFFFFFFF})
    assert result.s[:2, 0].tolist() == [0, 0]
    assert not result.scc[0]


@pytest.mark.parametrize("scc", [False, True])
def test_selects(scc):
    assert run("s_cselect_b32 m0, s0, 0x7fffffff", s={0: 5}, scc=scc).s[124, 0] == (5 if scc else 0x7FFFFFFF)
    wide = run("s_cselect_b64 s[4:5], s[0:1], -1", s={0: 1, 1: 2}, scc=scc)
    assert wide.s[4:6, 0].tolist() == ([1, 2] if scc else [M32, M32])
    moved = run("s_cmov_b64 s[0:1], s[2:3]", s={0: 7, 1: 8, 2: 9, 3: 10}, scc=scc)
    assert moved.s[:2, 0].tolist() == ([9, 10] if scc else [7, 8])
    assert run("s_cmov_b32 s0, s1", s={0: 7, 1: 8}, scc=scc).s[0, 0] == (8 if scc else 7)


@pytest.mark.parametrize("condition", COMPARE)
def test_comparisons(condition):
    inputs = list(itertools.product(EDGES, EDGES))
    a, b = zip(*inputs, strict=True)
    unsigned = run(f"s_cmp_{condition}_u32 s0, s1", s={0: a, 1: b}, waves=len(inputs)).scc
    signed = run(f"s_cmp_{condition}_i32 s0, s1", s={0: a, 1: b}, waves=len(inputs)).scc
    for wave, (x, y) in enumerate(inputs):
        assert unsigned[wave] == COMPARE[condition](x, y)
        assert signed[wave] == COMPARE[condition](s32(x), s32(y))


@pytest.mark.parametrize("condition", COMPARE)
def test_comparisons_with_constants(condition):
    # 0x8000 means -32768 to the signed form and 32768 to the unsigned one.
    values = (0, 32767, 32768, 0xFFFF8000, 0xFFFFFFFF)
    signed = run(f"s_cmpk_{condition}_i32 s0, 0x8000", s={0: values}, waves=5).scc
    unsigned = run(f"s_cmpk_{condition}_u32 s0, 0x8000", s={0: values}, waves=5).scc
    assert signed.tolist() == [COMPARE[condition](s32(x), -32768) for x in values]
    assert unsigned.tolist() == [COMPARE[condition](x, 32768) for x in values]


def test_wide_comparisons():
    registers = {0: [1, 1], 1: [2, 2], 2: [1, 1], 3: [2, 3]}
    assert run("s_cmp_eq_u64 s[0:1], s[2:3]", s=registers, waves=2).scc.tolist() == [True, False]
    assert run("s_cmp_lg_u64 s[0:1], s[2:3]", s=registers, waves=2).scc.tolist() == [False, True]


def test_bit_tests():
    assert run("s_bitcmp1_b32 s0, 3", s={0: [8, 7]}, waves=2).scc.tolist() == [True, False]
    assert run("s_bitcmp0_b32 s0, 35", s={0: [8, 7]}, waves=2).scc.tolist() == [False, True]  # bit 35 mod 32


def test_single_bits():
    assert run("s_bitset1_b32 s0, 35", s={0: 1}).s[0, 0] == 9
    assert run("s_bitset0_b32 s0, s1", s={0: 0xFF, 1: 3}).s[0, 0] == 0xF7


def test_constants_of_16_bits():
    assert run("s_movk_i32 s0, 0x8000").s[0, 0] == 0xFFFF8000
    assert run("s_movk_i32 s0, 0x4200").s[0, 0] == 0x4200
    for mnemonic in ("s_addk_i32", "s_addk_co_i32"):
        added = run(f"{mnemonic} s0, 0xffff", s={0: [0, 0x80000000]}, waves=2)
        assert added.s[0].tolist() == [M32, 0x7FFFFFFF]
        assert added.scc.tolist() == [False, True]
    assert run("s_mulk_i32 s0, 0xfffe", s={0: 3}).s[0, 0] == 0xFFFFFFFA
    assert run("s_getreg_b32 s0, hwreg(HW_REG_MODE)", s={0: 3}).s[0, 0] == 0


@pytest.mark.parametrize("name", SAVEEXEC)
def test_exec_manipulation(name):
    mask, old = 0x0000FFFF0000FFFF, 0x00FF00FF00FF00FF
    result = run(f"s_{name}_saveexec_b64 s[2:3], s[0:1]", s={0: mask & M32, 1: mask >> 32}, exec_mask=old)
    assert result.mask(2) == old
    assert result.mask(EXEC) == SAVEEXEC[name](mask, old) & M64
    assert result.scc[0]


def test_empty_exec_clears_scc():
    assert not run("s_and_saveexec_b64 s[2:3], s[0:1]", s={0: 0, 1: 0}, scc=True).scc[0]


def test_partial_writes_of_exec_mask_lanes():
    result = run("s_mov_b32 exec_lo, 1\ns_mov_b32 exec_hi, 0\nv_mov_b32_e32 v1, 7", v={1: 0})
    assert result.v[1][0].tolist() == [7] + [0] * 63
