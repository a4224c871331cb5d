"""Number formats: bit patterns to float32 and back. Verified bit for bit against torch in the tests."""

import numpy as np

U32, F32 = np.uint32, np.float32


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """uint16 or uint32 (low half) patterns to float32."""
    return (np.asarray(bits).astype(U32) << U32(16)).view(F32)


def f32_to_bf16(value: np.ndarray) -> np.ndarray:
    """Round to nearest even; a NaN stays a (quiet) NaN and keeps its upper payload. Result: uint32 in 0..0xffff."""
    bits = np.ascontiguousarray(value, F32).view(U32)
    high = bits >> U32(16)
    rounded = (bits + U32(0x7FFF) + (high & U32(1))) >> U32(16)
    nan = (bits & U32(0x7FFFFFFF)) > U32(0x7F800000)
    return np.where(nan, high | U32(0x40), rounded) if nan.any() else rounded


def f16_to_f32(bits: np.ndarray) -> np.ndarray:
    return np.asarray(bits).astype(np.uint16).view(np.float16).astype(F32)


def f32_to_f16(value: np.ndarray) -> np.ndarray:
    """Round to nearest even. Result: uint32 in 0..0xffff."""
    return np.asarray(value).astype(np.float16).view(np.uint16).astype(U32)


def _table(exponent_bits: int, mantissa_bits: int, bias: int, top: str) -> np.ndarray:
    """All values of a small format. ``top``: what the largest exponent means ("ieee", "fn" or "finite")."""
    size = 1 << (1 + exponent_bits + mantissa_bits)
    table = np.zeros(size, F32)
    for code in range(size):
        sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
        exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
        mantissa = code & ((1 << mantissa_bits) - 1)
        fraction = mantissa / (1 << mantissa_bits)
        highest = exponent == (1 << exponent_bits) - 1
        if highest and top == "ieee":
            table[code] = np.nan if mantissa else sign * np.inf
        elif highest and top == "fn" and mantissa == (1 << mantissa_bits) - 1:
            table[code] = np.nan
        elif exponent == 0:
            table[code] = sign * fraction * 2.0 ** (1 - bias)
        else:
            table[code] = sign * (1 + fraction) * 2.0 ** (exponent - bias)
    return table


E4M3 = _table(4, 3, 7, "fn")  # OCP FP8 E4M3: no infinity, NaN at S.1111.111
E5M2 = _table(5, 2, 15, "ieee")  # OCP FP8 E5M2
E2M3 = _table(2, 3, 1, "finite")  # OCP MX FP6
E3M2 = _table(3, 2, 3, "finite")
E2M1 = _table(2, 1, 1, "finite")  # OCP MX FP4


def f32_to_e4m3(value: np.ndarray) -> np.ndarray:
    """Round to nearest even, saturate at 448; NaN becomes 0x7f with the sign kept. Result: uint32 in 0..0xff."""
    return _round_to_table(value, E4M3, largest=0x7E, nan=0x7F)


def f32_to_e5m2(value: np.ndarray) -> np.ndarray:
    """Round to nearest even, saturate at 57344; NaN becomes 0x7f with the sign kept."""
    return _round_to_table(value, E5M2, largest=0x7B, nan=0x7F)


def f32_to_e2m1(value: np.ndarray) -> np.ndarray:
    return _round_to_table(value, E2M1, largest=0x7, nan=0x7)


def _round_to_table(value: np.ndarray, table: np.ndarray, largest: int, nan: int) -> np.ndarray:
    """Codes grow with magnitude, so rounding is a search between neighbouring codes; ties go to the even code."""
    value = np.asarray(value, F32)
    grid = table[: largest + 1].astype(np.float64)
    middle = (grid[1:] + grid[:-1]) / 2
    magnitude = np.abs(value).astype(np.float64)
    low = np.searchsorted(middle, magnitude, side="left")
    tie = (low < largest) & (magnitude == middle[np.minimum(low, largest - 1)]) & (low % 2 == 1)
    code = np.where(np.isnan(value), nan, low + tie).astype(U32)
    return code | np.where(np.signbit(value), U32(len(table) // 2), U32(0))


def exponent_of(bits: np.ndarray) -> np.ndarray:
    """Biased exponent of float32 patterns, as int32."""
    return ((np.asarray(bits) >> U32(23)) & U32(0xFF)).astype(np.int32)


def e8m0_to_f32(bits: np.ndarray) -> np.ndarray:
    """OCP MX scale: 2 ** (code - 127), NaN for 0xff."""
    code = np.asarray(bits).astype(U32) & U32(0xFF)
    scale = np.ldexp(np.ones_like(code, F32), np.minimum(code, 0xFE).astype(np.int32) - 127)
    return np.where(code == 0xFF, F32(np.nan), scale)
