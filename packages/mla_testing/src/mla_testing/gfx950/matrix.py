"""Matrix (MFMA) instructions: D[M, N] = A[M, K] @ B[K, N] + C[M, N], one small matrix product per wave.

Register layout, with G = 64 / M groups of lanes and K / G values per lane (CDNA3/CDNA4 ISA guides, "Matrix Arithmetic
Instructions"; the tests derive the same maps from Triton's linear layouts):

    A  lane l holds row l % M,    k = K/G * (l // M) + j,  j = 0.. packed from the low bits of the first register
    B  lane l holds column l % N, the same k
    D  16 x 16: register r of lane l is row 4 * (l // 16) + r,                      column l % 16
       32 x 32: register r of lane l is row 8 * (r // 4) + 4 * (l // 32) + r % 4,   column l % 32

EXEC is ignored. Products are summed in float32 in an order of NumPy's choosing; the hardware's order is not modelled.
"""

import numpy as np

from .asm import Instruction
from .formats import E2M1, E2M3, E3M2, E4M3, E5M2, F32, U32, e8m0_to_f32
from .operands import immediate, parse_register, register, source_u32, vgpr
from .registry import Executor, Labels, instruction

_TYPES = {"f32": 32, "bf16": 16, "f16": 16, "fp8": 8, "bf8": 8}
_TABLES = {"fp8": E4M3, "bf8": E5M2}


def _unpack16(rows: np.ndarray, kind: str) -> np.ndarray:
    """uint32[n, waves, 64] to float32[n, 2, waves, 64]."""
    out = np.empty((rows.shape[0], 2, *rows.shape[1:]), F32)
    if kind == "bf16":
        bits = out.view(U32)
        np.left_shift(rows, U32(16), out=bits[:, 0])
        np.bitwise_and(rows, U32(0xFFFF0000), out=bits[:, 1])
    else:
        out[:, 0] = rows.astype(np.uint16).view(np.float16)
        out[:, 1] = (rows >> U32(16)).astype(np.uint16).view(np.float16)
    return out


def _unpack8(rows: np.ndarray, kind: str) -> np.ndarray:
    """uint32[n, waves, 64] to float32[n, 4, waves, 64]."""
    table = _TABLES[kind]
    return np.stack([table[(rows >> U32(8 * byte)) & U32(0xFF)] for byte in range(4)], axis=1)


def operand_matrix(rows: np.ndarray, kind: str, dimension: int) -> np.ndarray:
    """A or B registers to float32[waves, K, dimension].

    K is permuted (register, position in the register, lane group) in the same way for A and B, which a product
    cannot notice.
    """
    if kind == "f32":
        values = rows.view(F32)
    else:
        values = (_unpack16 if _TYPES[kind] == 16 else _unpack8)(rows, kind)
    waves = rows.shape[1]
    values = values.reshape(-1, waves, 64 // dimension, dimension)
    return values.transpose(1, 0, 2, 3).reshape(waves, -1, dimension)


def result_rows(product: np.ndarray) -> np.ndarray:
    """float32[waves, M, N] to accumulator registers [M * N / 64, waves, 64]."""
    waves, size, _ = product.shape
    if size == 16:  # row = 4 * group + r
        return product.reshape(waves, 4, 4, 16).transpose(2, 0, 1, 3).reshape(4, waves, 64)
    if size == 32:  # row = 8 * (r // 4) + 4 * group + r % 4
        return product.reshape(waves, 4, 2, 4, 32).transpose(1, 3, 0, 2, 4).reshape(16, waves, 64)
    raise ValueError(f"{size} x {size} accumulator")


def _accumulate(text: str, count: int):
    found = parse_register(text)
    if found is None:
        constant = np.uint32(immediate(text)).view(F32)
        return lambda g: constant
    first = found.index
    return lambda g: g.rows(first, count).view(F32)


@instruction(
    *(
        f"v_mfma_f32_{shape}_{kind}"
        for kind in ("bf16", "f16")
        for shape in ("16x16x32", "32x32x16", "16x16x16", "32x32x8")
    ),
    "v_mfma_f32_16x16x4_f32",
    "v_mfma_f32_32x32x2_f32",
    "v_mfma_f32_16x16x16_bf16_1k",
    "v_mfma_f32_32x32x8_bf16_1k",
    *(
        f"v_mfma_f32_{shape}_{a}_{b}"
        for shape in ("16x16x32", "32x32x16")
        for a in ("fp8", "bf8")
        for b in ("fp8", "bf8")
    ),
)
def mfma(item: Instruction, labels: Labels) -> Executor:
    _, _, _, shape, kinds = item.opcode.removesuffix("_1k").split("_", 4)
    size, k = int(shape.split("x")[0]), int(shape.split("x")[2])
    kind_a, _, kind_b = kinds.partition("_")
    kind_b = kind_b or kind_a
    d, a, b = (vgpr(text) for text in item.operands[:3])
    per_lane = k * size // 64
    count_a, count_b = per_lane * _TYPES[kind_a] // 32, per_lane * _TYPES[kind_b] // 32
    results = size * size // 64
    if register(item.operands[1]).count != count_a or register(item.operands[0]).count != results:
        raise ValueError("register ranges do not fit the shape")
    if any(item.has(flag) for flag in ("cbsz", "abid", "blgp", "neg")):
        raise ValueError("broadcast modifiers")
    addend = _accumulate(item.operands[3], results)

    def execute(g):
        left = operand_matrix(g.rows(a, count_a), kind_a, size)
        right = operand_matrix(g.rows(b, count_b), kind_b, size)
        product = result_rows(np.matmul(left.transpose(0, 2, 1), right))
        np.add(product, addend(g), out=g.rows(d, results).view(F32))

    return execute


# ------------------------------------------------------------------ scaled (block-scaled formats)

_SCALED = {0: (E4M3, 8), 1: (E5M2, 8), 2: (E2M3, 6), 3: (E3M2, 6), 4: (E2M1, 4)}  # cbsz / blgp -> format


def unpack_narrow(rows: np.ndarray, table: np.ndarray, bits: int) -> np.ndarray:
    """uint32[n, waves, 64] holding 32 values of ``bits`` bits per lane, little-endian, to float32[32, waves, 64]."""
    values = np.empty((32, *rows.shape[1:]), F32)
    mask = U32((1 << bits) - 1)
    for position in range(32):
        word, shift = divmod(position * bits, 32)
        code = rows[word] >> U32(shift)
        if shift + bits > 32:
            code = code | (rows[word + 1] << U32(32 - shift))
        values[position] = table[code & mask]
    return values


@instruction("v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_scale_f32_32x32x64_f8f6f4")
@instruction("v_mfma_f32_16x16x128_f8f6f4", "v_mfma_f32_32x32x64_f8f6f4")
def scaled_mfma(item: Instruction, labels: Labels) -> Executor:
    """32 values of A and B per lane, in the formats chosen by cbsz (A) and blgp (B).

    4- and 6-bit values: k = 32 * group + j. 8-bit values come in two halves: k = 16 * group + j % 16, and K / 2 more for
    j >= 16. One e8m0 scale per 32 consecutive k of a row or column, held by lane group k // 32; op_sel and op_sel_hi
    pick the byte of the scale registers (op_sel[0] + 2 * op_sel_hi[0] for A).
    """
    size = int(item.opcode.rsplit("_", 2)[1].split("x")[0])
    table_a, bits_a = _SCALED[item.number("cbsz")]
    table_b, bits_b = _SCALED[item.number("blgp")]
    d, a, b = (vgpr(text) for text in item.operands[:3])
    results, groups = size * size // 64, 64 // size
    addend = _accumulate(item.operands[3], results)
    scale_a = scale_b = None
    if "scale" in item.opcode:
        low, high = item.numbers("op_sel", [0, 0, 0]), item.numbers("op_sel_hi", [0, 0, 0])
        scale_a = _scale_source(item.operands[4], low[0] + 2 * high[0])
        scale_b = _scale_source(item.operands[5], low[1] + 2 * high[1])

    def matrix(g, first, table, bits, scale):
        values = unpack_narrow(g.rows(first, bits), table, bits)
        halves = 2 if bits == 8 else 1
        values = values.reshape(halves, 32 // halves, g.count, groups, size)
        blocks = values.transpose(2, 0, 3, 1, 4).reshape(g.count, groups, 32, size)  # k in its true order
        if scale is not None:
            blocks = blocks * scale(g).reshape(g.count, groups, 1, size)
        return blocks.reshape(g.count, groups * 32, size)

    def execute(g):
        left, right = matrix(g, a, table_a, bits_a, scale_a), matrix(g, b, table_b, bits_b, scale_b)
        product = result_rows(np.matmul(left.transpose(0, 2, 1), right))
        np.add(product, addend(g), out=g.rows(d, results).view(F32))

    return execute


def _scale_source(text: str, byte: int):
    source, shift = source_u32(text), U32(8 * byte)
    return lambda g: np.broadcast_to(e8m0_to_f32(source(g) >> shift), (g.count, 64))
