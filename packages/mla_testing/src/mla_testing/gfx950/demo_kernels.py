"""Small kernels that exercise what the project's kernels are made of; used by the emulator's own tests.

* ``attention``: pipelined direct-to-LDS loads, double buffering, MFMA, online softmax, masked tail (Gluon)
* ``split_matmul``: fp16 MFMA on operands staged through LDS by ds_write and read back transposed (Gluon)
* ``row_softmax``: reductions across the waves of a workgroup through LDS (Triton)
* ``ticket_sum``: the last workgroup to arrive adds up what the others wrote (Triton, atomics)
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

cdna4 = gl.amd.cdna4
async_copy = gl.amd.cdna4.async_copy


@gluon.jit(do_not_specialize=["keys"])
def attention(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    keys,
    scale_log2,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    DIM: gl.constexpr,
    NUM_WARPS: gl.constexpr,
    MFMA: gl.constexpr,
    # Mistakes that the tests switch on; all 0 in a correct kernel.
    OUTSTANDING: gl.constexpr = 1,
    WRONG_BUFFER: gl.constexpr = 0,
    EXTRA_KEYS: gl.constexpr = 0,
    UNMASKED: gl.constexpr = 0,
):
    """Q [*, DIM], K and V [keys, DIM] bf16 to out [*, DIM] bf16 and lse [*] fp32 (base 2); one program per BLOCK_M rows.

    issue 0 | issue 1, wait 0, compute 0 | issue 2, wait 1, compute 1 | ...
    """
    mma: gl.constexpr = gl.amd.AMDMFMALayout(
        version=4, instr_shape=[MFMA, MFMA, 512 // MFMA], transposed=True, warps_per_cta=[NUM_WARPS, 1]
    )
    q_layout: gl.constexpr = gl.DotOperandLayout(0, mma, k_width=8)
    k_layout: gl.constexpr = gl.DotOperandLayout(1, mma, k_width=8)
    p_layout: gl.constexpr = gl.DotOperandLayout(0, mma, k_width=4)
    v_layout: gl.constexpr = gl.DotOperandLayout(1, mma, k_width=4)
    rows_per_wave: gl.constexpr = 512 // DIM  # 16 bytes per lane
    copy: gl.constexpr = gl.BlockedLayout([1, 8], [rows_per_wave, DIM // 8], [NUM_WARPS, 1], [1, 0])
    # 16 bytes of padding after what one wave copies, against bank conflicts.
    shared: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[512, 16]], [BLOCK_N, DIM], [1, 0])

    first_row = gl.program_id(0) * BLOCK_M
    q_rows = first_row + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, q_layout))
    q_columns = gl.arange(0, DIM, layout=gl.SliceLayout(0, q_layout))
    q = cdna4.buffer_load(q_ptr, q_rows[:, None] * DIM + q_columns[None, :])

    k_tiles = gl.allocate_shared_memory(gl.bfloat16, [2, BLOCK_N, DIM], shared)
    v_tiles = gl.allocate_shared_memory(gl.bfloat16, [2, BLOCK_N, DIM], shared)
    key = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(1, copy))
    offsets = key[:, None] * DIM + gl.arange(0, DIM, layout=gl.SliceLayout(0, copy))[None, :]
    column = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, mma))

    row_max = gl.full([BLOCK_M], -float("inf"), gl.float32, gl.SliceLayout(1, mma))
    row_sum = gl.full([BLOCK_M], 0.0, gl.float32, gl.SliceLayout(1, mma))
    acc = gl.zeros([BLOCK_M, DIM], gl.float32, mma)

    mask = (key < keys)[:, None]
    async_copy.buffer_load_to_shared(k_tiles.index(0), k_ptr, offsets, mask=mask)
    async_copy.buffer_load_to_shared(v_tiles.index(0), v_ptr, offsets, mask=mask)
    async_copy.commit_group()
    for block in range((keys + BLOCK_N - 1) // BLOCK_N):
        buffer = block % 2
        following = (block + 1) * BLOCK_N
        mask = (following + key < keys + EXTRA_KEYS)[:, None]
        if UNMASKED:
            mask = (key >= 0)[:, None]
        async_copy.buffer_load_to_shared(k_tiles.index(1 - buffer), k_ptr, following * DIM + offsets, mask=mask)
        async_copy.buffer_load_to_shared(v_tiles.index(1 - buffer), v_ptr, following * DIM + offsets, mask=mask)
        async_copy.commit_group()
        async_copy.wait_group(OUTSTANDING)
        k_read = buffer
        if WRONG_BUFFER:
            k_read = 1 - buffer
        k = async_copy.load_shared_relaxed(k_tiles.index(k_read).permute([1, 0]), k_layout)
        logits = cdna4.mfma(q, k, gl.zeros([BLOCK_M, BLOCK_N], gl.float32, mma))
        visible = (block * BLOCK_N + column < keys)[None, :]
        logits = gl.where(visible, logits * scale_log2, -float("inf"))
        new_max = gl.maximum(row_max, gl.max(logits, 1))
        p = gl.exp2(logits - new_max[:, None])
        rescale = gl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + gl.sum(p, 1)
        acc = acc * rescale[:, None]
        row_max = new_max
        p = gl.convert_layout(p.to(gl.bfloat16), p_layout)
        v = async_copy.load_shared_relaxed(v_tiles.index(buffer), v_layout)
        acc = cdna4.mfma(p, v, acc)
    acc = acc / row_sum[:, None]
    rows = first_row + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, mma))
    columns = gl.arange(0, DIM, layout=gl.SliceLayout(0, mma))
    cdna4.buffer_store(acc.to(gl.bfloat16), out_ptr, rows[:, None] * DIM + columns[None, :])
    gl.store(lse_ptr + rows, row_max + gl.log2(row_sum))


@gluon.jit(do_not_specialize=["K"])
def split_matmul(a_ptr, b_ptr, out_ptr, K, SIZE: gl.constexpr, BLOCK_K: gl.constexpr, NUM_WARPS: gl.constexpr):
    """out[program] = A[:, program's K range] @ B[program's K range, :]; A [SIZE, K], B [K, SIZE] fp16, out fp32.

    Each block of K goes registers -> LDS -> registers, with one buffer and two barriers per block.
    """
    mma: gl.constexpr = gl.amd.AMDMFMALayout(
        version=4, instr_shape=[16, 16, 32], transposed=False, warps_per_cta=[NUM_WARPS, 1]
    )
    a_layout: gl.constexpr = gl.DotOperandLayout(0, mma, k_width=8)
    b_layout: gl.constexpr = gl.DotOperandLayout(1, mma, k_width=8)
    a_copy: gl.constexpr = gl.BlockedLayout([1, 8], [512 // BLOCK_K, BLOCK_K // 8], [NUM_WARPS, 1], [1, 0])
    b_copy: gl.constexpr = gl.BlockedLayout([1, 8], [512 // SIZE, SIZE // 8], [NUM_WARPS, 1], [1, 0])
    swizzled: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, order=[1, 0])
    a_tile = gl.allocate_shared_memory(gl.float16, [SIZE, BLOCK_K], swizzled)
    b_tile = gl.allocate_shared_memory(gl.float16, [BLOCK_K, SIZE], swizzled)

    a_row = gl.arange(0, SIZE, layout=gl.SliceLayout(1, a_copy))[:, None]
    a_k = gl.arange(0, BLOCK_K, layout=gl.SliceLayout(0, a_copy))[None, :]
    b_k = gl.arange(0, BLOCK_K, layout=gl.SliceLayout(1, b_copy))[:, None]
    b_column = gl.arange(0, SIZE, layout=gl.SliceLayout(0, b_copy))[None, :]
    per_program = K // gl.num_programs(0)
    start = gl.program_id(0) * per_program
    acc = gl.zeros([SIZE, SIZE], gl.float32, mma)
    for k in range(start, start + per_program, BLOCK_K):
        a = gl.load(a_ptr + a_row * K + (k + a_k))
        b = gl.load(b_ptr + (k + b_k) * SIZE + b_column)
        a_tile.store(a)
        b_tile.store(b)
        acc = cdna4.mfma(a_tile.load(a_layout), b_tile.load(b_layout), acc)
    rows = gl.arange(0, SIZE, layout=gl.SliceLayout(1, mma))[:, None]
    columns = gl.arange(0, SIZE, layout=gl.SliceLayout(0, mma))[None, :]
    gl.store(out_ptr + gl.program_id(0) * SIZE * SIZE + rows * SIZE + columns, acc)


@triton.jit(do_not_specialize=["columns"])
def row_softmax(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Softmax of each row; x, out fp32 [rows, columns]. A row spans all waves, so max and sum go through LDS."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + tl.program_id(0) * columns + column, mask=inside, other=-float("inf"))
    p = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + tl.program_id(0) * columns + column, p / tl.sum(p, 0), mask=inside)


@triton.jit(do_not_specialize=["columns"])
def ticket_sum(x_ptr, partial_ptr, ticket_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """out[i] = sum over programs of 2 * x[program, i]: each writes its part, the last one to arrive adds them up."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + tl.program_id(0) * columns + column, mask=inside)
    tl.store(partial_ptr + tl.program_id(0) * columns + column, 2 * x, mask=inside)
    tl.debug_barrier()
    if tl.atomic_add(ticket_ptr, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        total = tl.zeros([BLOCK], tl.float32)
        for program in range(tl.num_programs(0)):
            total += tl.load(partial_ptr + program * columns + column, mask=inside)
        tl.store(out_ptr + column, total, mask=inside)
