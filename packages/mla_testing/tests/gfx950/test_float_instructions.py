"""Float instructions: IEEE results from Python doubles, special values by the ISA's rules."""

import math

import numpy as np
import pytest

from mla_testing.gfx950.probe import run

INF, NAN = float("inf"), float("nan")
VALUES = (0.0, -0.0, 1.0, -1.5, 3.25, 1e-30, -1e30, INF, -INF, NAN, 0.1, 1e20, -7.0, 2.5, 1e-40, 123456.789)
LANES = np.array([VALUES[i % 16] for i in range(64)], np.float32)
OTHER = np.array([VALUES[(5 * i + i // 16) % 16] for i in range(64)], np.float32)
THIRD = np.array([VALUES[(3 * i + i // 4) % 16] for i in range(64)], np.float32)


def f32(x):
    """Round a Python float to single precision."""
    with np.errstate(over="ignore"):
        return float(np.float32(x))


def same(found, expected):
    found, expected = np.asarray(found, np.float32), np.asarray(expected, np.float32)
    np.testing.assert_array_equal(found, expected)
    keep = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[keep]), np.signbit(expected[keep]))


def number_max(a, b):
    """maxNum: a NaN loses against a number."""
    return b if math.isnan(a) else a if math.isnan(b) else max(a, b)


def number_min(a, b):
    return b if math.isnan(a) else a if math.isnan(b) else min(a, b)


def propagating(function):
    return lambda *xs: NAN if any(math.isnan(x) for x in xs) else function(xs)


def times(a, b):
    return a * b


def guarded(function, bad=NAN):
    def call(x):
        try:
            return function(x)
        except (ValueError, OverflowError, ZeroDivisionError):
            return bad(x) if callable(bad) else bad

    return call


ONE = {
    "v_exp_f32": guarded(lambda x: 2.0**x, lambda x: INF),
    "v_log_f32": guarded(math.log2, lambda x: -INF if x == 0 else NAN),
    "v_rcp_f32": lambda x: math.copysign(INF, x) if x == 0 else 1 / x,
    "v_rcp_iflag_f32": lambda x: math.copysign(INF, x) if x == 0 else 1 / x,
    "v_sqrt_f32": guarded(math.sqrt),
    "v_rsq_f32": guarded(lambda x: 1 / math.sqrt(x), lambda x: math.copysign(INF, x) if x == 0 else NAN),
    "v_rndne_f32": guarded(lambda x: math.copysign(round(x), x), lambda x: x),
    "v_floor_f32": guarded(lambda x: math.copysign(math.floor(x), x), lambda x: x),
    "v_ceil_f32": guarded(lambda x: math.copysign(math.ceil(x), x), lambda x: x),
    "v_trunc_f32": guarded(lambda x: math.copysign(math.trunc(x), x), lambda x: x),
    "v_frexp_mant_f32": lambda x: math.frexp(x)[0],
}
TWO = {
    "v_add_f32": lambda a, b: a + b,
    "v_sub_f32": lambda a, b: a - b,
    "v_subrev_f32": lambda a, b: b - a,
    "v_mul_f32": times,
    "v_mul_legacy_f32": lambda a, b: 0.0 if a == 0 or b == 0 else a * b,
    "v_max_f32": number_max,
    "v_min_f32": number_min,
}
THREE = {
    "v_max3_f32": lambda a, b, c: number_max(number_max(a, b), c),
    "v_min3_f32": lambda a, b, c: number_min(number_min(a, b), c),
    "v_maximum3_f32": propagating(max),
    "v_minimum3_f32": propagating(min),
}
ORDERED = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a < b or a > b,
    "o": lambda a, b: a == a and b == b,
}
# The remaining conditions are the negations: true for unordered operands.
NEGATED = {"nlt": "lt", "nle": "le", "ngt": "gt", "nge": "ge", "neq": "eq", "nlg": "lg", "u": "o"}
MNEMONICS = {*ONE, *TWO, *THREE, "v_fma_f32", "v_fmac_f32", "v_fmamk_f32", "v_fmaak_f32", "v_ldexp_f32", "v_med3_f32"}
MNEMONICS |= {"v_fract_f32", "v_frexp_exp_i32_f32", "v_cmp_class_f32", "v_div_scale_f32", "v_div_fmas_f32"}
MNEMONICS |= {"v_div_fixup_f32", "v_pk_add_f32", "v_pk_mul_f32", "v_pk_fma_f32", "v_pk_mov_b32"}
MNEMONICS |= {f"v_{k}_{c}_{t}" for k in ("cmp", "cmpx") for c in (*ORDERED, *NEGATED) for t in ("f32", "f16")}


@pytest.mark.parametrize("mnemonic", ONE)
def test_one_source(mnemonic):
    found = run(f"{mnemonic}_e32 v1, v0", v={0: LANES}).v.f32(1)[0]
    expected = np.array([f32(ONE[mnemonic](float(x))) for x in LANES], np.float32)
    if mnemonic in ("v_exp_f32", "v_log_f32", "v_rsq_f32"):  # the hardware, too, is only within 1 ulp
        np.testing.assert_allclose(found, expected, rtol=2.5e-7, atol=1e-45)
    else:
        same(found, expected)


@pytest.mark.parametrize("mnemonic", TWO)
def test_two_sources(mnemonic):
    found = run(f"{mnemonic}_e32 v2, v0, v1", v={0: LANES, 1: OTHER}).v.f32(2)[0]
    expected = [f32(TWO[mnemonic](float(a), float(b))) for a, b in zip(LANES, OTHER, strict=True)]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


@pytest.mark.parametrize("mnemonic", THREE)
def test_three_sources(mnemonic):
    found = run(f"{mnemonic} v3, v0, v1, v2", v={0: LANES, 1: OTHER, 2: THIRD}).v.f32(3)[0]
    expected = [THREE[mnemonic](*(float(x) for x in abc)) for abc in zip(LANES, OTHER, THIRD, strict=True)]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_median():
    found = run("v_med3_f32 v3, v0, v1, v2", v={0: 3.0, 1: -1.0, 2: 2.0}).v.f32(3)
    assert (found == 2.0).all()


def test_fraction():
    assert run("v_fract_f32_e32 v1, v0", v={0: -1.25}).v.f32(1)[0, 0] == 0.75


# 1 + 2**-23 squared needs 47 bits: only a fused operation keeps the last one when 1 + 2**-22 is subtracted.
A, C = np.float32(1 + 2**-23), np.float32(-(1 + 2**-22))


@pytest.mark.parametrize(
    "text",
    [
        "v_fma_f32 v2, v0, v0, v1",
        "v_mov_b32_e32 v2, v1\nv_fmac_f32_e32 v2, v0, v0",
        "v_fmamk_f32 v2, v0, 0x3f800001, v1",
        "v_fmaak_f32 v2, v0, v0, 0xbf800002",
        "v_pk_fma_f32 v[2:3], v[0:1], v[0:1], v[4:5] op_sel_hi:[0,0,1]",
    ],
)
def test_fused_operations_round_once(text):
    assert run(text, v={0: A, 1: C, 2: 0, 3: 0, 4: C, 5: C}).v.f32(2)[0, 0] == 2.0**-46


def test_output_modifiers():
    registers = {0: np.array([-1.0, 0.25, 3.0, NAN] * 16, np.float32)}
    clamped = run("v_mul_f32_e64 v1, v0, 1.0 clamp", v=registers).v.f32(1)[0, :4]
    assert clamped.tolist() == [0.0, 0.25, 1.0, 0.0]
    assert run("v_add_f32_e64 v1, v0, v0 mul:4", v={0: 1.5}).v.f32(1)[0, 0] == 12.0
    assert run("v_add_f32_e64 v1, v0, v0 div:2", v={0: 1.5}).v.f32(1)[0, 0] == 1.5


def test_source_modifiers():
    assert run("v_add_f32_e64 v1, -|v0|, |v0|", v={0: -3.0}).v.f32(1)[0, 0] == 0.0
    assert run("v_sub_f32_e64 v1, -v0, |s0|", v={0: -3.0}, s={0: np.float32(-1.0)}).v.f32(1)[0, 0] == 2.0
    assert run("v_max_f32_e64 v1, -v0, neg(1.0)", v={0: 3.0}).v.f32(1)[0, 0] == -1.0


def test_exponents():
    registers = {0: np.array([1.5, 0.0, -8.0, INF] * 16, np.float32), 1: np.array([4, 3, -3, 0] * 16)}
    assert run("v_ldexp_f32 v2, v0, v1", v=registers).v.f32(2)[0, :4].tolist() == [24.0, 0.0, -1.0, INF]
    assert run("v_frexp_exp_i32_f32_e32 v2, v0", v=registers).v[2][0, :4].tolist() == [1, 0, 4, 0]


def test_classes():
    values = np.array([INF, -INF, 1.0, -1.0, 0.0, -0.0, 1e-40, NAN] * 8, np.float32)
    masks = {9: 0, 2: 1, 8: 2, 3: 3, 6: 4, 5: 5, 7: 6, 1: 7}  # bit of v_cmp_class -> position of its value
    for bit, position in masks.items():
        result = run(f"v_cmp_class_f32_e64 s[0:1], v0, v1", v={0: values, 1: 1 << bit})  # noqa: F541
        assert result.mask(0) & 0xFF == 1 << position


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("condition", [*ORDERED, *NEGATED])
def test_comparisons(condition, kind):
    if kind == "f32":
        a, b = LANES, OTHER
        registers = {0: a, 1: b}
    else:
        with np.errstate(over="ignore"):
            a, b = LANES.astype(np.float16), OTHER.astype(np.float16)
        registers = {0: a.view(np.uint16), 1: b.view(np.uint16)}
    pairs = [(float(x), float(y)) for x, y in zip(a, b, strict=True)]
    if condition in ORDERED:
        truth = [ORDERED[condition](x, y) for x, y in pairs]
    else:
        truth = [not ORDERED[NEGATED[condition]](x, y) for x, y in pairs]
    result = run(f"v_cmp_{condition}_{kind}_e32 vcc, v0, v1", v=registers)
    assert result.mask() == sum(t << lane for lane, t in enumerate(truth))
    result = run(f"v_cmpx_{condition}_{kind}_e64 s[0:1], v0, v1", v=registers, exec_mask=0xFFFF)
    assert result.mask(126) == sum(t << lane for lane, t in enumerate(truth[:16]))


def divide(a, b):
    """The sequence LLVM emits for an IEEE division."""
    text = """
        v_div_scale_f32 v2, s[0:1], v1, v1, v0
        v_rcp_f32_e32 v3, v2
        v_fma_f32 v4, -v2, v3, 1.0
        v_fmac_f32_e32 v3, v4, v3
        v_div_scale_f32 v4, vcc, v0, v1, v0
        v_mul_f32_e32 v5, v4, v3
        v_fma_f32 v6, -v2, v5, v4
        v_fmac_f32_e32 v5, v6, v3
        v_fma_f32 v2, -v2, v5, v4
        v_div_fmas_f32 v2, v2, v3, v5
        v_div_fixup_f32 v0, v2, v1, v0
    """
    return run(text, v={0: np.asarray(a, np.float32), 1: np.asarray(b, np.float32)}).v.f32(0)[0]


def test_division_is_correctly_rounded():
    rng = np.random.default_rng(1)
    for scale in (0, 30, 60, 120):
        exponents = rng.integers(-scale - 1, scale + 1, (2, 64))
        a, b = (rng.uniform(1, 2, 64) * 2.0 ** exponents[i] for i in range(2))
        a, b = a.astype(np.float32), b.astype(np.float32)
        with np.errstate(over="ignore", under="ignore"):
            expected = (a.astype(np.float64) / b).astype(np.float32)
        normal = (np.abs(expected) > 2.0**-126) & np.isfinite(expected)
        np.testing.assert_array_equal(divide(a, b)[normal], expected[normal])


def test_division_of_special_values():
    a = np.array([1, 0, -1, INF, 1, NAN, 0, INF] * 8, np.float32)
    b = np.array([0, 1, 0, 2, INF, 1, 0, INF] * 8, np.float32)
    same(divide(a, b)[:8], [INF, 0, -INF, INF, 0, NAN, NAN, NAN])


@pytest.mark.parametrize(("mnemonic", "function"), [("v_pk_add_f32", np.add), ("v_pk_mul_f32", np.multiply)])
def test_packed_operations_pick_halves(mnemonic, function):
    registers = {0: 1.0, 1: 2.0, 2: 10.0, 3: 20.0}
    plain = run(f"{mnemonic} v[4:5], v[0:1], v[2:3]", v=registers)
    assert (plain.v.f32(4)[0, 0], plain.v.f32(5)[0, 0]) == (function(1, 10), function(2, 20))
    crossed = run(f"{mnemonic} v[4:5], v[0:1], v[2:3] op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1]", v=registers)
    assert (crossed.v.f32(4)[0, 0], crossed.v.f32(5)[0, 0]) == (function(2, -10), function(1, 20))
    scalar = run(f"{mnemonic} v[4:5], v[0:1], s[0:1] op_sel_hi:[1,0]", v=registers, s={0: np.float32(3.0), 1: 0})
    assert (scalar.v.f32(4)[0, 0], scalar.v.f32(5)[0, 0]) == (function(1, 3), function(2, 3))


def test_packed_operation_may_overwrite_its_source():
    result = run("v_pk_add_f32 v[0:1], v[0:1], v[0:1] op_sel:[0,1] op_sel_hi:[1,0]", v={0: 1.0, 1: 2.0})
    assert (result.v.f32(0)[0, 0], result.v.f32(1)[0, 0]) == (3.0, 3.0)


def test_packed_move():
    registers = {0: 1, 1: 2, 2: 3, 3: 4}
    result = run("v_pk_mov_b32 v[4:5], v[0:1], v[2:3] op_sel:[1,0]", v=registers)
    assert (result.v[4][0, 0], result.v[5][0, 0]) == (2, 3)
    result = run("v_pk_mov_b32 v[0:1], v[0:1], v[0:1] op_sel:[1,0]", v=registers)
    assert (result.v[0][0, 0], result.v[1][0, 0]) == (2, 1)
