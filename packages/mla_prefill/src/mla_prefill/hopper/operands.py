"""Q, K and V on their way from global memory through shared memory to the matrix unit."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma

from mla_core.gluon_compat import aggregate
from mla_core.layouts import wgmma
from mla_core.layouts.wgmma import WGMMA_ROWS
from mla_core.stages.bulk_copy import issue_bulk_load
from mla_core.stages.row_mask import compute_visible_values
from mla_prefill.hopper import softmax
from mla_prefill.hopper.config import CONSUMERS as _CONSUMERS
from mla_prefill.hopper.handover import Ring
from mla_prefill.problem import QK_HEAD_DIM, QK_NOPE_HEAD_DIM, V_HEAD_DIM

CONSUMERS = gl.constexpr(_CONSUMERS)
NOPE = gl.constexpr(QK_NOPE_HEAD_DIM)
QK = gl.constexpr(QK_HEAD_DIM)
V = gl.constexpr(V_HEAD_DIM)
ELEMENT_BYTES = gl.constexpr(2)


@aggregate
class Operands:
    """Where the producer fetches from, and the shared memory it fetches to."""

    q_nope_desc: tma.tensor_descriptor
    q_rope_desc: tma.tensor_descriptor
    k_nope_desc: tma.tensor_descriptor
    k_rope_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    q_nope: gl.shared_memory_descriptor  # [consumers, 64, 128]
    q_rope: gl.shared_memory_descriptor  # [consumers, 64, 64]
    k_nope: gl.shared_memory_descriptor  # [stages, block_n, 128]
    k_rope: gl.shared_memory_descriptor  # [stages, block_n, 64]
    v: gl.shared_memory_descriptor  # [stages, block_n, 128]
    q_full: gl.shared_memory_descriptor  # barrier: the tile's Q has arrived
    k_ring: Ring
    v_ring: Ring
    v_cleared: gl.shared_memory_descriptor  # barrier: both consumers have cleared their half of a block of V

    @gluon.constexpr_function
    def __init__(
        self,
        q_nope_desc,
        q_rope_desc,
        k_nope_desc,
        k_rope_desc,
        v_desc,
        q_nope,
        q_rope,
        k_nope,
        k_rope,
        v,
        q_full,
        k_ring,
        v_ring,
        v_cleared,
    ):
        self.q_nope_desc = q_nope_desc
        self.q_rope_desc = q_rope_desc
        self.k_nope_desc = k_nope_desc
        self.k_rope_desc = k_rope_desc
        self.v_desc = v_desc
        self.q_nope = q_nope
        self.q_rope = q_rope
        self.k_nope = k_nope
        self.k_rope = k_rope
        self.v = v
        self.q_full = q_full
        self.k_ring = k_ring
        self.v_ring = v_ring
        self.v_cleared = v_cleared

    @gluon.jit
    def issue_q(self, n, block, row, column):
        """Fetches the n-th tile's queries, whose first block of K is the block-th; column is where the head starts.

        Q of the tile before is free when the last scores of it are done, which is when that block of K is released.
        """
        if n > 0:
            self.k_ring.wait_released(block - 1)
        mbarrier.expect(self.q_full, CONSUMERS * WGMMA_ROWS * QK * ELEMENT_BYTES)
        for wg in gl.static_range(CONSUMERS):
            issue_bulk_load(self.q_nope_desc, [row + wg * WGMMA_ROWS, column], self.q_full, self.q_nope.index(wg))
            issue_bulk_load(
                self.q_rope_desc, [row + wg * WGMMA_ROWS, column + NOPE], self.q_full, self.q_rope.index(wg)
            )

    @gluon.jit
    def issue_k(self, n, row, column):
        """Fetches the n-th block of K."""
        slot = self.k_ring.slot(n)
        self.k_ring.wait_empty(n)
        full = self.k_ring.full.index(slot)
        mbarrier.expect(full, self.k_nope.shape[1] * QK * ELEMENT_BYTES)
        issue_bulk_load(self.k_nope_desc, [row, column], full, self.k_nope.index(slot))
        issue_bulk_load(self.k_rope_desc, [row, column + NOPE], full, self.k_rope.index(slot))

    @gluon.jit
    def issue_v(self, n, row, column):
        """Fetches the n-th block of V."""
        slot = self.v_ring.slot(n)
        self.v_ring.wait_empty(n)
        full = self.v_ring.full.index(slot)
        mbarrier.expect(full, self.v.shape[1] * V * ELEMENT_BYTES)
        issue_bulk_load(self.v_desc, [row, column], full, self.v.index(slot))

    @gluon.jit
    def wait_first(self, item, n, EXISTS):
        """Until the item-th tile's Q and its first block of K, the n-th of all, have arrived; at once if not EXISTS."""
        mbarrier.wait(self.q_full, item & 1, pred=EXISTS)
        mbarrier.wait(self.k_ring.full.index(self.k_ring.slot(n)), self.k_ring.phase(n), pred=EXISTS)

    @gluon.jit
    def issue_scores(self, WG: gl.constexpr, n):
        """Starts S = Q K^T of the n-th block, as two groups of matrix instructions."""
        slot = self.k_ring.slot(n)
        BLOCK_N: gl.constexpr = self.k_nope.shape[1]
        zero = gl.zeros([WGMMA_ROWS, BLOCK_N], gl.float32, wgmma.accumulator(BLOCK_N))
        s = warpgroup_mma(
            self.q_nope.index(WG), self.k_nope.index(slot).permute((1, 0)), zero, use_acc=False, is_async=True
        )
        return warpgroup_mma(self.q_rope.index(WG), self.k_rope.index(slot).permute((1, 0)), s, is_async=True)

    @gluon.jit
    def issue_output(self, p, o, n):
        """Starts O += P V of the n-th block, as one group of matrix instructions; p as `softmax.pack_pairs` makes it."""
        layout: gl.constexpr = wgmma.register_operand(wgmma.accumulator(V))
        operand = softmax.unpack_pairs(p, self.v.dtype, layout)
        return warpgroup_mma(operand, self.v.index(self.v_ring.slot(n)), o, is_async=True)

    @gluon.jit
    def clear_hidden_values(self, WG: gl.constexpr, n, visible, cleared):
        """Zeroes the rows of the n-th block of V past `visible`, which may hold anything; 0 times NaN is NaN.

        Each consumer clears its half and waits for the other's. Returns the number of clearances so far.
        """
        BLOCK_N: gl.constexpr = self.v.shape[1]
        HALF: gl.constexpr = BLOCK_N // CONSUMERS
        layout: gl.constexpr = wgmma.row_store(V)
        if visible < BLOCK_N:
            self.v_ring.wait_full(n)
            half = self.v.index(self.v_ring.slot(n)).slice(WG * HALF, HALF, 0)
            row = WG * HALF + gl.arange(0, HALF, gl.SliceLayout(1, layout))
            values = half.load(layout)
            half.store(compute_visible_values(values, row[:, None], visible))
            fence_async_shared()
            mbarrier.arrive(self.v_cleared, count=1)
            mbarrier.wait(self.v_cleared, cleared & 1)
            cleared += 1
        return cleared
