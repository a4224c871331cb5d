"""The gfx950 prefill kernel: persistent workgroups of waves with 32 queries each, all waves sharing K and V in LDS.

A workgroup takes query tiles (one sequence, one head, block_m queries) from the order of `mla_core.stages.varlen` and
for each walks the keys in tiles of block_n, from the first one to the last one visible. Step t of the steady loop:

    copies to LDS     K(t+3) V(t+2) issued .............. must have landed at step t+2
    matrix unit       Q K(t+1) ............ | P V(t) ....
    vector unit       softmax(S(t)) -> P    | scale and convert, in the shadow of the matrix instructions
                      ^ wait for K(t+1) V(t), then the one barrier of the step: all waves have left step t-1,
                        so that the copies may overwrite K(t) and V(t-1)

S(t) comes from the step before, so the scores of the next tile and the softmax of this one do not depend on each other
and the compiler's scheduler mixes them. Steps that see only whole, wholly visible tiles, and copy only whole ones, run
unmasked and without guards; the last few run masked and guarded, the very last one outside the loop.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.gluon_compat import aggregate, wait_all_waves
from mla_core.layouts.cdna4 import COPY_ELEMENTS as _COPY_ELEMENTS
from mla_core.layouts.cdna4_flat import KEY_PADDING, VALUE_PADDING, flat_copy_layout, flat_shared_layout
from mla_core.stages.online_softmax import (
    ROW_MAX_START,
    compute_decay,
    compute_normalisation,
    compute_probabilities,
    compute_row_sum,
    compute_scaled_row_max,
)
from mla_core.stages.row_mask import compute_visible_values
from mla_core.stages.varlen import (
    TOP_LEVEL,
    compute_rank,
    compute_tile,
    compute_total_tiles,
    compute_turns,
    find_level,
)
from mla_prefill.cdna4.config import ROWS_PER_WAVE as _ROWS_PER_WAVE
from mla_prefill.cdna4.config import STAGES as _STAGES
from mla_prefill.problem import QK_NOPE_HEAD_DIM, QK_ROPE_HEAD_DIM, V_HEAD_DIM

cdna4 = gl.amd.cdna4
async_copy = gl.amd.cdna4.async_copy

COPY_ELEMENTS = gl.constexpr(_COPY_ELEMENTS)
STAGES = gl.constexpr(_STAGES)
NOPE = gl.constexpr(QK_NOPE_HEAD_DIM)
ROPE = gl.constexpr(QK_ROPE_HEAD_DIM)
V_DIM = gl.constexpr(V_HEAD_DIM)
K_PADDING = gl.constexpr(KEY_PADDING)
V_PADDING = gl.constexpr(VALUE_PADDING)
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
def issue_tile(
    destination, base, TOKEN_STRIDE: gl.constexpr, columns: gl.constexpr, first, remaining, GUARD: gl.constexpr
):
    """Starts the copy of `[tokens, columns]` from `base + first` on to LDS, 16 bytes a lane.

    GUARD: tokens from `remaining` on are not read (what LDS then holds is selected away when it is used).
    """
    tokens: gl.constexpr = destination.shape[0]
    layout: gl.constexpr = flat_copy_layout(tokens, columns, gl.num_warps())
    token = gl.arange(0, tokens, layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, columns, layout=gl.SliceLayout(0, layout))
    offsets = token[:, None] * TOKEN_STRIDE + column[None, :] + first
    if GUARD:
        async_copy.buffer_load_to_shared(destination, base, offsets, mask=(token < remaining)[:, None])
    else:
        async_copy.buffer_load_to_shared(destination, base, offsets)


@aggregate
class KeyValueRing:
    """The LDS of a workgroup: STAGES tiles of K (its two parts) and of V, used in turn."""

    k_nope: gl.shared_memory_descriptor  # [STAGES, block_n, 128]
    k_rope: gl.shared_memory_descriptor  # [STAGES, block_n, 64]
    v: gl.shared_memory_descriptor  # [STAGES, block_n, 128]
    K_STRIDE: gl.constexpr  # elements between tokens
    V_STRIDE: gl.constexpr
    BLOCK_N: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, k_nope, k_rope, v, K_STRIDE, V_STRIDE, BLOCK_N):
        self.k_nope = k_nope
        self.k_rope = k_rope
        self.v = v
        self.K_STRIDE = gl.constexpr(K_STRIDE)
        self.V_STRIDE = gl.constexpr(V_STRIDE)
        self.BLOCK_N = gl.constexpr(BLOCK_N)

    @gluon.jit
    def issue_keys(self, slot, base, remaining, GUARD: gl.constexpr):
        """Starts the copy of the K tile at `base`, of which `remaining` tokens exist."""
        issue_tile(self.k_nope.index(slot), base, self.K_STRIDE, NOPE, 0, remaining, GUARD)
        issue_tile(self.k_rope.index(slot), base, self.K_STRIDE, ROPE, NOPE, remaining, GUARD)

    @gluon.jit
    def issue_values(self, slot, base, remaining, GUARD: gl.constexpr):
        """Starts the copy of the V tile at `base`, of which `remaining` tokens exist."""
        issue_tile(self.v.index(slot), base, self.V_STRIDE, V_DIM, 0, remaining, GUARD)

    @gluon.jit
    def compute_products(self, slot, q_nope, q_rope):
        """S = Q K^T `[block_m, block_n]` fp32, not yet scaled."""
        num_warps: gl.constexpr = gl.num_warps()
        operand: gl.constexpr = operand_layout(1, num_warps, K_WIDTH)
        k_nope = async_copy.load_shared_relaxed(self.k_nope.index(slot).permute([1, 0]), operand)
        k_rope = async_copy.load_shared_relaxed(self.k_rope.index(slot).permute([1, 0]), operand)
        zero = gl.zeros([q_nope.shape[0], self.BLOCK_N], gl.float32, scores_layout(num_warps))
        return cdna4.mfma(q_rope, k_rope, cdna4.mfma(q_nope, k_nope, zero))

    @gluon.jit
    def clear_tail(self, slot, remaining):
        """Zeroes the rows of a V tile from `remaining` on, whatever LDS holds there: 0 times NaN would be NaN.

        Each lane clears what it copied, and all waves wait for each other.
        """
        layout: gl.constexpr = flat_copy_layout(self.BLOCK_N, V_DIM, gl.num_warps())
        tile = self.v.index(slot)
        token = gl.arange(0, self.BLOCK_N, layout=gl.SliceLayout(1, layout))
        tile.store(compute_visible_values(tile.load(layout), token[:, None], remaining))
        wait_all_waves()

    @gluon.jit
    def compute_output(self, slot, probabilities, output):
        """O + P V."""
        v = async_copy.load_shared_relaxed(self.v.index(slot), operand_layout(1, gl.num_warps(), P_WIDTH))
        p = gl.convert_layout(probabilities.to(v.dtype), operand_layout(0, gl.num_warps(), P_WIDTH))
        return cdna4.mfma(p, v, output)


@gluon.jit
def make_ring(dtype: gl.constexpr, K_STRIDE: gl.constexpr, V_STRIDE: gl.constexpr, BLOCK_N: gl.constexpr):
    """Allocates the LDS."""
    k_nope = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, NOPE], flat_shared_layout(BLOCK_N, NOPE, K_PADDING))
    k_rope = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, ROPE], flat_shared_layout(BLOCK_N, ROPE, K_PADDING))
    v = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, V_DIM], flat_shared_layout(BLOCK_N, V_DIM, V_PADDING))
    return KeyValueRing(k_nope, k_rope, v, K_STRIDE, V_STRIDE, BLOCK_N)


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


@gluon.jit
def attend(
    ring,
    here,
    ahead,
    free,
    q_nope,
    q_rope,
    k_base,
    v_base,
    kv_len,
    first_visible,
    steps,
    scale_log2,
    IS_CAUSAL: gl.constexpr,
):
    """All keys of one query tile: (output, row_max, row_sum), not yet normalised.

    first_visible: keys that row 0 sees; with IS_CAUSAL each later row sees one more, up to kv_len. May be negative.
    steps: tiles of keys to walk, at least 1; tokens from kv_len on are never read.
    """
    BLOCK_M: gl.constexpr = q_nope.shape[0]
    BLOCK_N: gl.constexpr = ring.BLOCK_N
    layout: gl.constexpr = scores_layout(gl.num_warps())
    row = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, layout))
    visible = gl.minimum(first_visible + row, kv_len) if IS_CAUSAL else row * 0 + kv_len

    ring.issue_keys(here, k_base, kv_len, True)
    async_copy.commit_group()
    k_base += BLOCK_N * ring.K_STRIDE
    ring.issue_keys(ahead, k_base, kv_len - BLOCK_N, True)
    ring.issue_values(here, v_base, kv_len, True)
    async_copy.commit_group()
    k_base += BLOCK_N * ring.K_STRIDE
    v_base += BLOCK_N * ring.V_STRIDE
    ring.issue_keys(free, k_base, kv_len - 2 * BLOCK_N, True)
    ring.issue_values(ahead, v_base, kv_len - BLOCK_N, True)
    async_copy.commit_group()
    k_base += BLOCK_N * ring.K_STRIDE
    v_base += BLOCK_N * ring.V_STRIDE
    row_max = gl.full([BLOCK_M], ROW_MAX_START, gl.float32, gl.SliceLayout(1, layout))
    row_sum = gl.full([BLOCK_M], 0.0, gl.float32, gl.SliceLayout(1, layout))
    output = gl.zeros([BLOCK_M, V_DIM], gl.float32, layout)
    async_copy.wait_group(STAGES - 1)
    s = ring.compute_products(here, q_nope, q_rope)

    # Steps whose own tile is visible to every row and whose copies are of whole tiles.
    whole = gl.minimum(gl.maximum(first_visible, 0), kv_len) // BLOCK_N
    steady = gl.maximum(gl.minimum(gl.minimum(whole, kv_len // BLOCK_N - STAGES), steps - 1), 0)
    left = steady
    while left > 0:
        # Two steps a turn, with a branch between: s and s_next change places without being copied.
        s, k_base, v_base, row_max, row_sum, output = step(
            ring, here, ahead, free, s, k_base, v_base, row_max, row_sum, output, q_nope, q_rope, kv_len, visible, 0,
            scale_log2, False,
        )  # fmt: skip
        if left > 1:
            s, k_base, v_base, row_max, row_sum, output = step(
                ring, ahead, free, here, s, k_base, v_base, row_max, row_sum, output, q_nope, q_rope, kv_len, visible,
                0, scale_log2, False,
            )  # fmt: skip
        here, ahead, free = free, here, ahead
        left -= 2
    if left < 0:  # the last turn had one step only
        here, ahead, free = free, here, ahead
    for t in range(steady, steps - 1):
        s, k_base, v_base, row_max, row_sum, output = step(
            ring, here, ahead, free, s, k_base, v_base, row_max, row_sum, output, q_nope, q_rope, kv_len, visible, t,
            scale_log2, True,
        )  # fmt: skip
        here, ahead, free = ahead, free, here
    async_copy.wait_group(0)
    done = (steps - 1) * BLOCK_N
    if kv_len - done < BLOCK_N:
        ring.clear_tail(here, kv_len - done)
    p, row_max, row_sum, output = compute_softmax(s, row_max, row_sum, output, scale_log2, visible - done, True)
    output = ring.compute_output(here, p, output)
    return here, ahead, free, output, row_max, row_sum


@gluon.jit
def step(
    ring, here, ahead, free, s, k_base, v_base, row_max, row_sum, output, q_nope, q_rope, kv_len, visible, t,
    scale_log2, MASKED: gl.constexpr,
):  # fmt: skip
    """Step t: scores of tile t + 1, softmax and output of tile t, copies of K(t + 3) and V(t + 2).

    `here`, `ahead` and `free` are the slots of tiles t, t + 1 and t + 2. k_base and v_base are those of the copies.
    """
    BLOCK_N: gl.constexpr = ring.BLOCK_N
    async_copy.wait_group(1)
    ring.issue_keys(here, k_base, kv_len - (t + 3) * BLOCK_N, MASKED)
    ring.issue_values(free, v_base, kv_len - (t + 2) * BLOCK_N, MASKED)
    async_copy.commit_group()
    s_next = ring.compute_products(ahead, q_nope, q_rope)
    p, row_max, row_sum, output = compute_softmax(
        s, row_max, row_sum, output, scale_log2, visible - t * BLOCK_N, MASKED
    )
    output = ring.compute_output(here, p, output)
    k_base += BLOCK_N * ring.K_STRIDE
    v_base += BLOCK_N * ring.V_STRIDE
    return s_next, k_base, v_base, row_max, row_sum, output


@gluon.jit(do_not_specialize=["batch", "q_token", "q_head", "k_head", "v_head", "out_token", "out_head"])
def prefill(
    q_ptr,  # [total_q, HEADS, 192]
    k_ptr,  # [total_kv, HEADS / GROUP, 192]
    v_ptr,  # [total_kv, HEADS / GROUP, 128]
    out_ptr,  # [total_q, HEADS, 128]
    lse_ptr,  # [total_q, HEADS] fp32, contiguous; used only with RETURN_LSE
    cu_seqlens_q_ptr,  # [batch + 1] int32
    cu_seqlens_kv_ptr,  # [batch + 1] int32
    batch,
    q_token,  # strides in units of 8 elements, so that every row is known to start at a multiple of 16 bytes
    q_head,
    k_head,
    v_head,
    out_token,
    out_head,
    scale_log2,  # |softmax_scale| * log2(e), more than 0
    cfg: gl.constexpr,
    HEADS: gl.constexpr,
    GROUP: gl.constexpr,  # query heads of a key head
    K_STRIDE: gl.constexpr,  # elements between tokens, multiples of 8
    V_STRIDE: gl.constexpr,
    IS_CAUSAL: gl.constexpr,
    RETURN_LSE: gl.constexpr,
    NEGATE: gl.constexpr,  # softmax_scale < 0
    DIES: gl.constexpr,  # dies that workgroups go round-robin over; divides the grid
):
    """Grid: as many workgroups as are to be resident; each takes tiles until there are none."""
    BLOCK_M: gl.constexpr = cfg.block_m
    BLOCK_N: gl.constexpr = cfg.block_n
    ring = make_ring(q_ptr.dtype.element_ty, K_STRIDE, V_STRIDE, BLOCK_N)
    here, ahead, free = 0, 1, 2
    total = HEADS * compute_total_tiles(cu_seqlens_q_ptr, cu_seqlens_kv_ptr, batch, BLOCK_M, IS_CAUSAL)
    before, count, level, ceiling = 0, 0, TOP_LEVEL, TOP_LEVEL
    for turn in range(0, compute_turns(total, DIES)):
        rank = compute_rank(turn, DIES)
        place = rank // HEADS
        head = rank % HEADS
        before, count, level, ceiling = find_level(
            place, before, count, level, ceiling, cu_seqlens_q_ptr, cu_seqlens_kv_ptr, batch, BLOCK_M, IS_CAUSAL
        )
        sequence, tile = compute_tile(
            place - before, level, ceiling, cu_seqlens_q_ptr, cu_seqlens_kv_ptr, batch, BLOCK_M, IS_CAUSAL
        )
        q_start = gl.load(cu_seqlens_q_ptr + sequence)
        q_len = gl.load(cu_seqlens_q_ptr + sequence + 1) - q_start
        kv_start = gl.load(cu_seqlens_kv_ptr + sequence)
        kv_len = gl.load(cu_seqlens_kv_ptr + sequence + 1) - kv_start
        row = tile * BLOCK_M
        rows = gl.minimum(q_len - row, BLOCK_M)
        if IS_CAUSAL:
            first_visible = row + 1 + kv_len - q_len
            last_visible = gl.maximum(first_visible + rows - 1, 0)
        else:
            first_visible = kv_len
            last_visible = kv_len
        steps = gl.maximum((last_visible + BLOCK_N - 1) // BLOCK_N, 1)

        token = (q_start + row).to(gl.int64)
        kv_token = kv_start.to(gl.int64)
        kv_head = (head // GROUP).to(gl.int64)
        q_base = q_ptr + (token * q_token + head.to(gl.int64) * q_head) * COPY_ELEMENTS
        k_base = k_ptr + kv_token * K_STRIDE + kv_head * k_head * COPY_ELEMENTS
        v_base = v_ptr + kv_token * V_STRIDE + kv_head * v_head * COPY_ELEMENTS
        q_nope = load_queries(q_base, q_token * COPY_ELEMENTS, NOPE, 0, rows, BLOCK_M, NEGATE)
        q_rope = load_queries(q_base, q_token * COPY_ELEMENTS, ROPE, NOPE, rows, BLOCK_M, NEGATE)
        here, ahead, free, output, row_max, row_sum = attend(
            ring, here, ahead, free, q_nope, q_rope, k_base, v_base, kv_len, first_visible, steps, scale_log2,
            IS_CAUSAL,
        )  # fmt: skip
        factor, lse = compute_normalisation(row_max, row_sum)
        out_base = out_ptr + (token * out_token + head.to(gl.int64) * out_head) * COPY_ELEMENTS
        store_rows(out_base, out_token * COPY_ELEMENTS, output * factor[:, None], rows)
        if RETURN_LSE:
            lse_row = gl.arange(0, BLOCK_M, layout=lse.type.layout)
            cdna4.buffer_store(lse, lse_ptr + token * HEADS + head, lse_row * HEADS, mask=lse_row < rows)
        wait_all_waves()  # the next tile's copies overwrite what some wave may still read
