"""Integer vector instructions against definitions on Python integers, lane by lane."""

import itertools

import numpy as np
import pytest

from mla_testing.gfx950.probe import run

M16, M32, M64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
EDGES = (0, 1, 5, 31, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x89ABCDEF)


def s32(x):
    return x - (1 << 32) if x >> 31 else x


def s16(x):
    return (x & M16) - (1 << 16) if x >> 15 & 1 else x & M16


def s24(x):
    return (x & 0xFFFFFF) - (1 << 24) if x >> 23 & 1 else x & 0xFFFFFF


def field(x, offset, width):
    return (x >> offset) & ((1 << width) - 1)


def signed_field(x, offset, width):
    value = field(x, offset, width)
    return value - (1 << width) if width and value >> (width - 1) else value


def perm(a, b, selector):
    """Byte i of the result: byte sel[i] of {a, b}; 8..11: sign of bytes 1, 3, 5, 7; 12: 0x00; above: 0xff."""
    data = b.to_bytes(4, "little") + a.to_bytes(4, "little")
    out = []
    for code in selector.to_bytes(4, "little"):
        if code < 8:
            out.append(data[code])
        elif code < 12:
            out.append(0xFF if data[2 * (code - 8) + 1] & 0x80 else 0)
        else:
            out.append(0 if code == 12 else 0xFF)
    return int.from_bytes(bytes(out), "little")


ONE = {
    "v_mov_b32": lambda a: a,
    "v_not_b32": lambda a: ~a,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbl_b32": lambda a: f"{a:032b}"[::-1].find("1"),
    "v_ffbh_u32": lambda a: f"{a:032b}".find("1"),
    "v_accvgpr_write_b32": lambda a: a,
    "v_accvgpr_read_b32": lambda a: a,
    "v_accvgpr_mov_b32": lambda a: a,
}
TWO = {
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b32": lambda a, b: b << a % 32,
    "v_lshrrev_b32": lambda a, b: b >> a % 32,
    "v_ashrrev_i32": lambda a, b: s32(b) >> a % 32,
    "v_max_u32": max,
    "v_min_u32": min,
    "v_max_i32": lambda a, b: max(s32(a), s32(b)),
    "v_min_i32": lambda a, b: min(s32(a), s32(b)),
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: s32(a) * s32(b) >> 32,
    "v_mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mul_hi_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32,
    "v_mul_i32_i24": lambda a, b: s24(a) * s24(b),
    "v_bcnt_u32_b32": lambda a, b: bin(a).count("1") + b,
    "v_bfm_b32": lambda a, b: ((1 << a % 32) - 1) << b % 32,
    "v_add_u16": lambda a, b: (a + b) & M16,
    "v_sub_u16": lambda a, b: (a - b) & M16,
    "v_mul_lo_u16": lambda a, b: (a * b) & M16,
    "v_lshlrev_b16": lambda a, b: (b << a % 16) & M16,
    "v_max_u16": lambda a, b: max(a & M16, b & M16),
    "v_min_u16": lambda a, b: min(a & M16, b & M16),
    "v_max_i16": lambda a, b: max(s16(a), s16(b)) & M16,
    "v_min_i16": lambda a, b: min(s16(a), s16(b)) & M16,
    "v_ashrrev_i16": lambda a, b: s16(b) >> a % 16 & M16,
    "v_lshrrev_b16": lambda a, b: (b & M16) >> a % 16,
}
THREE = {
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xor3_b32": lambda a, b, c: a ^ b ^ c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_lshl_or_b32": lambda a, b, c: a << b % 32 | c,
    "v_lshl_add_u32": lambda a, b, c: (a << b % 32) + c,
    "v_add_lshl_u32": lambda a, b, c: ((a + b) & M32) << c % 32,
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_max3_u32": lambda a, b, c: max(a, b, c),
    "v_min3_u32": lambda a, b, c: min(a, b, c),
    "v_max3_i32": lambda a, b, c: max(s32(a), s32(b), s32(c)),
    "v_min3_i32": lambda a, b, c: min(s32(a), s32(b), s32(c)),
    "v_med3_i32": lambda a, b, c: sorted((s32(a), s32(b), s32(c)))[1],
    "v_med3_u32": lambda a, b, c: sorted((a, b, c))[1],
    "v_mad_u16": lambda a, b, c: (a * b + c) & M16,
    "v_mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_mad_i32_i24": lambda a, b, c: s24(a) * s24(b) + s32(c),
    "v_bfe_u32": lambda a, b, c: field(a, b % 32, c % 32),
    "v_bfe_i32": lambda a, b, c: signed_field(a, b % 32, c % 32),
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> c % 32,
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c % 4),
    "v_perm_b32": perm,
}
CARRY = {  # exact result; the mask receives the carry or borrow
    "v_add_co_u32": lambda a, b, c: a + b,
    "v_sub_co_u32": lambda a, b, c: a - b,
    "v_subrev_co_u32": lambda a, b, c: b - a,
    "v_addc_co_u32": lambda a, b, c: a + b + c,
    "v_subb_co_u32": lambda a, b, c: a - b - c,
    "v_subbrev_co_u32": lambda a, b, c: b - a - c,
}
COMPARE = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}
TYPES = {"u32": lambda x: x, "i32": s32, "u16": lambda x: x & M16, "i16": s16}
MNEMONICS = {*ONE, *TWO, *THREE, *CARRY, "v_bitop3_b32", "v_mov_b64", "v_lshl_add_u64", "v_lshlrev_b64"}
MNEMONICS |= {"v_lshrrev_b64", "v_ashrrev_i64", "v_mad_u64_u32", "v_mad_i64_i32", "v_cndmask_b32"}
MNEMONICS |= {f"v_{k}_{c}_{t}" for k in ("cmp", "cmpx") for c in COMPARE for t in (*TYPES, "u64", "i64")}

PAIRS = list(itertools.product(EDGES, EDGES))  # 64 lanes
TRIPLES = np.array(list(itertools.product(EDGES, EDGES, EDGES))).reshape(8, 64, 3)  # 8 waves


@pytest.mark.parametrize("mnemonic", ONE)
def test_one_source(mnemonic):
    lanes = [EDGES[i % 8] for i in range(64)]
    if mnemonic == "v_accvgpr_write_b32":
        found = run(f"{mnemonic} a1, v0", v={0: lanes}).a[1]
    elif mnemonic == "v_accvgpr_read_b32":
        found = run(f"{mnemonic} v1, a0", a={0: lanes}).v[1]
    elif mnemonic == "v_accvgpr_mov_b32":
        found = run(f"{mnemonic} a1, a0", a={0: lanes}).a[1]
    else:
        found = run(f"{mnemonic}_e32 v1, v0", v={0: lanes}).v[1]
    assert found[0].tolist() == [ONE[mnemonic](x) & M32 for x in lanes]


@pytest.mark.parametrize("mnemonic", TWO)
def test_two_sources(mnemonic):
    a, b = zip(*PAIRS, strict=True)
    found = run(f"{mnemonic}_e64 v2, v0, v1", v={0: a, 1: b}).v[2]
    assert found[0].tolist() == [TWO[mnemonic](x, y) & M32 for x, y in PAIRS]


@pytest.mark.parametrize("mnemonic", THREE)
def test_three_sources(mnemonic):
    a, b, c = (TRIPLES[:, :, i] for i in range(3))
    found = run(f"{mnemonic} v3, v0, v1, v2", v={0: a, 1: b, 2: c}, waves=8).v[3]
    for wave, lane in np.ndindex(8, 64):
        x, y, z = (int(n) for n in TRIPLES[wave, lane])
        assert found[wave, lane] == THREE[mnemonic](x, y, z) & M32, (hex(x), hex(y), hex(z))


def test_perm_with_chosen_selectors():
    result = run("v_perm_b32 v3, v0, v1, s0", v={0: 0x33221100, 1: 0x77665584}, s={0: 0x07060504})
    assert result.v[3][0, 0] == 0x33221100
    result = run("v_perm_b32 v3, v0, v1, s0", v={0: 0x33221100, 1: 0x77665584}, s={0: 0x0D0C0400})
    assert result.v[3][0, 0] == 0xFF000084


@pytest.mark.parametrize("table", [0x00, 0x36, 0x78, 0xCA, 0xFF])
def test_bitop3(table):
    a, b, c = 0b11110000, 0b11001100, 0b10101010  # enumerates the truth table from bit 0 up
    result = run(f"v_bitop3_b32 v3, v0, v1, v2 bitop3:{table:#x}", v={0: a, 1: b, 2: c})
    assert result.v[3][0, 0] & 0xFF == table


@pytest.mark.parametrize("mnemonic", CARRY)
def test_carries(mnemonic):
    a, b = zip(*PAIRS, strict=True)
    carry_in = 0xAAAAAAAAAAAAAAAA
    if mnemonic in ("v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32"):
        text = f"{mnemonic}_e64 v2, s[2:3], v0, v1, s[0:1]"
    else:
        text, carry_in = f"{mnemonic}_e64 v2, s[2:3], v0, v1", 0
    result = run(text, v={0: a, 1: b}, s={0: carry_in & M32, 1: carry_in >> 32})
    exact = [CARRY[mnemonic](x, y, carry_in >> lane & 1) for lane, (x, y) in enumerate(PAIRS)]
    assert result.v[2][0].tolist() == [x & M32 for x in exact]
    assert result.mask(2) == sum((not 0 <= x <= M32) << lane for lane, x in enumerate(exact))


def wide(low, high):
    return int(low) | int(high) << 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v_mov_b64_e32 v[4:5], v[0:1]", 0x0123456789ABCDEF),
        ("v_mov_b64_e32 v[4:5], -1", M64),
        ("v_lshl_add_u64 v[4:5], v[0:1], 3, v[2:3]", ((0x0123456789ABCDEF << 3) + 0x00000001FFFFFFFF) & M64),
        ("v_lshlrev_b64 v[4:5], 36, v[0:1]", (0x0123456789ABCDEF << 36) & M64),
        ("v_lshrrev_b64 v[4:5], 36, v[0:1]", 0x0123456789ABCDEF >> 36),
        ("v_ashrrev_i64 v[4:5], 4, v[6:7]", 0xF800000000000000),
        ("v_mad_u64_u32 v[4:5], s[0:1], v0, v0, v[2:3]", 0x89ABCDEF * 0x89ABCDEF + 0x1FFFFFFFF),
        ("v_mad_i64_i32 v[4:5], s[0:1], v0, v1, v[2:3]", (s32(0x89ABCDEF) * 0x01234567 + 0x1FFFFFFFF) & M64),
    ],
)
def test_wide_results(text, expected):
    registers = {0: 0x89ABCDEF, 1: 0x01234567, 2: 0xFFFFFFFF, 3: 1, 6: 0, 7: 0x80000000}
    result = run(text, v=registers)
    assert wide(result.v[4][0, 0], result.v[5][0, 0]) == expected


def test_select():
    mask = 0x00000000FFFFFFFF
    result = run("v_cndmask_b32_e32 v2, v0, v1, vcc", v={0: 1, 1: 2}, s={106: mask & M32, 107: mask >> 32})
    assert result.v[2][0].tolist() == [2] * 32 + [1] * 32
    result = run("v_cndmask_b32_e64 v2, v0, -v1, s[0:1]", v={0: 1.0, 1: 2.0}, s={0: M32, 1: 0})
    assert result.v.f32(2)[0].tolist() == [-2.0] * 32 + [1.0] * 32


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("condition", COMPARE)
def test_comparisons(condition, kind):
    a, b = zip(*PAIRS, strict=True)
    result = run(f"v_cmp_{condition}_{kind}_e32 vcc, v0, v1", v={0: a, 1: b})
    convert = TYPES[kind]
    truth = [COMPARE[condition](convert(x), convert(y)) for x, y in PAIRS]
    assert result.mask() == sum(t << lane for lane, t in enumerate(truth))
    result = run(f"v_cmpx_{condition}_{kind}_e32 vcc, v0, v1\nv_mov_b32_e32 v0, 77", v={0: a, 1: b})
    assert ((result.v[0][0] == 77) == truth).all()


@pytest.mark.parametrize("kind", ["u64", "i64"])
@pytest.mark.parametrize("condition", COMPARE)
def test_wide_comparisons(condition, kind):
    x, y = 0x8000000000000000, 0x0000000100000000
    registers = {0: x & M32, 1: x >> 32, 2: y & M32, 3: y >> 32}
    result = run(f"v_cmp_{condition}_{kind}_e32 vcc, v[0:1], v[2:3]", v=registers)
    signed = x - (1 << 64) if kind == "i64" else x
    assert (result.mask() == M64) == COMPARE[condition](signed, y)
    result = run(f"v_cmpx_{condition}_{kind}_e64 s[0:1], v[0:1], v[2:3]", v=registers)
    assert (result.mask(126) == M64) == COMPARE[condition](signed, y)


def test_inactive_lanes_keep_their_value_and_compare_as_false():
    result = run("v_add_u32_e32 v1, 1, v0\nv_cmp_eq_u32_e64 s[0:1], v0, v0", v={0: 5, 1: 9}, exec_mask=0xF0)
    assert result.v[1][0].tolist() == [9] * 4 + [6] * 4 + [9] * 56
    assert result.mask(0) == 0xF0


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ("dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_1", 0x11111111 + 0x66),
        ("dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0 src1_sel:WORD_1", 0x9988 | 0x6666 << 16),
        ("dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:BYTE_0", (0x11 + 0x77) << 8),
        ("dst_sel:WORD_0 dst_unused:UNUSED_SEXT src0_sel:DWORD src1_sel:WORD_0", 0x00007788),
    ],
)
def test_sub_dword_addressing(selectors, expected):
    result = run(f"v_add_u32_sdwa v2, v0, v1 {selectors}", v={0: 0x11111111, 1: 0x55556677, 2: 0xBBAA9988})
    assert result.v[2][0, 0] == expected


def test_sub_dword_sign_extension():
    text = "v_add_u32_sdwa v2, sext(v0), v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:DWORD"
    assert run(text, v={0: 0x80, 1: 1, 2: 0}).v[2][0, 0] == 0xFFFFFF81


def test_saturating_arithmetic():
    a, b = zip(*PAIRS, strict=True)
    added = run("v_add_u32_e64 v2, v0, v1 clamp", v={0: a, 1: b}).v[2][0]
    assert added.tolist() == [min(x + y, M32) for x, y in PAIRS]
    subtracted = run("v_sub_u32_e64 v2, v0, v1 clamp", v={0: a, 1: b}).v[2][0]
    assert subtracted.tolist() == [max(x - y, 0) for x, y in PAIRS]
