"""K and V in LDS: a ring of tiles that the workgroup's waves copy together and all read."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.gluon_compat import aggregate, wait_all_waves
from mla_core.layouts.cdna4_flat import KEY_PADDING, VALUE_PADDING, flat_copy_layout, flat_shared_layout
from mla_core.stages.row_mask import compute_visible_values
from mla_prefill.cdna4.config import STAGES as _STAGES
from mla_prefill.cdna4.rows import K_WIDTH, NOPE, P_WIDTH, ROPE, V_DIM, operand_layout, scores_layout

cdna4 = gl.amd.cdna4
async_copy = gl.amd.cdna4.async_copy

STAGES = gl.constexpr(_STAGES)
K_PADDING = gl.constexpr(KEY_PADDING)
V_PADDING = gl.constexpr(VALUE_PADDING)


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
