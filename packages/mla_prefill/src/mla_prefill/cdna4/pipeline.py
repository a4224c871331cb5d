"""The gfx950 prefill kernel: persistent workgroups of waves with 32 queries each, all waves sharing K and V in LDS.

A workgroup takes query tiles (one sequence, one head, block_m queries) from the order of `mla_core.stages.varlen` and
for each walks the keys in tiles of block_n, from the first one to the last one visible. Step t of the steady loop:

    copies to LDS     K(t+3) V(t+2) issued .............. must have landed at step t+2
    matrix unit       Q K(t+1) ............ | P V(t) ....
    vector unit       softmax(S(t)) -> P    | scale and convert, in the shadow of the matrix instructions
                      ^ wait for K(t+1) V(t), then the one barrier of the step: all waves have left step t-1,
                        so that the copies may overwrite K(t) and V(t-1)

S(t) comes from the step before, so the scores of the next tile and the softmax of this one do not depend on each other
and the compiler's scheduler mixes them. Steps on the diagonal are masked. Copies run ahead, so the last steps of a sequence
guard them against reading past its end. All others do neither. The very last step has nothing left to copy or to start,
and is masked always.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.gluon_compat import aggregate, wait_all_waves
from mla_core.layouts.cdna4 import COPY_ELEMENTS as _COPY_ELEMENTS
from mla_core.stages.online_softmax import ROW_MAX_START, compute_normalisation
from mla_core.stages.varlen import (
    TOP_LEVEL,
    compute_rank,
    compute_tile,
    compute_total_tiles,
    compute_turns,
    find_level,
)
from mla_prefill.cdna4.ring import STAGES, make_ring
from mla_prefill.cdna4.rows import NOPE, ROPE, V_DIM, compute_softmax, load_queries, scores_layout, store_rows

cdna4 = gl.amd.cdna4
async_copy = gl.amd.cdna4.async_copy

COPY_ELEMENTS = gl.constexpr(_COPY_ELEMENTS)


@aggregate
class Progress:
    """Where a query tile's walk over its keys is.

    s: scores of the next tile, not yet scaled. row_max, row_sum, output: of the tiles before it. k_base, v_base: the
    tiles that are copied next.
    """

    s: gl.tensor
    row_max: gl.tensor
    row_sum: gl.tensor
    output: gl.tensor
    k_base: gl.tensor
    v_base: gl.tensor

    @gluon.constexpr_function
    def __init__(self, s, row_max, row_sum, output, k_base, v_base):
        self.s = s
        self.row_max = row_max
        self.row_sum = row_sum
        self.output = output
        self.k_base = k_base
        self.v_base = v_base


@aggregate
class Tile:
    """A query tile: its operands, and which keys its rows see."""

    q_nope: gl.tensor
    q_rope: gl.tensor
    visible: gl.tensor  # [block_m], keys that each row sees, counted from the first one
    kv_len: gl.tensor
    scale_log2: gl.tensor

    @gluon.constexpr_function
    def __init__(self, q_nope, q_rope, visible, kv_len, scale_log2):
        self.q_nope = q_nope
        self.q_rope = q_rope
        self.visible = visible
        self.kv_len = kv_len
        self.scale_log2 = scale_log2


@gluon.jit
def start(ring, here, ahead, free, tile, k_base, v_base):
    """Copies of the first three tiles of K and two of V on their way; scores of the first one."""
    BLOCK_M: gl.constexpr = tile.q_nope.shape[0]
    BLOCK_N: gl.constexpr = ring.BLOCK_N
    layout: gl.constexpr = scores_layout(gl.num_warps())
    ring.issue_keys(here, k_base, tile.kv_len, True)
    async_copy.commit_group()
    k_base += BLOCK_N * ring.K_STRIDE
    ring.issue_keys(ahead, k_base, tile.kv_len - BLOCK_N, True)
    ring.issue_values(here, v_base, tile.kv_len, True)
    async_copy.commit_group()
    k_base += BLOCK_N * ring.K_STRIDE
    v_base += BLOCK_N * ring.V_STRIDE
    ring.issue_keys(free, k_base, tile.kv_len - 2 * BLOCK_N, True)
    ring.issue_values(ahead, v_base, tile.kv_len - BLOCK_N, True)
    async_copy.commit_group()
    k_base += BLOCK_N * ring.K_STRIDE
    v_base += BLOCK_N * ring.V_STRIDE
    row_max = gl.full([BLOCK_M], ROW_MAX_START, gl.float32, gl.SliceLayout(1, layout))
    row_sum = gl.full([BLOCK_M], 0.0, gl.float32, gl.SliceLayout(1, layout))
    output = gl.zeros([BLOCK_M, V_DIM], gl.float32, layout)
    async_copy.wait_group(STAGES - 1)
    s = ring.compute_products(here, tile.q_nope, tile.q_rope)
    return Progress(s, row_max, row_sum, output, k_base, v_base)


@gluon.jit
def step(ring, here, ahead, free, tile, at, t, MASKED: gl.constexpr, GUARD: gl.constexpr):
    """Step t: scores of tile t + 1, softmax and output of tile t, copies of K(t + 3) and V(t + 2).

    `here`, `ahead` and `free` are the slots of tiles t, t + 1 and t + 2. MASKED: some row does not see
    some key of tile t. GUARD: the copies may reach past the sequence. Without either, t is not used.
    """
    BLOCK_N: gl.constexpr = ring.BLOCK_N
    async_copy.wait_group(1)
    ring.issue_keys(here, at.k_base, tile.kv_len - (t + 3) * BLOCK_N, GUARD)
    ring.issue_values(free, at.v_base, tile.kv_len - (t + 2) * BLOCK_N, GUARD)
    async_copy.commit_group()
    s_next = ring.compute_products(ahead, tile.q_nope, tile.q_rope)
    p, row_max, row_sum, output = compute_softmax(
        at.s, at.row_max, at.row_sum, at.output, tile.scale_log2, tile.visible - t * BLOCK_N, MASKED
    )
    output = ring.compute_output(here, p, output)
    return Progress(
        s_next, row_max, row_sum, output, at.k_base + BLOCK_N * ring.K_STRIDE, at.v_base + BLOCK_N * ring.V_STRIDE
    )


@gluon.jit
def finish(ring, here, tile, at, done):
    """The last tile, whose copies have all been issued: (output, row_max, row_sum), not yet normalised."""
    async_copy.wait_group(0)
    if tile.kv_len - done < ring.BLOCK_N:
        ring.clear_tail(here, tile.kv_len - done)
    p, row_max, row_sum, output = compute_softmax(
        at.s, at.row_max, at.row_sum, at.output, tile.scale_log2, tile.visible - done, True
    )
    return ring.compute_output(here, p, output), row_max, row_sum


@gluon.jit
def attend(ring, here, ahead, free, tile, k_base, v_base, first_visible, steps):
    """All keys of one query tile: (next slots, output, row_max, row_sum), not yet normalised.

    first_visible: keys that row 0 sees, the fewest of all rows; may be negative. steps: tiles of keys to walk, at least
    1; tokens from kv_len on are never read.
    """
    BLOCK_N: gl.constexpr = ring.BLOCK_N
    # Steps whose own tile is whole and visible to every row; and of those, the ones whose copies are of whole tiles.
    unmasked = gl.minimum(gl.minimum(gl.maximum(first_visible, 0), tile.kv_len) // BLOCK_N, steps - 1)
    steady = gl.maximum(gl.minimum(unmasked, tile.kv_len // BLOCK_N - STAGES), 0)

    at = start(ring, here, ahead, free, tile, k_base, v_base)
    left = steady
    while left > 0:
        # Two steps a turn, with a branch between: the scores of this step and the next change places without a copy.
        at = step(ring, here, ahead, free, tile, at, 0, False, False)
        if left > 1:
            at = step(ring, ahead, free, here, tile, at, 0, False, False)
        here, ahead, free = free, here, ahead
        left -= 2
    if left < 0:  # the last turn had one step only
        here, ahead, free = free, here, ahead
    for t in range(steady, unmasked):
        at = step(ring, here, ahead, free, tile, at, t, False, True)
        here, ahead, free = ahead, free, here
    for t in range(unmasked, steps - 1):
        at = step(ring, here, ahead, free, tile, at, t, True, True)
        here, ahead, free = ahead, free, here
    output, row_max, row_sum = finish(ring, here, tile, at, (steps - 1) * BLOCK_N)
    return here, ahead, free, output, row_max, row_sum


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
        index = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, scores_layout(gl.num_warps())))
        visible = gl.minimum(first_visible + index, kv_len) if IS_CAUSAL else index * 0 + kv_len
        here, ahead, free, output, row_max, row_sum = attend(
            ring, here, ahead, free, Tile(q_nope, q_rope, visible, kv_len, scale_log2), k_base, v_base, first_visible,
            steps,
        )  # fmt: skip
        factor, lse = compute_normalisation(row_max, row_sum)
        out_base = out_ptr + (token * out_token + head.to(gl.int64) * out_head) * COPY_ELEMENTS
        store_rows(out_base, out_token * COPY_ELEMENTS, output * factor[:, None], rows)
        if RETURN_LSE:
            lse_row = gl.arange(0, BLOCK_M, layout=lse.type.layout)
            cdna4.buffer_store(lse, lse_ptr + token * HEADS + head, lse_row * HEADS, mask=lse_row < rows)
        wait_all_waves()  # the next tile's copies overwrite what some wave may still read
