"""Conversions, bit for bit against torch, and half-precision arithmetic against NumPy's float16."""

import numpy as np
import pytest
import torch

from mla_testing.gfx950 import formats
from mla_testing.gfx950.probe import run

FP8 = {"fp8": torch.float8_e4m3fn, "bf8": torch.float8_e5m2}
LARGEST = {"fp8": 448.0, "bf8": 57344.0}
MNEMONICS = {"v_cvt_f32_u32", "v_cvt_f32_i32", "v_cvt_u32_f32", "v_cvt_i32_f32", "v_cvt_f16_f32", "v_cvt_f32_f16"}
MNEMONICS |= {f"v_cvt_f32_ubyte{i}" for i in range(4)} | {"v_cvt_pk_bf16_f32", "v_cvt_pk_f16_f32"}
MNEMONICS |= {"v_cvt_pkrtz_f16_f32", "v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16", "v_pack_b32_f16"}
for _narrow in ("fp8", "bf8"):
    MNEMONICS |= {f"v_cvt_pk_{_narrow}_f32", f"v_cvt_pk_f32_{_narrow}", f"v_cvt_f32_{_narrow}"}
    MNEMONICS |= {f"v_cvt_scalef32_pk_{_narrow}_{wide}" for wide in ("f32", "bf16", "f16")}
for _narrow in ("fp8", "bf8", "fp4"):
    MNEMONICS |= {f"v_cvt_scalef32_pk_{wide}_{_narrow}" for wide in ("f32", "bf16", "f16")}
MNEMONICS |= {"v_cvt_scalef32_pk_fp4_f32"}


def floats(count, seed=0):
    """Float32 of every magnitude, with zeros, denormals and values half-way between those of narrower formats."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
    patterns[: count // 4] &= 0xFFFF8000  # ties of bf16
    values = patterns.view(np.float32)
    values = values[np.isfinite(values)]
    small = rng.standard_normal(count).astype(np.float32)
    return np.concatenate([values, small, np.float32([0.0, -0.0, np.inf, -np.inf, 1e-45])])


def lanes(values):
    """Pad to whole waves: float32[waves, 64]."""
    return np.resize(values, (-(-len(values) // 64), 64))


def torch_bits(values, dtype):
    converted = torch.from_numpy(np.ascontiguousarray(values)).to(dtype)
    view = torch.int16 if converted.element_size() == 2 else torch.uint8
    return converted.view(view).numpy().astype(np.uint32) & (0xFFFF if view is torch.int16 else 0xFF)


@pytest.mark.parametrize(("kind", "dtype"), [("bf16", torch.bfloat16), ("f16", torch.float16)])
def test_pack_16_bits(kind, dtype):
    x = lanes(floats(20000))
    result = run(f"v_cvt_pk_{kind}_f32 v2, v0, v1", v={0: x, 1: -x}, waves=len(x)).v[2]
    np.testing.assert_array_equal(result & 0xFFFF, torch_bits(x, dtype))
    np.testing.assert_array_equal(result >> 16, torch_bits(-x, dtype))


def test_bf16_nan_stays_nan():
    result = run("v_cvt_pk_bf16_f32 v1, v0, v0", v={0: np.uint32(0x7F800001)}).v[1][0, 0]
    assert result & 0x7FFF > 0x7F80


def test_f16():
    x = lanes(floats(20000))
    result = run("v_cvt_f16_f32_e32 v1, v0\nv_cvt_f32_f16_e32 v2, v1", v={0: x}, waves=len(x))
    np.testing.assert_array_equal(result.v[1], torch_bits(x, torch.float16))
    back = torch.from_numpy(np.ascontiguousarray(x)).half().float().numpy()
    np.testing.assert_array_equal(result.v.f32(2), back)
    high = run("v_cvt_f32_f16_sdwa v1, v0 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1", v={0: 0x3C000000, 1: 0})
    assert high.v.f32(1)[0, 0] == 1.0


def test_f16_towards_zero():
    x = np.float32([1 + 2**-11, -(1 + 2**-11), 1 + 2**-10, 65519.0] * 16)
    result = run("v_cvt_pkrtz_f16_f32 v1, v0, 0", v={0: x}).v[1][0, :4]
    assert [hex(r) for r in result] == ["0x3c00", "0xbc00", "0x3c01", "0x7bff"]


@pytest.mark.parametrize("narrow", FP8)
def test_decode_fp8(narrow):
    codes = np.arange(256, dtype=np.uint32).reshape(4, 64)
    expected = torch.arange(256, dtype=torch.uint8).view(FP8[narrow]).float().numpy().reshape(4, 64)
    packed = codes | (255 - codes) << 8 | codes << 16 | (255 - codes) << 24
    for select, name in ((0, ""), (1, " op_sel:[1,0]")):
        result = run(f"v_cvt_pk_f32_{narrow}_e64 v[2:3], v0{name}", v={0: packed}, waves=4)
        np.testing.assert_array_equal(result.v.f32(2), expected, err_msg=str(select))
        np.testing.assert_array_equal(result.v.f32(3), expected[::-1, ::-1])
    for byte in range(4):
        single = run(f"v_cvt_f32_{narrow}_e64 v1, v0 byte_sel:{byte}", v={0: codes << 8 * byte}, waves=4)
        np.testing.assert_array_equal(single.v.f32(1), expected)


@pytest.mark.parametrize("narrow", FP8)
def test_encode_fp8(narrow):
    x = floats(40000)
    x = lanes(x[np.abs(x) <= LARGEST[narrow]])  # beyond: the hardware saturates, torch does not
    keep = 0xABCD
    low = run(f"v_cvt_pk_{narrow}_f32 v2, v0, v1", v={0: x, 1: -x, 2: keep << 16}, waves=len(x)).v[2]
    np.testing.assert_array_equal(low & 0xFF, torch_bits(x, FP8[narrow]))
    np.testing.assert_array_equal(low >> 8 & 0xFF, torch_bits(-x, FP8[narrow]))
    assert (low >> 16 == keep).all()
    high = run(f"v_cvt_pk_{narrow}_f32 v2, v0, v1 op_sel:[0,0,1]", v={0: x, 1: -x, 2: keep}, waves=len(x)).v[2]
    np.testing.assert_array_equal(high >> 16, low & 0xFFFF)
    assert (high & 0xFFFF == keep).all()


@pytest.mark.parametrize("narrow", FP8)
def test_encode_fp8_saturates(narrow):
    text = f"v_cvt_pk_{narrow}_f32 v1, v0, v0"
    code = run(text, v={0: np.float32(1e6), 1: 0}).v[1][0, 0] & 0xFF
    assert torch.tensor([code], dtype=torch.uint8).view(FP8[narrow]).float().item() == LARGEST[narrow]


@pytest.mark.parametrize("wide", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("narrow", ["fp8", "bf8"])
def test_scaled_fp8(narrow, wide):
    scale = np.float32(2.0**-3)
    codes = np.arange(256, dtype=np.uint32).reshape(4, 64)
    exact = torch.arange(256, dtype=torch.uint8).view(FP8[narrow]).float().numpy().reshape(4, 64)
    text = f"v_cvt_scalef32_pk_{wide}_{narrow} v{'[2:3]' if wide == 'f32' else '2'}, v0, v1 op_sel:[1,0]"
    result = run(text, v={0: codes << 16 | codes << 24, 1: scale}, waves=4)
    if wide == "f32":
        np.testing.assert_array_equal(result.v.f32(2), exact * scale)
        np.testing.assert_array_equal(result.v.f32(3), exact * scale)
    else:
        decode = formats.bf16_to_f32 if wide == "bf16" else formats.f16_to_f32
        dtype = torch.bfloat16 if wide == "bf16" else torch.float16
        expected = torch.from_numpy(exact * scale).to(dtype).float().numpy()
        np.testing.assert_array_equal(decode(result.v[2] & 0xFFFF), expected)
        np.testing.assert_array_equal(decode(result.v[2] >> 16), expected)
    finite = np.isfinite(exact)
    if wide == "f32":
        text, inputs = f"v_cvt_scalef32_pk_{narrow}_f32 v4, v0, v0, v1", exact * scale
    else:
        bits = torch_bits(exact * scale, torch.bfloat16 if wide == "bf16" else torch.float16)
        text, inputs = f"v_cvt_scalef32_pk_{narrow}_{wide} v4, v0, v1", (bits | bits << 16).view(np.float32)
    back = run(text, v={0: inputs.view(np.uint32), 1: scale, 4: 0}, waves=4).v[4]
    np.testing.assert_array_equal((back & 0xFF)[finite], codes[finite])
    np.testing.assert_array_equal((back >> 8 & 0xFF)[finite], codes[finite])


FP4 = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6])


@pytest.mark.parametrize("wide", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("pair", range(4))
def test_scaled_fp4(wide, pair):
    values = np.concatenate([FP4, -FP4])
    code = np.arange(64) % 16
    select = f"op_sel:[{pair & 1},{pair >> 1},0]"
    text = f"v_cvt_scalef32_pk_{wide}_fp4 v{'[2:3]' if wide == 'f32' else '2'}, v0, 4.0 {select}"
    result = run(text, v={0: (code | (15 - code) << 4) << 8 * pair})
    if wide == "f32":
        low, high = result.v.f32(2), result.v.f32(3)
    else:
        decode = formats.bf16_to_f32 if wide == "bf16" else formats.f16_to_f32
        low, high = decode(result.v[2] & 0xFFFF), decode(result.v[2] >> 16)
    np.testing.assert_array_equal(low[0], 4 * values[code])
    np.testing.assert_array_equal(high[0], 4 * values[15 - code])


def test_encode_fp4_rounds_ties_to_even():
    x = np.float32([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, -0.25, -5.0, 0.26, 4.99, 0, 6, -6, 100] * 4)
    result = run("v_cvt_scalef32_pk_fp4_f32 v1, v0, v0, 1.0 op_sel:[0,0,1,0]", v={0: x, 1: 0xFFFFFFFF}).v[1][0, :16]
    assert (result & 0xFFFF00FF == 0xFFFF00FF).all()
    values = np.concatenate([FP4, -FP4])[result >> 8 & 0xF]
    assert values.tolist() == [0, 1, 1, 2, 2, 4, 4, 6, 0, -4, 0.5, 4, 0, 6, -6, 6]


def test_integers():
    x = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 16777217, 3, 7] * 8)
    unsigned = run("v_cvt_f32_u32_e32 v1, v0", v={0: x}).v.f32(1)[0]
    np.testing.assert_array_equal(unsigned, x.astype(np.uint32).astype(np.float32))
    signed = run("v_cvt_f32_i32_e32 v1, v0", v={0: x}).v.f32(1)[0]
    np.testing.assert_array_equal(signed, x.astype(np.uint32).view(np.int32).astype(np.float32))
    f = np.float32([0.5, -0.5, 3.99, -3.99, 1e20, -1e20, np.nan, 2147483648.0] * 8)
    assert run("v_cvt_u32_f32_e32 v1, v0", v={0: f}).v[1][0, :8].tolist() == [0, 0, 3, 0, 2**32 - 1, 0, 0, 2**31]
    signed = run("v_cvt_i32_f32_e32 v1, v0", v={0: f}).v[1][0, :8].view(np.int32)
    assert signed.tolist() == [0, 0, 3, -3, 2**31 - 1, -(2**31), 0, 2**31 - 1]
    for byte in range(4):
        assert run(f"v_cvt_f32_ubyte{byte}_e32 v1, v0", v={0: 0x44332211}).v.f32(1)[0, 0] == 0x11 * (byte + 1)


def test_mixed_precision_multiply_add():
    half = 0x4000_3C00  # 2.0 in the high half, 1.0 in the low half
    registers = {0: half, 1: np.float32(3.0), 2: 0x7777_5555}
    result = run("v_fma_mix_f32 v3, v0, v1, v0 op_sel:[1,0,0] op_sel_hi:[1,0,1]", v=registers)
    assert result.v.f32(3)[0, 0] == 2 * 3 + 1
    assert run("v_fma_mixlo_f16 v2, v0, v1, 1.0 op_sel_hi:[1,0,0]", v=registers).v[2][0, 0] == 0x7777_4400
    assert run("v_fma_mixhi_f16 v2, v0, v1, 1.0 op_sel_hi:[1,0,0]", v=registers).v[2][0, 0] == 0x4400_5555
    assert run("v_pack_b32_f16 v3, v0, v0 op_sel:[1,0,0]", v=registers).v[3][0, 0] == 0x3C00_4000


def test_format_tables():
    for narrow, table in (("fp8", formats.E4M3), ("bf8", formats.E5M2)):
        np.testing.assert_array_equal(table, torch.arange(256, dtype=torch.uint8).view(FP8[narrow]).float().numpy())
    scales = formats.e8m0_to_f32(np.arange(256))
    assert scales[127] == 1 and scales[0] == 2.0**-127 and scales[254] == 2.0**127 and np.isnan(scales[255])
