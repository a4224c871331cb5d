"""LDS reads and writes, the transposing reads, and the race and in-flight checks on LDS."""

import numpy as np
import pytest

from mla_testing.gfx950.errors import (
    EmulationError,
    LdsRaceError,
    MisalignedAccessError,
    OutOfBoundsError,
    PendingAccessError,
)
from mla_testing.gfx950.probe import run

LANES = np.arange(64)
BYTES = np.arange(4096, dtype=np.uint32) * 37 % 251
CONTENT = BYTES.astype(np.uint8)
WORDS = CONTENT.view(np.uint32)
WAIT = "\ns_waitcnt lgkmcnt(0)"
NARROW = {"u8": (1, False), "i8": (1, True), "u16": (2, False), "i16": (2, True)}
MNEMONICS = {f"ds_{d}_{t}" for d in ("read", "write") for t in ("b32", "b64", "b96", "b128")}
MNEMONICS |= {f"ds_{d}2{s}_{t}" for d in ("read", "write") for s in ("", "st64") for t in ("b32", "b64")}
MNEMONICS |= {f"ds_read_{t}{s}" for t in NARROW for s in ("", "_d16", "_d16_hi")}
MNEMONICS |= {"ds_write_b8", "ds_write_b16", "ds_write_b8_d16_hi", "ds_write_b16_d16_hi"}
MNEMONICS |= {"ds_read_b64_tr_b16", "ds_read_b64_tr_b8"}


@pytest.mark.parametrize(("kind", "words", "alignment"), [("b32", 1, 4), ("b64", 2, 8), ("b96", 3, 4), ("b128", 4, 16)])
@pytest.mark.parametrize("offset", [0, 4, 256])
def test_read_and_write(kind, words, alignment, offset):
    address = LANES[::-1] * 4 * words
    last = 2 + words - 1
    target = f"v[2:{last}]" if words > 1 else "v2"
    result = run(f"ds_read_{kind} {target}, v0 offset:{offset}" + WAIT, v={0: address}, lds=CONTENT, lds_bytes=4096)
    for i in range(words):
        np.testing.assert_array_equal(result.v[2 + i][0], WORDS[(address + offset) // 4 + i])
    values = {2 + i: 1000 * i + LANES for i in range(words)}
    text = f"ds_write_{kind} v0, {target} offset:{offset}"
    written = run(text, v={0: address, **values}, lds=CONTENT, exec_mask=0xFFFF0000FFFF).lds.view(np.uint32)
    expected = WORDS.copy()
    for lane in (*range(16), *range(32, 48)):
        for i in range(words):
            expected[(address[lane] + offset) // 4 + i] = 1000 * i + lane
    np.testing.assert_array_equal(written[: len(expected)], expected)


@pytest.mark.parametrize(("kind", "words"), [("b32", 1), ("b64", 2)])
@pytest.mark.parametrize(("form", "stride"), [("2", 1), ("2st64", 64)])
def test_two_addresses(kind, words, form, stride):
    first, second = 1, 3
    address = LANES * 4 * words
    places = [(address + o * 4 * words * stride) // 4 for o in (first, second)]
    modifiers = f"offset0:{first} offset1:{second}"
    result = run(f"ds_read{form}_{kind} v[2:{1 + 2 * words}], v0 {modifiers}" + WAIT, v={0: address}, lds=CONTENT)
    for half, place in enumerate(places):
        for i in range(words):
            np.testing.assert_array_equal(result.v[2 + half * words + i][0], WORDS[place + i])
    spread = LANES * 4 * words * (4 if stride == 1 else 1)
    data = {2: LANES, 3: LANES + 100, 4: LANES + 200, 5: LANES + 300}
    ranges = ("v2", "v4") if words == 1 else ("v[2:3]", "v[4:5]")
    found = run(f"ds_write{form}_{kind} v0, {ranges[0]}, {ranges[1]} {modifiers}", v={0: spread, **data}, lds=CONTENT)
    found = found.lds.view(np.uint32)
    for half, o in enumerate((first, second)):
        for i in range(words):
            place = (spread + o * 4 * words * stride) // 4 + i
            np.testing.assert_array_equal(found[place], data[2 + 2 * half + i])


@pytest.mark.parametrize("kind", NARROW)
def test_narrow_reads(kind):
    size, signed = NARROW[kind]
    address = LANES * size + 8
    raw = CONTENT.view({1: np.uint8, 2: np.uint16}[size])[address // size]
    value = raw.astype(np.int64) - (raw.astype(np.int64) >> (8 * size - 1) << 8 * size) * signed
    full = run(f"ds_read_{kind} v1, v0 offset:8" + WAIT, v={0: address - 8}, lds=CONTENT).v[1][0]
    np.testing.assert_array_equal(full, value.astype(np.uint64).astype(np.uint32))
    low = run(f"ds_read_{kind}_d16 v1, v0" + WAIT, v={0: address, 1: 0xAAAABBBB}, lds=CONTENT).v[1][0]
    np.testing.assert_array_equal(low, 0xAAAA0000 | (value & 0xFFFF))
    high = run(f"ds_read_{kind}_d16_hi v1, v0" + WAIT, v={0: address, 1: 0xAAAABBBB}, lds=CONTENT).v[1][0]
    np.testing.assert_array_equal(high, 0xBBBB | (value & 0xFFFF) << 16)


@pytest.mark.parametrize(("kind", "size"), [("b8", 1), ("b16", 2)])
def test_narrow_writes(kind, size):
    dtype = {1: np.uint8, 2: np.uint16}[size]
    data = 0x5A010203 + LANES * 0x01000101
    expected = CONTENT.copy().view(dtype)
    expected[5 : 5 + 64] = data.astype(dtype)
    text = f"ds_write_{kind} v0, v1 offset:{5 * size}"
    np.testing.assert_array_equal(run(text, v={0: LANES * size, 1: data}, lds=CONTENT).lds.view(dtype), expected)
    expected[5 : 5 + 64] = (data >> 16).astype(dtype)
    text = f"ds_write_{kind}_d16_hi v0, v1 offset:{5 * size}"
    np.testing.assert_array_equal(run(text, v={0: LANES * size, 1: data}, lds=CONTENT).lds.view(dtype), expected)


@pytest.mark.parametrize(("kind", "rows", "dtype"), [("b16", 4, np.uint16), ("b8", 8, np.uint8)])
def test_transposing_reads(kind, rows, dtype):
    """16 lanes read a matrix of `rows` rows x 16 columns, row-major, 64 bits a lane; lane i gets column i."""
    matrices = CONTENT[: 4 * 128].view(dtype).reshape(4, rows, 16)
    result = run(f"ds_read_b64_tr_{kind} v[2:3], v0" + WAIT, v={0: LANES * 8}, lds=CONTENT)
    found = np.stack([result.v[2][0], result.v[3][0]], axis=1)  # [lane, dword]
    columns = np.ascontiguousarray(matrices.transpose(0, 2, 1)).reshape(64, rows)
    np.testing.assert_array_equal(np.ascontiguousarray(found).view(dtype).reshape(64, rows), columns)


def test_transposing_reads_follow_each_lanes_address():
    """The rows may lie anywhere: lanes 4r..4r+3 of a block address row r."""
    row = (LANES % 16) // 4
    address = row * 512 + (LANES // 16) * 32 + (LANES % 4) * 8
    result = run("ds_read_b64_tr_b16 v[2:3], v0" + WAIT, v={0: address}, lds=CONTENT)
    halves = CONTENT.view(np.uint16).reshape(8, 256)
    for lane in (0, 5, 17, 63):
        column = lane // 16 * 16 + lane % 16
        expected = [int(halves[r, column]) for r in range(4)]
        found = [int(result.v[2 + i // 2][0, lane]) >> 16 * (i % 2) & 0xFFFF for i in range(4)]
        assert found == expected


def test_workgroups_have_their_own_lds():
    text = "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_read_b32 v2, v1" + WAIT
    values = np.repeat([[10], [20]], 64, axis=1)
    result = run(text, v={0: values, 1: LANES * 4}, workgroups=2)
    np.testing.assert_array_equal(result.v[2], values)


# ------------------------------------------------------------------ checks


def two_waves(text, **options):
    """Both waves address the same 64 dwords; s0 is the number of the wave, v0 its data."""
    options = {"v": {0: np.array([[1], [2]]), 1: LANES * 4}, "s": {0: [0, 1]}, **options}
    return run(text, waves=2, **options)


def test_write_then_read_without_barrier_is_a_race():
    text = "s_cmp_eq_u32 s0, 0\ns_cbranch_scc0 other\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_endpgm\nother:\n"
    with pytest.raises(LdsRaceError, match=r"wave 1 reads LDS that wave 0 has written"):
        two_waves(text + "ds_read_b32 v2, v1" + WAIT)


def test_read_then_overwrite_without_barrier_is_a_race():
    text = "ds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)\ns_cmp_eq_u32 s0, 0\ns_cbranch_scc0 end\nds_write_b32 v1, v0\nend:"
    with pytest.raises(LdsRaceError, match=r"wave 0 overwrites LDS that several waves have read"):
        two_waves(text, lds=CONTENT)
    with_barrier = text.replace("s_cmp", "s_barrier\ns_cmp")
    two_waves(with_barrier, lds=CONTENT)


def test_waves_that_write_different_values_to_one_place_race():
    with pytest.raises(LdsRaceError, match="writes LDS that wave"):
        two_waves("ds_write_b32 v1, v0")
    two_waves("ds_write_b32 v1, v2", v={1: LANES * 4, 2: 5})  # the same value: Triton's redundant threads do so


def test_narrow_neighbours_of_different_waves_do_not_race():
    halves = np.array([[0], [2]]) + LANES * 4
    result = two_waves("ds_write_b16 v1, v0", v={0: np.array([[1], [2]]), 1: halves})
    assert (result.lds.view(np.uint32)[:64] == 0x00020001).all()
    with pytest.raises(LdsRaceError):
        two_waves("ds_write_b16 v1, v0")


def test_a_read_that_was_not_awaited_before_the_barrier_still_counts():
    """Wave 1 writes after the barrier what wave 0 may not have read yet."""
    text = "ds_read_b32 v2, v1\n{wait}s_barrier\ns_cmp_eq_u32 s0, 1\ns_cbranch_scc0 end\nds_write_b32 v1, v0\nend:"
    with pytest.raises(LdsRaceError, match="overwrites LDS"):
        two_waves(text.format(wait=""), lds=CONTENT)
    two_waves(text.format(wait="s_waitcnt lgkmcnt(0)\n"), lds=CONTENT)


def test_a_write_that_was_not_awaited_before_the_barrier_still_counts():
    text = (
        "s_cmp_eq_u32 s0, 0\ns_cbranch_scc0 skip\nds_write_b32 v1, v0\n{wait}skip:\ns_barrier\nds_read_b32 v2, v1"
        + WAIT
    )
    with pytest.raises(LdsRaceError, match="wave 1 reads LDS that wave 0 has written"):
        two_waves(text.format(wait=""))
    two_waves(text.format(wait="s_waitcnt lgkmcnt(0)\n"))


def test_checks_can_be_switched_off():
    two_waves("ds_write_b32 v1, v0", checks="none")


def test_register_in_flight():
    for use in ("v_mov_b32_e32 v3, v2", "v_mov_b32_e32 v2, 0", "ds_write_b32 v1, v2"):
        with pytest.raises(PendingAccessError, match=r"v2 while it is still being loaded by probe:1.*ds_read_b32"):
            run(f"ds_read_b32 v2, v1\n{use}", v={1: 0}, lds=CONTENT)
    run("ds_read_b32 v2, v1\nds_read_b32 v2, v1" + WAIT, v={1: 0}, lds=CONTENT)  # loads return in order


def test_partial_waits_retire_the_oldest():
    loads = "ds_read_b32 v2, v1\nds_read_b32 v3, v1\ns_waitcnt lgkmcnt(1)\n"
    run(loads + "v_mov_b32_e32 v4, v2", v={1: 0}, lds=CONTENT)
    with pytest.raises(PendingAccessError, match="v3"):
        run(loads + "v_mov_b32_e32 v4, v3", v={1: 0}, lds=CONTENT)


def test_bounds():
    with pytest.raises(OutOfBoundsError, match=r"probe:1.*byte 4096.*4096 bytes"):
        run("ds_read_b32 v2, v1 offset:4", v={1: 4092}, lds_bytes=4096)
    with pytest.raises(OutOfBoundsError):
        run("ds_write_b16 v1, v0", v={0: 0, 1: 4095}, lds_bytes=4096)
    with pytest.raises(MisalignedAccessError):
        run("ds_read_b32 v2, v1", v={1: 2})
    with pytest.raises(MisalignedAccessError):
        run("ds_write_b16 v1, v0", v={0: 0, 1: 1})


def test_transposing_reads_need_whole_waves():
    with pytest.raises(EmulationError, match="all lanes"):
        run("ds_read_b64_tr_b16 v[2:3], v0", v={0: LANES * 8}, exec_mask=0xFFFF)
