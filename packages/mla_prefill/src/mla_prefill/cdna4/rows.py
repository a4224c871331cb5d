"""A tile of queries in registers: 32 rows a wave, their scores, softmax and output."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.stages.online_softmax import (
    compute_decay,
    compute_probabilities,
    compute_row_sum,
    compute_scaled_row_max,
)
from mla_prefill.cdna4.config import ROWS_PER_WAVE as _ROWS_PER_WAVE
from mla_prefill.problem import QK_NOPE_HEAD_DIM, QK_ROPE_HEAD_DIM, V_HEAD_DIM

cdna4 = gl.amd.cdna4

NOPE = gl.constexpr(QK_NOPE_HEAD_DIM)
ROPE = gl.constexpr(QK_ROPE_HEAD_DIM)
V_DIM = gl.constexpr(V_HEAD_DIM)
ROWS = gl.constexpr(_ROWS_PER_WAVE)
SIGN_BIT = gl.constexpr(-(2**31))
INFINITY_BITS = gl.constexpr(0x7F800000)  # of fp32
K_WIDTH = gl.constexpr(8)  # consecutive k elements a lane holds of Q and K: one 16-byte read
P_WIDTH = gl.constexpr(4)  # of P and V: what a lane holds of S, so that P needs no exchange between lanes


@gluon.constexpr_function
def scores_layout(num_warps):
    """Layout of S and O: the waves side by side along the queries; a lane has 4 consecutive columns of one row."""
    return gl.amd.AMDMFMALayout(
        version=4, instr_shape=[ROWS.value, ROWS.value, 16], transposed=True, warps_per_cta=[num_warps, 1]
    )


@gluon.constexpr_function
def operand_layout(operand, num_warps, k_width):
    """Left (0) or right (1) operand of a matrix product with that result layout."""
    return gl.DotOperandLayout(operand, scores_layout(num_warps), k_width)


@gluon.jit
def compute_capped_products(products, visible):
    """`products [rows, keys]` where key < visible `[rows]`, else -inf, whatever they were (NaN too).

    The sign of visible - 1 - key becomes that of an infinity, and the smaller of the two is taken (IEEE 754 minNum
    ignores a NaN). A comparison instead would hold a mask of 64 lanes in scalar registers for each key of a lane, all at once.
    """
    key = gl.arange(0, products.shape[1], layout=gl.SliceLayout(0, products.type.layout))
    sign = ((visible - 1)[:, None] - key[None, :]) & SIGN_BIT
    cap = (sign | INFINITY_BITS).to(gl.float32, bitcast=True)
    return gl.minimum(products, cap)


@gluon.jit
def compute_softmax(products, row_max, row_sum, output, scale_log2, visible, MASKED: gl.constexpr):
    """Online softmax of one tile: (P, row_max, row_sum, output rescaled to the new row_max).

    visible `[block_m]`: keys of this tile that each row sees, read where MASKED.
    """
    if MASKED:
        products = compute_capped_products(products, visible)
    new_max = compute_scaled_row_max(products, scale_log2, row_max)
    decay = compute_decay(row_max, new_max)
    probabilities = compute_probabilities(products * scale_log2, new_max)
    row_sum = compute_row_sum(row_sum, decay, probabilities)
    return probabilities, new_max, row_sum, output * decay[:, None]


@gluon.jit
def load_queries(base, token_stride, columns: gl.constexpr, first, rows, BLOCK_M: gl.constexpr, NEGATE: gl.constexpr):
    """`[BLOCK_M, columns]` of Q from column `first` on, as left operand; rows from `rows` on are 0."""
    operand: gl.constexpr = operand_layout(0, gl.num_warps(), K_WIDTH)
    row = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, operand))
    column = gl.arange(0, columns, layout=gl.SliceLayout(0, operand))
    offsets = row[:, None] * token_stride + column[None, :] + first
    q = cdna4.buffer_load(base, offsets, mask=(row < rows)[:, None], other=0.0)
    if NEGATE:
        q = -q
    return q


@gluon.jit
def store_rows(base, token_stride, output, rows):
    """Stores the first `rows` rows of `[block_m, 128]`."""
    layout: gl.constexpr = output.type.layout
    row = gl.arange(0, output.shape[0], layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, output.shape[1], layout=gl.SliceLayout(0, layout))
    offsets = row[:, None] * token_stride + column[None, :]
    cdna4.buffer_store(output.to(base.dtype.element_ty), base, offsets, mask=(row < rows)[:, None])
