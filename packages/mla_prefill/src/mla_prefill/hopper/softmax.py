"""Online softmax of one warpgroup, everything in registers, in powers of two.

Exponents are `scale_log2 * scores`, base 2, with scale_log2 = |softmax_scale| * log2(e), so that one fused multiply-add
and one hardware exponential make a probability. `row_max` keeps the largest score, not scaled.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.stages.row_mask import compute_masked_scores

LANES_PER_ROW = gl.constexpr(4)  # lanes that share a row of an accumulator (mla_core.layouts.wgmma)
COLUMNS_PER_LANE = gl.constexpr(2)  # neighbouring columns of one of them


@gluon.jit
def exp2(x):
    """2^x by the hardware's approximation, denormal results as 0."""
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def by_lane(x):
    """`[rows, columns]` as `[rows, groups, 4, 2]`: a lane holds one index of the third axis, and all of the others."""
    return x.reshape([x.shape[0], x.shape[1] // (LANES_PER_ROW * COLUMNS_PER_LANE), LANES_PER_ROW, COLUMNS_PER_LANE])


@gluon.jit
def lane_row_sum(p):
    """Sums of what each lane holds of a row: `[rows, columns]` -> `[rows, 4]`, without exchange between lanes."""
    return gl.sum(gl.sum(by_lane(p), 3), 1)


@gluon.jit
def mask_from(scores, visible, STEP: gl.constexpr):
    """-inf in the columns of row r from `visible + STEP * r` on, whatever they hold.

    What varies between lanes goes into the bound, so that an element is compared with a constant, and no register
    keeps its column.
    """
    parts = by_lane(scores)
    no_pair: gl.constexpr = gl.SliceLayout(3, parts.type.layout)
    bound_layout: gl.constexpr = gl.SliceLayout(1, no_pair)
    row = gl.arange(0, parts.shape[0], gl.SliceLayout(1, bound_layout))
    lane = gl.arange(0, parts.shape[2], gl.SliceLayout(0, bound_layout))
    bound = (visible + STEP * row)[:, None] - (COLUMNS_PER_LANE * lane)[None, :]
    group = gl.arange(0, parts.shape[1], gl.SliceLayout(0, gl.SliceLayout(2, no_pair)))
    pair = gl.arange(0, parts.shape[3], gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, parts.type.layout))))
    column = (LANES_PER_ROW * COLUMNS_PER_LANE * group)[None, :, None, None] + pair[None, None, None, :]
    masked = compute_masked_scores(parts, column, bound[:, None, :, None])
    return gl.convert_layout(masked.reshape(scores.shape), scores.type.layout, assert_trivial=True)


@gluon.jit
def scale_lane_sum(lane_sum, factor):
    """lane_sum `[64, 4]` times factor `[64]`, which has the layout of an accumulator's rows."""
    rows = gl.convert_layout(factor, gl.SliceLayout(1, lane_sum.type.layout), assert_trivial=True)
    return lane_sum * rows[:, None]


@gluon.jit
def finite_or_zero(row_max, MAY_BE_EMPTY: gl.constexpr):
    """The maximum to subtract; 0 in a row that has seen no key, whose maximum is -inf."""
    if MAY_BE_EMPTY:
        return gl.where(row_max == float("-inf"), 0.0, row_max)
    else:
        return row_max


@gluon.jit
def compute_first(scores, scale_log2):
    """Probabilities, row maxima and lane sums of a row's first block, which may be masked all over."""
    row_max = gl.max(scores, 1)
    p = exp2(gl.fma(scores, scale_log2, -(finite_or_zero(row_max, True) * scale_log2)[:, None]))
    return p, row_max, lane_row_sum(p)


@gluon.jit
def compute_next(scores, row_max, lane_sum, scale_log2, MAY_BE_EMPTY: gl.constexpr):
    """The same of a further block; also the factor for what was accumulated before."""
    new_max = gl.maximum(row_max, gl.max(scores, 1))
    shift = finite_or_zero(new_max, MAY_BE_EMPTY) * scale_log2
    decay = exp2(row_max * scale_log2 - shift)
    p = exp2(gl.fma(scores, scale_log2, -shift[:, None]))
    return p, new_max, scale_lane_sum(lane_sum, decay) + lane_row_sum(p), decay


@gluon.jit
def compute_row_sum(lane_sum, row_max):
    """Row sums `[64]` in the layout of row_max."""
    return gl.convert_layout(gl.sum(lane_sum, 1), row_max.type.layout, assert_trivial=True)


@gluon.constexpr_function
def _round_pair(dtype):
    """Instruction that rounds two fp32 to one word of dtype, its first operand in the low half."""
    return f"cvt.rn.{'bf16' if dtype.is_bf16() else 'f16'}x2.f32 $0, $2, $1;"


@gluon.jit
def pack_pairs(p, DTYPE: gl.constexpr):
    """Probabilities rounded to DTYPE, neighbouring columns in one word: fp32 `[rows, n]` -> int32 `[rows, n / 2]`.

    A loop carries them in this form: 16-bit values that two loops carry in turn get packed anew in every turn.
    """
    even, odd = gl.split(p.reshape([p.shape[0], p.shape[1] // 2, 2]))
    asm: gl.constexpr = _round_pair(DTYPE)
    return gl.inline_asm_elementwise(asm, "=r,f,f", [even, odd], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit
def unpack_pairs(packed, DTYPE: gl.constexpr, LAYOUT: gl.constexpr):
    """The inverse of `pack_pairs`, as `[rows, n]` of DTYPE in LAYOUT, whose lanes hold the same elements."""
    low = (packed & 0xFFFF).to(gl.int16).to(DTYPE, bitcast=True)
    high = (packed >> 16).to(gl.int16).to(DTYPE, bitcast=True)
    pairs = gl.join(low, high).reshape([packed.shape[0], 2 * packed.shape[1]])
    return gl.convert_layout(pairs, LAYOUT, assert_trivial=True)
