"""Half precision and packed 16-bit instructions against NumPy's float16 and Python integers."""

import itertools

import numpy as np
import pytest

from mla_testing.gfx950.probe import run

EDGES = (
    0x0000,
    0x3C00,
    0xBC00,
    0x7BFF,
    0x0001,
    0x8000,
    0x3555,
    0xC248,
)  # f16: 0, 1, -1, largest, smallest, -0, 1/3, -3.14
PAIRS = list(itertools.product(EDGES, EDGES))
A, B = (np.array(x, np.uint16) for x in zip(*PAIRS, strict=True))
C = np.roll(B, 7)


def f64(bits):
    return bits.view(np.float16).astype(np.float64)


def rounded(value):
    """Round a double once to half precision."""
    with np.errstate(over="ignore"):
        return value.astype(np.float16)


def same(found, expected):
    np.testing.assert_array_equal(found.astype(np.uint16).view(np.float16), expected)


FLOAT = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": np.fmax,
    "min": np.fmin,
}
INTEGER = {
    "v_pk_add_u16": lambda a, b: a + b,
    "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_sub_i16": lambda a, b: a - b,
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_lshlrev_b16": lambda a, b: b << a % 16,
    "v_pk_lshrrev_b16": lambda a, b: b >> a % 16,
    "v_pk_ashrrev_i16": lambda a, b: s16(b) >> a % 16,
    "v_pk_max_i16": lambda a, b: max(s16(a), s16(b)),
    "v_pk_min_i16": lambda a, b: min(s16(a), s16(b)),
    "v_pk_max_u16": max,
    "v_pk_min_u16": min,
}
ONE = {"v_rcp_f16": lambda a: 1 / a, "v_sqrt_f16": np.sqrt, "v_exp_f16": np.exp2, "v_log_f16": np.log2}
MNEMONICS = {f"v_{x}_f16" for x in FLOAT} | {f"v_pk_{x}_f16" for x in FLOAT} | {*INTEGER, *ONE}
MNEMONICS |= {"v_sub_f16", "v_subrev_f16", "v_fma_f16", "v_fmac_f16", "v_max3_f16", "v_maximum3_f16", "v_pk_fma_f16"}
MNEMONICS |= {"v_pk_maximum3_f16", "v_pk_minimum3_f16", "v_pk_mad_u16", "v_pk_mad_i16"}


def s16(x):
    return x - (1 << 16) if x >> 15 else x


@pytest.mark.parametrize("name", FLOAT)
def test_float(name):
    expected = rounded(FLOAT[name](f64(A), f64(B)))
    single = run(f"v_{name}_f16_e32 v2, v0, v1", v={0: A, 1: B, 2: 0xFFFFFFFF}).v[2][0]
    same(single, expected)
    assert (single >> 16 == 0).all()
    packed = run(f"v_pk_{name}_f16 v2, v0, v1", v={0: A | np.uint32(0x3C00 << 16), 1: B | B.astype(np.uint32) << 16})
    same(packed.v[2][0] & 0xFFFF, expected)
    same(packed.v[2][0] >> 16, rounded(FLOAT[name](np.ones(64), f64(B))))


def test_packed_float_modifiers():
    registers = {0: 0x4000_3C00, 1: 0x4400_4200}  # (1, 2) and (3, 4)
    found = run("v_pk_add_f16 v2, v0, v1 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[1,0] neg_hi:[0,1]", v=registers).v[2][
        0, 0
    ]
    same(np.array([found & 0xFFFF, found >> 16]), np.float16([-2 + 3, 1 - 4]))


def test_subtraction_and_constants():
    same(run("v_sub_f16_e32 v1, v0, v0", v={0: A}).v[1][0], np.zeros(64, np.float16))
    same(run("v_subrev_f16_e32 v1, v0, v2", v={0: A, 2: B}).v[1][0], rounded(f64(B) - f64(A)))
    same(run("v_add_f16_e64 v1, -|v0|, 1.0", v={0: A}).v[1][0], rounded(1 - np.abs(f64(A))))


@pytest.mark.parametrize("name", ONE)
def test_one_source(name):
    with np.errstate(all="ignore"):
        expected = rounded(ONE[name](f64(A)))
    same(run(f"{name}_e32 v1, v0", v={0: A}).v[1][0], expected)


def test_three_sources():
    registers = {0: A, 1: B, 2: C}
    product = rounded(f64(A) * f64(B) + f64(C))
    same(run("v_fma_f16 v3, v0, v1, v2", v=registers).v[3][0], product)
    same(run("v_fmac_f16_e32 v2, v0, v1", v=registers).v[2][0], product)
    same(run("v_pk_fma_f16 v3, v0, v1, v2 op_sel_hi:[0,0,0]", v=registers).v[3][0] >> 16, product)
    largest = np.maximum(np.maximum(f64(A), f64(B)), f64(C)).astype(np.float16)
    for name in ("v_max3_f16", "v_maximum3_f16", "v_pk_maximum3_f16"):
        same(run(f"{name} v3, v0, v1, v2", v=registers).v[3][0] & 0xFFFF, largest)
    smallest = np.minimum(np.minimum(f64(A), f64(B)), f64(C)).astype(np.float16)
    same(run("v_pk_minimum3_f16 v3, v0, v1, v2", v=registers).v[3][0] & 0xFFFF, smallest)
    nan = run("v_maximum3_f16 v3, v0, v1, v2", v={0: 0x7E00, 1: 0, 2: 0}).v[3][0, 0]
    assert nan & 0x7FFF > 0x7C00


@pytest.mark.parametrize("name", INTEGER)
def test_packed_integers(name):
    registers = {0: A | B.astype(np.uint32) << 16, 1: B | A.astype(np.uint32) << 16}
    found = run(f"{name} v2, v0, v1", v=registers).v[2][0]
    assert (found & 0xFFFF).tolist() == [INTEGER[name](a, b) & 0xFFFF for a, b in PAIRS]
    assert (found >> 16).tolist() == [INTEGER[name](b, a) & 0xFFFF for a, b in PAIRS]


@pytest.mark.parametrize("name", ["v_pk_mad_u16", "v_pk_mad_i16"])
def test_packed_multiply_add(name):
    found = run(f"{name} v3, v0, v1, v2", v={0: A, 1: B, 2: C}).v[3][0]
    assert (found & 0xFFFF).tolist() == [(int(a) * int(b) + int(c)) & 0xFFFF for a, b, c in zip(A, B, C, strict=True)]
