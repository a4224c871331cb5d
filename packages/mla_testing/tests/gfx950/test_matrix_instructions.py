"""MFMA register layouts, taken from Triton's own linear layouts, and results against float64 products."""

import numpy as np
import pytest
import torch
from triton._C.libtriton import gluon_ir, ir
from triton.experimental.gluon import language as gl

from mla_testing.gfx950.probe import run

TORCH = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "fp8": torch.float8_e4m3fn,
    "bf8": torch.float8_e5m2,
}
SHAPES16 = ("16x16x32", "32x32x16", "16x16x16", "32x32x8")
PLAIN = {f"v_mfma_f32_{s}_{t}": (s, t, t) for s in SHAPES16 for t in ("bf16", "f16")}
PLAIN |= {f"v_mfma_f32_{s}_bf16_1k": (s, "bf16", "bf16") for s in ("16x16x16", "32x32x8")}
PLAIN |= {
    f"v_mfma_f32_{s}_{a}_{b}": (s, a, b)
    for s in ("16x16x32", "32x32x16")
    for a in ("fp8", "bf8")
    for b in ("fp8", "bf8")
}
PLAIN |= {"v_mfma_f32_16x16x4_f32": ("16x16x4", "f32", "f32"), "v_mfma_f32_32x32x2_f32": ("32x32x2", "f32", "f32")}
SCALED = {"v_mfma_scale_f32_16x16x128_f8f6f4": (16, 128), "v_mfma_scale_f32_32x32x64_f8f6f4": (32, 64)}
MNEMONICS = {*PLAIN, *SCALED, *(name.replace("_scale", "") for name in SCALED)}


def positions(layout, shape):
    """int[registers, 64, 2]: the element that each register of each lane holds, by Triton's linear layout."""
    context = ir.context()
    ir.load_dialects(context)
    builder = gluon_ir.GluonOpBuilder(context)
    linear = builder.to_linear_layout(layout._to_ir(builder), list(shape))
    place = np.zeros((1 << len(linear.reg_bases), 64, 2), int)
    for bit, base in enumerate(linear.reg_bases):
        place[(np.arange(len(place)) >> bit & 1).astype(bool)] ^= base
    for bit, base in enumerate(linear.lane_bases):
        place[:, (np.arange(64) >> bit & 1).astype(bool)] ^= base
    return place


def mfma_layout(m, k):
    return gl.amd.AMDMFMALayout(version=4, instr_shape=[m, m, k], transposed=False, warps_per_cta=[1, 1])


def pack(elements, bits):
    """[values, 64] codes to uint32 registers [n, 64], low bits first."""
    registers = np.zeros((len(elements) * bits // 32, 64), np.uint64)
    for position, codes in enumerate(elements):
        word, shift = divmod(position * bits, 32)
        wide = codes.astype(np.uint64) << np.uint64(shift)
        registers[word] |= wide & np.uint64(0xFFFFFFFF)
        if shift + bits > 32:
            registers[word + 1] |= wide >> np.uint64(32)
    return registers.astype(np.uint32)


def codes(values, kind):
    """Bit patterns of a torch tensor, rounded to a format."""
    rounded = values.to(TORCH[kind])
    view, mask = {4: (torch.int32, 0xFFFFFFFF), 2: (torch.int16, 0xFFFF), 1: (torch.uint8, 0xFF)}[
        rounded.element_size()
    ]
    return rounded.view(view).numpy().astype(np.int64) & mask, rounded.double().numpy()


@pytest.mark.parametrize("mnemonic", PLAIN)
def test_product_through_triton_layouts(mnemonic):
    shape, kind_a, kind_b = PLAIN[mnemonic]
    m, _, k = (int(x) for x in shape.split("x"))
    generator = torch.Generator().manual_seed(1)
    a_codes, a = codes(torch.randn(m, k, generator=generator), kind_a)
    b_codes, b = codes(torch.randn(k, m, generator=generator), kind_b)
    c = torch.randn(m, m, generator=generator).numpy()
    width = k * m // 64  # values per lane
    layout = mfma_layout(m, k)
    at_a = positions(gl.DotOperandLayout(0, layout, width), (m, k))
    at_b = positions(gl.DotOperandLayout(1, layout, width), (k, m))
    at_c = positions(layout, (m, m))
    bits = {"f32": 32, "bf16": 16, "f16": 16}.get(kind_a, 8)
    registers = {}
    for first, at, values in ((0, at_a, a_codes), (8, at_b, b_codes)):
        for i, row in enumerate(pack(values[at[..., 0], at[..., 1]], bits)):
            registers[first + i] = row
    count = width * bits // 32
    last = len(at_c) - 1
    accumulators = {i: c[at_c[i, :, 0], at_c[i, :, 1]] for i in range(last + 1)}
    text = f"{mnemonic} a[16:{16 + last}], {span(0, count)}, {span(8, count)}, a[0:{last}]"
    result = run(text, v=registers, a=accumulators, exec_mask=1)  # EXEC does not matter
    expected = a @ b + c
    for i in range(last + 1):
        found = result.a.f32(16 + i)[0]
        np.testing.assert_allclose(found, expected[at_c[i, :, 0], at_c[i, :, 1]], rtol=0, atol=2e-5)


def span(first, count):
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def test_product_in_place_with_a_constant_addend():
    ones = 0x3F803F80
    result = run("v_mfma_f32_16x16x32_bf16 v[0:3], v[0:3], v[4:7], 1.0", v=dict.fromkeys(range(8), ones), waves=3)
    for i in range(4):
        assert (result.v.f32(i) == 33.0).all()


# Values of the small formats, from their definition (OCP MX): sign, exponent, mantissa.
def small_format(exponent_bits, mantissa_bits, bias):
    values = []
    for code in range(1 << (1 + exponent_bits + mantissa_bits)):
        mantissa = code & ((1 << mantissa_bits) - 1)
        exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
        sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
        fraction = mantissa / (1 << mantissa_bits)
        values.append(
            sign * (fraction * 2.0 ** (1 - bias) if not exponent else (1 + fraction) * 2.0 ** (exponent - bias))
        )
    return np.array(values)


FP8 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double().numpy()
BF8 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e5m2).double().numpy()
FORMATS = {  # cbsz / blgp code -> (bits, values)
    0: (8, FP8),
    1: (8, BF8),
    2: (6, small_format(2, 3, 1)),
    3: (6, small_format(3, 2, 3)),
    4: (4, small_format(2, 1, 1)),
}


@pytest.mark.parametrize("with_scale", [True, False])
@pytest.mark.parametrize(("format_a", "format_b"), [(0, 0), (1, 0), (4, 4), (0, 4), (2, 3), (3, 1)])
@pytest.mark.parametrize("mnemonic", SCALED)
def test_scaled_product(mnemonic, format_a, format_b, with_scale):
    m, k = SCALED[mnemonic]
    rng = np.random.default_rng(2)
    registers, matrices, scales = {}, [], []
    for operand, (form, first) in enumerate(((format_a, 0), (format_b, 8))):
        bits, table = FORMATS[form]
        finite = np.flatnonzero(np.isfinite(table) & (np.abs(table) < 100))
        chosen = rng.choice(finite, (m, k))
        # 8-bit operands: Triton's k_width is 16, the others hold 32 consecutive k.
        at = positions(gl.DotOperandLayout(0, mfma_layout(m, k), 16 if bits == 8 else 32), (m, k))
        for i, row in enumerate(pack(chosen[at[..., 0], at[..., 1]], bits)):
            registers[first + i] = row
        matrices.append(table[chosen])
        scales.append(rng.integers(120, 135, (m, k // 32)))
        lane = np.arange(64)
        # Byte 1 of A's and byte 2 of B's scale register, chosen by op_sel.
        registers[16 + operand] = scales[-1][lane % m, lane // m] << (8 * (1 + operand)) | 0x7F
    last = m * m // 64 - 1
    name = mnemonic if with_scale else mnemonic.replace("_scale", "")
    text = f"{name} a[0:{last}], v[0:7], v[8:15], 0"
    if with_scale:
        text += ", v16, v17 op_sel:[1,0,0] op_sel_hi:[0,1,0]"
        matrices = [x * np.repeat(2.0 ** (s - 127), 32, axis=1) for x, s in zip(matrices, scales, strict=True)]
    result = run(f"{text} cbsz:{format_a} blgp:{format_b}", v={**dict.fromkeys(range(16), 0), **registers})
    expected = matrices[0] @ matrices[1].T
    at_c = positions(mfma_layout(m, k), (m, m))
    for i in range(last + 1):
        wanted = expected[at_c[i, :, 0], at_c[i, :, 1]]
        np.testing.assert_allclose(result.a.f32(i)[0], wanted, rtol=1e-5, atol=1e-4 * np.abs(expected).max())
