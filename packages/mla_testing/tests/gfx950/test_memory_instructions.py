"""Buffer, global, flat and scratch accesses, loads into LDS, and scalar loads."""

import numpy as np
import pytest

from mla_testing.gfx950.errors import LdsRaceError, OutOfBoundsError, PendingAccessError, PoisonError
from mla_testing.gfx950.probe import run

LANES = np.arange(64)
WORDS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}
NARROW = {"ubyte": (1, False), "sbyte": (1, True), "ushort": (2, False), "sshort": (2, True)}
HALF = {"ubyte_d16": 1, "sbyte_d16": 1, "short_d16": 2}
SPACES = ("buffer", "global", "flat", "scratch")
LDS_LOADS = ("dword", "dwordx3", "dwordx4", "ubyte", "sbyte", "ushort", "sshort")
MNEMONICS = {f"{s}_load_{k}" for s in SPACES for k in (*WORDS, *NARROW, *HALF, *(f"{h}_hi" for h in HALF))}
MNEMONICS |= {f"{s}_store_{k}" for s in SPACES for k in (*WORDS, "byte", "byte_d16_hi", "short", "short_d16_hi")}
MNEMONICS |= {f"global_load_lds_{k}" for k in LDS_LOADS} | {f"s_load_dword{n}" for n in ("", "x2", "x4", "x8", "x16")}
WAIT = "\ns_waitcnt vmcnt(0) lgkmcnt(0)"
MASKED = 1 << 31


def tensor(count=1024, dtype=np.uint32):
    return (np.arange(count * np.dtype(dtype).itemsize, dtype=np.uint32) * 37 % 251).astype(np.uint8).view(dtype)


def pointer(array, offset=0):
    """The address (plus ``offset`` bytes) in s[0:1]."""
    address = array.ctypes.data + offset
    return {0: address & 0xFFFFFFFF, 1: address >> 32}


def descriptor(array, records=0x7FFFFFFE):
    return {**pointer(array), 2: records, 3: 0x27000}


def access(space, name, register, array, offset):
    """(instruction, register contents) for an access by every lane at its byte ``offset``."""
    wide = array.ctypes.data + offset.astype(np.int64)
    lanes = {0: offset, 8: wide & 0xFFFFFFFF, 9: wide >> 32}
    form = {
        "buffer": ("{r}, v0, s[0:3], 0 offen", "{r}, v0, s[0:3], 0 offen"),
        "global": ("{r}, v0, s[0:1]", "v0, {r}, s[0:1]"),
        "flat": ("{r}, v[8:9]", "v[8:9], {r}"),
    }[space]["store" in name]
    return f"{space}_{name} {form.format(r=register)}", {"v": lanes, "s": descriptor(array), "tensors": {"x": array}}


def span(first, words):
    return f"v{first}" if words == 1 else f"v[{first}:{first + words - 1}]"


def merged(options, **v):
    return {**options, "v": {**options["v"], **{int(k[1:]): x for k, x in v.items()}}}


@pytest.mark.parametrize("space", SPACES[:3])
@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize("exec_mask", [None, 0x00FF00FF00FF00FF])
def test_wide_accesses(space, kind, exec_mask):
    n, x = WORDS[kind], tensor()
    offset = LANES[::-1] * 4 * n
    active = np.ones(64, bool) if exec_mask is None else (exec_mask >> LANES & 1).astype(bool)
    text, options = access(space, f"load_{kind}", span(2, n), x, offset)
    result = run(text + WAIT, **merged(options, v2=7, v3=7, v4=7, v5=7), exec_mask=exec_mask)
    for i in range(n):
        np.testing.assert_array_equal(result.v[2 + i][0], np.where(active, x[offset // 4 + i], 7))
    y = tensor()
    text, options = access(space, f"store_{kind}", span(2, n), y, offset)
    data = {f"v{2 + i}": 1000 * i + LANES for i in range(n)}
    run(text, **merged(options, **data), exec_mask=exec_mask)
    expected = tensor()
    for lane in np.flatnonzero(active):
        for i in range(n):
            expected[offset[lane] // 4 + i] = 1000 * i + lane
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("space", SPACES[:3])
@pytest.mark.parametrize("kind", NARROW)
def test_narrow_loads(space, kind):
    size, signed = NARROW[kind]
    x = tensor(1024, {1: np.uint8, 2: np.uint16}[size])
    text, options = access(space, f"load_{kind}", "v2", x, LANES * size)
    value = x[:64].astype(np.int64) - ((x[:64].astype(np.int64) >> (8 * size - 1)) << 8 * size) * signed
    np.testing.assert_array_equal(run(text + WAIT, **options).v[2][0], value.astype(np.uint64).astype(np.uint32))


@pytest.mark.parametrize("space", SPACES[:3])
@pytest.mark.parametrize("kind", HALF)
def test_half_register_loads(space, kind):
    size = HALF[kind]
    x = tensor(1024, {1: np.uint8, 2: np.uint16}[size])
    signed = kind.startswith("sbyte")
    value = (x[:64].astype(np.int64) - (x[:64].astype(np.int64) >> 7 << 8) * signed) & 0xFFFF
    for suffix, expected in (("", 0xAAAA0000 | value), ("_hi", 0xBBBB | value << 16)):
        text, options = access(space, f"load_{kind}{suffix}", "v2", x, LANES * size)
        np.testing.assert_array_equal(run(text + WAIT, **merged(options, v2=0xAAAABBBB)).v[2][0], expected)


@pytest.mark.parametrize("space", SPACES[:3])
@pytest.mark.parametrize(("kind", "dtype"), [("byte", np.uint8), ("short", np.uint16)])
def test_narrow_stores(space, kind, dtype):
    size, data = np.dtype(dtype).itemsize, 0x5A010203 + LANES * 0x01000101
    for suffix, value in (("", data), ("_d16_hi", data >> 16)):
        x = tensor(128, dtype)
        text, options = access(space, f"store_{kind}{suffix}", "v2", x, LANES * size)
        run(text, **merged(options, v2=data))
        np.testing.assert_array_equal(x[:64], value.astype(dtype))
        np.testing.assert_array_equal(x[64:], tensor(128, dtype)[64:])


def test_unaligned_dwords():
    x = tensor()
    offset = LANES * 4 + 2
    text, options = access("global", "load_dword", "v2", x, offset)
    expected = np.frombuffer(x.tobytes()[2 : 2 + 256], np.uint32)
    np.testing.assert_array_equal(run(text + WAIT, **options).v[2][0], expected)


# ------------------------------------------------------------------ addressing


def test_buffer_address_parts():
    x = tensor()
    options = {"s": {**descriptor(x), 4: 32}, "tensors": {"x": x}}
    result = run("buffer_load_dword v2, v0, s[0:3], s4 offen offset:16" + WAIT, v={0: LANES * 4}, **options)
    np.testing.assert_array_equal(result.v[2][0], x[12:76])
    result = run("buffer_load_dword v2, off, s[0:3], s4 offset:16" + WAIT, **options)
    assert (result.v[2] == x[12]).all()


def test_buffer_offsets_wrap_at_32_bits():
    x = tensor()
    text = "buffer_load_dword v2, v0, s[0:3], 0 offen offset:8" + WAIT
    result = run(text, v={0: 0xFFFFFFFC}, s=descriptor(x), tensors={"x": x})
    assert (result.v[2] == x[1]).all()


def test_masked_lanes_of_a_buffer_read_zero_and_store_nothing():
    x, y = tensor(), tensor()
    offset = np.where(LANES % 2, MASKED, LANES * 4)
    options = {"s": descriptor(x), "tensors": {"x": x}}
    result = run("buffer_load_dword v2, v0, s[0:3], 0 offen" + WAIT, v={0: offset, 2: 9}, **options)
    np.testing.assert_array_equal(result.v[2][0], np.where(LANES % 2, 0, x[:64]))
    run("buffer_store_dword v2, v0, s[0:3], 0 offen", v={0: offset, 2: 9}, s=descriptor(y), tensors={"y": y})
    np.testing.assert_array_equal(y[:64], np.where(LANES % 2, x[:64], 9))


def test_num_records_limits_a_buffer():
    """Masked or not, a lane past num_records reads 0; without checks that is all that happens."""
    x = tensor()
    text = "buffer_load_dwordx2 v[2:3], v0, s[0:3], 0 offen" + WAIT
    options = {"v": {0: LANES * 8}, "s": descriptor(x, records=100), "tensors": {"x": x}}
    result = run(text, **options, checks="none")
    # 12 lanes fit whole: the 13th would need bytes 96..103.
    np.testing.assert_array_equal(result.v[2][0], np.where(LANES < 12, x[LANES * 2], 0))
    with pytest.raises(OutOfBoundsError, match=r"offset 96 \(lane 12\) is beyond num_records 100.*of x"):
        run(text, **options)


def test_32_bit_overflow_of_a_buffer_offset():
    x = tensor()
    text = "v_mul_lo_u32 v0, v0, s4\nbuffer_load_dword v2, v0, s[0:3], 0 offen"
    with pytest.raises(OutOfBoundsError, match=r"probe:2.*32-bit overflow"):
        run(text, v={0: 3}, s={**descriptor(x), 4: 0x30000000}, tensors={"x": x})


def test_addresses_outside_name_the_nearest_tensor():
    x, y = tensor(64), tensor(64)
    text, options = access("global", "load_dword", "v2", x, LANES * 4 + 4)
    options["tensors"] = {"first": x, "second": y}
    with pytest.raises(OutOfBoundsError, match=r"1 lane\(s\) access 4 bytes.*byte 256 of first, which has 256 bytes"):
        run(text, **options)
    with pytest.raises(OutOfBoundsError, match=r"2 lane\(s\).*8 bytes before x"):
        run("global_store_dword v0, v2, s[0:1]", v={0: LANES * 4, 2: 0}, s=pointer(x, -8), tensors={"x": x})


def test_one_instruction_may_touch_several_tensors():
    x, y = tensor(32), tensor(64)
    address = np.where(LANES < 32, x.ctypes.data + LANES * 4, y.ctypes.data + LANES * 4)
    v = {0: address & 0xFFFFFFFF, 1: address >> 32}
    result = run("global_load_dword v2, v[0:1], off" + WAIT, v=v, tensors={"x": x, "y": y})
    np.testing.assert_array_equal(result.v[2][0], np.where(LANES < 32, x[LANES % 32], y[LANES]))


# ------------------------------------------------------------------ loads into LDS


@pytest.mark.parametrize("kind", LDS_LOADS)
@pytest.mark.parametrize("space", ["buffer", "global"])
def test_loads_into_lds(space, kind):
    words = {"dwordx3": 3, "dwordx4": 4}.get(kind, 1)
    size, signed = NARROW.get(kind, (4 * words, False))
    x = tensor(1024, {1: np.uint8, 2: np.uint16}.get(size, np.uint32))
    if space == "buffer":
        text, base = f"buffer_load_{kind} v0, s[0:3], 0 offen offset:64 lds", descriptor(x)
        offset = LANES[::-1] * size - 64
    else:
        text, base = f"global_load_lds_{kind} v0, s[0:1] offset:64", pointer(x, -64)
        offset = LANES[::-1] * size
    result = run(f"s_mov_b32 m0, 0x200\n{text}" + WAIT, v={0: offset}, s=base, tensors={"x": x})
    found = result.lds.view(np.uint32)[0x240 // 4 :][: 64 * words]
    if size < 4:
        value = x[63 - LANES].astype(np.int64)
        expected = (value - (value >> (8 * size - 1) << 8 * size) * signed).astype(np.uint64).astype(np.uint32)
    else:
        expected = x[: 64 * words].reshape(64, words)[::-1].reshape(-1)
    np.testing.assert_array_equal(found, expected)


def test_masked_lanes_write_zeros_to_lds_and_inactive_ones_nothing():
    x = tensor()
    text = "s_mov_b32 m0, 0\nbuffer_load_dword v0, s[0:3], 0 offen lds" + WAIT
    offset = np.where(LANES % 2, MASKED, LANES * 4)
    content = np.full(4096, 0x11, np.uint8)
    options = {"v": {0: offset}, "s": descriptor(x), "tensors": {"x": x}, "lds": content}
    found = run(text, **options, exec_mask=0xFFFFFFFF).lds.view(np.uint32)[:64]
    expected = np.where(LANES < 32, np.where(LANES % 2, 0, x[:64]), 0x11111111)
    np.testing.assert_array_equal(found, expected)


def test_redundant_waves_are_switched_off_through_m0():
    x, content = tensor(), np.full(4096, 0x11, np.uint8)
    text = "s_mov_b32 m0, 0x7fffffff\nbuffer_load_dwordx4 v0, s[0:3], 0 offen lds" + WAIT
    result = run(text, v={0: LANES * 16}, s=descriptor(x), tensors={"x": x}, lds=content)
    assert (result.lds == 0x11).all()


DMA = "s_mov_b32 m0, 0\nbuffer_load_dword v0, s[0:3], 0 offen lds\n"


def test_lds_in_flight():
    x = tensor()
    options = {"v": {0: LANES * 4, 1: LANES * 4}, "s": descriptor(x), "tensors": {"x": x}}
    message = r"probe:3.*LDS that a direct-to-LDS load has not filled yet \(issued at probe:2.*buffer_load_dword"
    for use in ("ds_read_b32 v2, v1", "ds_write_b32 v1, v0", "ds_read_u8 v2, v1", "ds_write_b8 v1, v0"):
        with pytest.raises(PendingAccessError, match=message):
            run(DMA + use, **options)
    run(DMA + "s_waitcnt vmcnt(0)\nds_read_b32 v2, v1", **options)
    # Another load is younger: waiting for one outstanding operation retires the first.
    second = DMA + DMA.replace("m0, 0", "m0, 0x400") + "s_waitcnt vmcnt(1)\nds_read_b32 v2, v1"
    run(second, **options)
    with pytest.raises(PendingAccessError):
        run(second + " offset:1024", **options)


def test_a_load_into_lds_needs_a_barrier_for_other_waves():
    x = tensor()
    text = (
        "s_cmp_eq_u32 s8, 0\ns_cbranch_scc0 reader\n" + DMA + "s_waitcnt vmcnt(0)\nreader:\n{barrier}ds_read_b32 v2, v1"
    )
    options = {"v": {0: LANES * 4, 1: LANES * 4}, "s": {**descriptor(x), 8: [0, 1]}, "tensors": {"x": x}, "waves": 2}
    with pytest.raises(LdsRaceError, match="wave 1 reads LDS that wave 0 has written"):
        run(text.format(barrier=""), **options)
    run(text.format(barrier="s_barrier\n"), **options)


# ------------------------------------------------------------------ waiting


def test_registers_in_flight():
    x = tensor()
    text, options = access("global", "load_dwordx2", "v[2:3]", x, LANES * 8)
    with pytest.raises(PendingAccessError, match="v3 while"):
        run(text + "\nv_mov_b32_e32 v4, v3", **options)
    with pytest.raises(PendingAccessError, match="v3 while"):
        run(text + "\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v4, v3", **options)
    run(text + "\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v4, v3", **options)


def test_stores_take_part_in_the_order():
    x = tensor()
    load, options = access("global", "load_dword", "v2", x, LANES * 4)
    store = "global_store_dword v0, v4, s[0:1]"
    run(f"{load}\n{store}\ns_waitcnt vmcnt(1)\nv_mov_b32_e32 v3, v2", **merged(options, v4=0))
    with pytest.raises(PendingAccessError):
        run(f"{store}\n{load}\ns_waitcnt vmcnt(1)\nv_mov_b32_e32 v3, v2", **merged(options, v4=0))


def test_the_counter_saturates():
    """63 operations fit into vmcnt: before the 64th is issued the first has retired."""
    x = tensor()
    load, options = access("global", "load_dword", "v2", x, LANES * 4)
    more = "\n".join(["global_load_dword v3, v0, s[0:1]"] * 63)
    run(f"{load}\n{more}\nv_mov_b32_e32 v4, v2", **options)
    with pytest.raises(PendingAccessError):
        run(f"{load}\n{more[: more.rindex(chr(10))]}\nv_mov_b32_e32 v4, v2", **options)


def test_flat_operations_are_unordered():
    x = tensor()
    load, options = access("flat", "load_dword", "v2", x, LANES * 4)
    for wait in ("vmcnt(0)", "lgkmcnt(0)"):
        run(f"{load}\ns_waitcnt {wait}\nv_mov_b32_e32 v3, v2", **options)
    text = f"{load}\nglobal_load_dword v4, v0, s[0:1]\ns_waitcnt vmcnt(1)\nv_mov_b32_e32 v3, v2"
    with pytest.raises(PendingAccessError):
        run(text, **options)


@pytest.mark.parametrize(("suffix", "count"), [("", 1), ("x2", 2), ("x4", 4), ("x8", 8), ("x16", 16)])
def test_scalar_loads(suffix, count):
    x = tensor()
    target = f"s[16:{15 + count}]" if count > 1 else "s16"
    text = f"s_load_dword{suffix} {target}, s[0:1], 0x20"
    result = run(text + "\ns_waitcnt lgkmcnt(0)", s=pointer(x), tensors={"x": x})
    assert result.s[16 : 16 + count, 0].tolist() == x[8 : 8 + count].tolist()
    result = run(f"s_load_dword{suffix} {target}, s[0:1], s2", s={**pointer(x), 2: 4}, tensors={"x": x})
    assert result.s[16, 0] == x[1]


def test_scalar_loads_in_flight():
    x = tensor()
    text = "s_load_dword s16, s[0:1], 0x0\ns_load_dword s17, s[0:1], 0x0\n{}s_add_i32 s2, s16, 1"
    for wait in ("", "s_waitcnt lgkmcnt(1)\n", "s_waitcnt vmcnt(0)\n"):  # scalar loads return in any order
        with pytest.raises(PendingAccessError, match="s16 while"):
            run(text.format(wait), s=pointer(x), tensors={"x": x})
    run(text.format("s_waitcnt lgkmcnt(0)\n"), s=pointer(x), tensors={"x": x})


# ------------------------------------------------------------------ poison


POISONED = ("s_nop 0", "v_add_f32_e32 v4, v4, v4", "v_mul_f32_e32 v4, -1.0, v4", "v_exp_f32_e32 v4, v4")
POISONED += (
    "v_fma_f32 v4, v0, v4, 1.0",
    "v_max_f32_e32 v4, v4, v4",
    "v_mfma_f32_16x16x16_bf16 v[4:7], v[8:9], v[8:9], 0",
)


@pytest.mark.parametrize("source", POISONED)
def test_values_never_written_must_not_reach_a_tensor(source):
    x = np.zeros(64, np.float32)
    text = f"{source}\nglobal_store_dword v0, v4, s[0:1]"
    with pytest.raises(PoisonError, match="x that was computed from a register, LDS or scratch"):
        run(text, v={0: LANES * 4}, s=pointer(x), tensors={"x": x})
    run(text, v={0: LANES * 4}, s=pointer(x), tensors={"x": x}, checks=["strict", "race"])


def test_packed_halves_show_poison_in_either_half():
    x = np.zeros(128, np.float16)
    for registers in ("v0, v4", "v4, v0"):
        text = f"v_cvt_pk_bf16_f32 v4, {registers}\nglobal_store_dword v0, v4, s[0:1]"
        with pytest.raises(PoisonError):
            run(text, v={0: LANES * 4}, s=pointer(x), tensors={"x": x})


def test_integers_are_never_poison():
    x = np.zeros(64, np.uint32)
    run("global_store_dword v0, v4, s[0:1]", v={0: LANES * 4}, s=pointer(x), tensors={"x": x})


def test_lds_never_written_must_not_reach_a_tensor():
    x = np.zeros(64, np.float16)
    text = "ds_read_u16 v4, v0\ns_waitcnt lgkmcnt(0)\nglobal_store_short v0, v4, s[0:1]"
    with pytest.raises(PoisonError):
        run(text, v={0: LANES * 2}, s=pointer(x), tensors={"x": x})


def test_ordinary_nans_are_not_poison():
    x = np.zeros(64, np.float32)
    run("global_store_dword v0, v4, s[0:1]", v={0: LANES * 4, 4: np.float32(np.nan)}, s=pointer(x), tensors={"x": x})
    assert np.isnan(x).all()


# ------------------------------------------------------------------ scratch


@pytest.mark.parametrize("kind", WORDS)
def test_scratch_words(kind):
    n = WORDS[kind]
    data = {2 + i: 1000 * i + LANES for i in range(n)}
    text = (
        f"scratch_store_{kind} off, {span(2, n)}, off offset:16\nscratch_load_{kind} {span(6, n)}, off, off offset:16"
    )
    result = run(text + WAIT, v={**data, **{6 + i: 5 for i in range(n)}}, scratch_bytes=64, exec_mask=0xFF)
    for i in range(n):
        np.testing.assert_array_equal(result.v[6 + i][0], np.where(LANES < 8, data[2 + i], 5))
    moving = f"scratch_store_{kind} v1, {span(2, n)}, s0\nscratch_load_{kind} {span(6, n)}, v1, s0"
    result = run(moving + WAIT, v={**data, 1: LANES % 2 * 16}, s={0: 8}, scratch_bytes=64)
    np.testing.assert_array_equal(result.v[6][0], data[2])


@pytest.mark.parametrize("kind", [*NARROW, *HALF, *(f"{h}_hi" for h in HALF)])
def test_scratch_narrow(kind):
    high = kind.endswith("_hi")
    base = kind.removesuffix("_hi")
    size, signed = NARROW.get(base, (HALF.get(base), base.startswith("s") and base != "short_d16"))
    store = "byte" if size == 1 else "short"
    value = 0x8182 & (0xFF if size == 1 else 0xFFFF)
    signed_value = (value - (1 << 8 * size) if signed else value) & 0xFFFFFFFF
    expected = signed_value
    if base in HALF:
        low = signed_value & 0xFFFF
        expected = low << 16 | 0xBBBB if high else 0xAAAA0000 | low
    text = f"scratch_store_{store}{'_d16_hi' if high else ''} off, v1, off offset:6\nscratch_load_{kind} v2, off, off offset:6"
    source = value << 16 if high else value
    result = run(text + WAIT, v={1: source, 2: 0xAAAABBBB}, scratch_bytes=16)
    assert (result.v[2] == expected).all()


def test_scratch_bounds():
    with pytest.raises(OutOfBoundsError, match="16 bytes at byte 16 of 16"):
        run("scratch_load_dwordx4 v[0:3], off, off offset:16", scratch_bytes=16)
