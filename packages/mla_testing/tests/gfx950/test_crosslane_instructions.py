"""Lane exchanges, written out lane by lane."""

import pytest

from mla_testing.gfx950.errors import PendingAccessError
from mla_testing.gfx950.probe import run

LANES = list(range(64))
MNEMONICS = {"v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32", "v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32"}
MNEMONICS |= {"v_permlane32_swap_b32", "v_permlane16_swap_b32", "ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32"}


def test_scalar_exchange():
    v = {0: [100 + i for i in LANES]}
    assert run("v_readfirstlane_b32 s0, v0", v=v).s[0, 0] == 100
    assert run("v_readfirstlane_b32 s0, v0", v=v, exec_mask=0xF0).s[0, 0] == 104
    assert run("v_readfirstlane_b32 s0, v0", v=v, exec_mask=0).s[0, 0] == 100
    assert run("v_readlane_b32 s0, v0, 17", v=v).s[0, 0] == 117
    assert run("v_readlane_b32 s0, v0, s1", v=v, s={1: 64 + 5}).s[0, 0] == 105
    written = run("v_writelane_b32 v0, s0, 3", v=v, s={0: 7}, exec_mask=0).v[0][0]
    assert written.tolist() == [7 if i == 3 else 100 + i for i in LANES]


def test_lanes_below():
    text = "v_mbcnt_lo_u32_b32 v1, s0, 10\nv_mbcnt_hi_u32_b32 v1, s1, v1"
    mask = 0xF00000F1_8000000F
    found = run(text, s={0: mask & 0xFFFFFFFF, 1: mask >> 32}).v[1][0]
    assert found.tolist() == [10 + bin(mask & ((1 << i) - 1)).count("1") for i in LANES]


def test_half_wave_swap():
    result = run("v_permlane32_swap_b32_e64 v0, v1", v={0: LANES, 1: [100 + i for i in LANES]})
    assert result.v[0][0].tolist() == [*range(32), *range(100, 132)]
    assert result.v[1][0].tolist() == [*range(32, 64), *range(132, 164)]


def test_quarter_wave_swap():
    result = run("v_permlane16_swap_b32_e64 v0, v1", v={0: LANES, 1: [100 + i for i in LANES]})
    assert result.v[0][0].tolist() == [*range(16), *range(100, 116), *range(32, 48), *range(132, 148)]
    assert result.v[1][0].tolist() == [*range(16, 32), *range(116, 132), *range(48, 64), *range(148, 164)]


def test_swap_of_inactive_lanes_does_nothing():
    result = run("v_permlane32_swap_b32_e64 v0, v1", v={0: 1, 1: 2}, exec_mask=0x00000000_FFFFFFFF)
    assert (result.v[0] == 1).all() and (result.v[1] == 2).all()


CONTROLS = {  # control -> source lane of each lane, or None
    "quad_perm:[1,0,3,2]": lambda i: i ^ 1,
    "quad_perm:[2,3,0,1]": lambda i: i ^ 2,
    "quad_perm:[3,3,3,3]": lambda i: i | 3,
    "row_shl:1": lambda i: i + 1 if i % 16 < 15 else None,
    "row_shr:2": lambda i: i - 2 if i % 16 >= 2 else None,
    "row_ror:8": lambda i: i - i % 16 + (i % 16 + 8) % 16,
    "row_ror:3": lambda i: i - i % 16 + (i % 16 - 3) % 16,
    "row_newbcast:5": lambda i: i - i % 16 + 5,
    "row_share:5": lambda i: i - i % 16 + 5,
    "row_xmask:6": lambda i: i ^ 6,
    "row_mirror": lambda i: i - i % 16 + 15 - i % 16,
    "row_half_mirror": lambda i: i - i % 8 + 7 - i % 8,
    "row_bcast:15": lambda i: i // 16 * 16 - 1 if i >= 16 else None,
    "row_bcast:31": lambda i: 31 if i >= 32 else None,
    "wave_shl:1": lambda i: i + 1 if i < 63 else None,
    "wave_shr:1": lambda i: i - 1 if i else None,
    "wave_rol:1": lambda i: (i + 1) % 64,
    "wave_ror:1": lambda i: (i - 1) % 64,
}


@pytest.mark.parametrize("control", CONTROLS)
def test_data_parallel_primitives(control):
    source = [CONTROLS[control](i) for i in LANES]
    v = {0: [100 + i for i in LANES], 1: 7}
    text = f"v_mov_b32_dpp v1, v0 {control} row_mask:0xf bank_mask:0xf"
    assert run(text, v=v).v[1][0].tolist() == [7 if s is None else 100 + s for s in source]
    zeroed = run(f"{text} bound_ctrl:1", v=v).v[1][0].tolist()
    assert zeroed == [0 if s is None else 100 + s for s in source]


def test_dpp_operands_and_masks():
    v = {0: [float(i) for i in LANES], 1: 0.5, 2: 9.0}
    result = run("v_add_f32_dpp v2, v0, v1 quad_perm:[1,1,1,1] row_mask:0x2 bank_mask:0x1", v=v).v.f32(2)[0]
    # Row 1 is lanes 16..31; bank 0 its first four.
    assert result.tolist() == [17.5 if 16 <= i < 20 else 9.0 for i in LANES]
    result = run("v_max_u32_dpp v1, v0, v1 row_ror:8 row_mask:0xf bank_mask:0xf", v={0: LANES, 1: 30}).v[1][0]
    assert result.tolist() == [max(i ^ 8, 30) for i in LANES]


def test_lds_permutations():
    v = {0: [100 + i for i in LANES], 1: [4 * (63 - i) for i in LANES]}
    wait = "\ns_waitcnt lgkmcnt(0)"
    assert run("ds_bpermute_b32 v2, v1, v0" + wait, v=v).v[2][0].tolist() == [163 - i for i in LANES]
    assert run("ds_bpermute_b32 v2, v1, v0 offset:4" + wait, v=v).v[2][0].tolist() == [
        100 + (64 - i) % 64 for i in LANES
    ]
    sent = run("ds_permute_b32 v2, v1, v0" + wait, v={0: v[0], 1: [4 * (i // 2) for i in LANES]}).v[2][0]
    assert sent.tolist() == [100 + 2 * i + 1 if i < 32 else 0 for i in LANES]


def test_inactive_lanes_send_zero():
    found = run("ds_bpermute_b32 v2, v1, v0\ns_waitcnt lgkmcnt(0)", v={0: 5, 1: 4 * 60, 2: 1}, exec_mask=0xF).v[2][0]
    assert found.tolist() == [0] * 4 + [1] * 60


@pytest.mark.parametrize(
    ("offset", "source"),
    [
        (0x041F, lambda i: i ^ 1),  # and 31, or 0, xor 1
        (0x401F, lambda i: i ^ 16),
        (0x00A0, lambda i: i - i % 32 + 5),  # and 0, or 5
        (0x80B1, lambda i: i ^ 1),  # quad permutation [1, 0, 3, 2]
        ("swizzle(SWAP,16)", lambda i: i - i % 32 + (i + 16) % 32),
        ("swizzle(SWAP,2)", lambda i: i + 2 if i % 4 < 2 else i - 2),
        ("swizzle(REVERSE,8)", lambda i: i - i % 8 + 7 - i % 8),
        ("swizzle(BROADCAST,8,3)", lambda i: i - i % 8 + 3),
        ("swizzle(QUAD_PERM,3,0,1,2)", lambda i: i - i % 4 + (i - 1) % 4),
        ('swizzle(BITMASK_PERM,"01pip")', lambda i: i - i % 32 + 8 + (i % 8 ^ 2)),
    ],
)
def test_swizzle(offset, source):
    text = f"ds_swizzle_b32 v1, v0 offset:{offset}\ns_waitcnt lgkmcnt(0)"
    assert run(text, v={0: LANES}).v[1][0].tolist() == [source(i) for i in LANES]


def test_a_permutation_is_awaited_like_a_load():
    with pytest.raises(PendingAccessError, match=r"probe:2.*v2.*ds_bpermute_b32"):
        run("ds_bpermute_b32 v2, v1, v0\nv_mov_b32_e32 v3, v2", v={0: 0, 1: 0})
