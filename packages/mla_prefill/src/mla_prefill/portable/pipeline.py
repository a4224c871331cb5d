"""Device code of the `triton` prefill solution.

One workgroup owns `block_m` rows of q of one sequence and head:

    find_tile            which sequence, and which of its rows
    load q                                       [block_m, 128] and [block_m, 64], kept
    for each block of block_n keys that every row sees:       no mask anywhere
        load         k [block_n, 128] and [block_n, 64], v [block_n, 128]
        multiply     logits = q . k^T            RoPE columns, then the others
        softmax      p, row_max, row_sum, decay
        multiply     acc = decay * acc + p . v
    for each block that holds a key some row does not see:    the same, masked
    store            out, lse

Loads carry no mask: a token behind the last one that the tile sees is replaced by that last one, so that nothing but
its own sequence's keys is ever read, and its probability is 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mla_core.stages.interpreted import multiply, round_to
from mla_core.stages.triton_softmax import compute_softmax, finish_softmax

SEQUENCES = tl.constexpr(128)
"""Sequences that `find_tile` looks at together."""


@triton.jit
def find_tile(cu_seqlens_q_ptr, batch, tile, cfg: tl.constexpr):
    """(sequence, first row in it) of a tile; (-1, 0) for one before every sequence.

    Sequence i takes the tiles from cu_seqlens_q[i] // block_m + i on. The next one starts at least
    cdiv(length, block_m) later, so no two share a tile, all start below total_q // block_m + batch, and a tile left
    over has a first row behind its sequence's last.
    """
    started = 0
    for first in range(0, batch, SEQUENCES):
        index = first + tl.arange(0, SEQUENCES)
        begin = tl.load(cu_seqlens_q_ptr + index, mask=index < batch, other=0)
        started += tl.sum(((begin // cfg.block_m + index <= tile) & (index < batch)).to(tl.int32), axis=0)
    sequence = started - 1
    begin = tl.load(cu_seqlens_q_ptr + tl.maximum(sequence, 0))
    return sequence, (tile - begin // cfg.block_m - sequence) * cfg.block_m


@triton.jit
def widen(index, cfg: tl.constexpr):
    """index as wide as an offset into q, k, v and out has to be."""
    if cfg.within_2gb:
        return tl.cast(index, tl.int32)
    else:
        return tl.cast(index, tl.int64)


@triton.jit
def locate(row, head, stride_token: tl.constexpr, stride_head: tl.constexpr, cfg: tl.constexpr):
    """Offsets of the rows of one head, as a column."""
    return (widen(row, cfg) * stride_token + widen(head, cfg) * stride_head)[:, None]


@triton.jit
def load_columns(ptr, first: tl.constexpr, width: tl.constexpr):
    """Columns [first, first + width) of the rows at `ptr` `[N, 1]`."""
    return tl.load(ptr + first + tl.arange(0, width)[None, :])


@triton.jit
def attend_block(
    q_nope, q_rope, acc, row_max, row_sum, k_ptr, v_ptr, kv_begin, kv_head, start, last, visible, scale_log2,
    masked: tl.constexpr, negate: tl.constexpr, shape: tl.constexpr, cfg: tl.constexpr,
):  # fmt: skip
    """One block of keys: the steady loop's body. `visible` `[block_m]`: keys each row sees, read where `masked`."""
    key = start + tl.arange(0, cfg.block_n)
    token = kv_begin + (tl.minimum(key, last) if masked else key)
    k_rows = k_ptr + locate(token, kv_head, shape.k_stride_token, shape.k_stride_head, cfg)
    v_rows = v_ptr + locate(token, kv_head, shape.v_stride_token, shape.v_stride_head, cfg)
    k_nope = load_columns(k_rows, 0, shape.nope_dim)
    k_rope = load_columns(k_rows, shape.nope_dim, shape.rope_dim)
    v = load_columns(v_rows, 0, shape.v_dim)
    logits = tl.full([cfg.block_m, cfg.block_n], 0.0, tl.float32)
    logits = multiply(q_rope, tl.trans(k_rope), logits, cfg.interpreted)
    logits = multiply(q_nope, tl.trans(k_nope), logits, cfg.interpreted)
    seen = key[None, :] < visible[:, None]
    p, row_max, row_sum, decay = compute_softmax(logits, row_max, row_sum, scale_log2, seen, masked, negate)
    acc = multiply(p, v, acc * decay[:, None], cfg.interpreted)
    return acc, row_max, row_sum


@triton.jit(do_not_specialize=["batch", "tiles"])
def prefill_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    cu_seqlens_q_ptr,
    cu_seqlens_kv_ptr,
    out_ptr,
    lse_ptr,
    scale_log2,
    batch,
    tiles,
    negate: tl.constexpr,
    shape: tl.constexpr,
    cfg: tl.constexpr,
):
    """Grid: one axis of (head, tile), the tile fastest, so that those which share K and V run side by side, and from
    the last one down, since the last rows of a causal sequence see the most keys."""
    head = tl.program_id(0) // tiles
    tile = tiles - 1 - tl.program_id(0) % tiles
    sequence, first_row = find_tile(cu_seqlens_q_ptr, batch, tile, cfg)
    if sequence < 0:
        return
    q_begin = tl.load(cu_seqlens_q_ptr + sequence)
    kv_begin = tl.load(cu_seqlens_kv_ptr + sequence)
    queries = tl.load(cu_seqlens_q_ptr + sequence + 1) - q_begin
    keys = tl.load(cu_seqlens_kv_ptr + sequence + 1) - kv_begin
    if first_row >= queries:
        return

    # Keys that a row sees grow with the row: the tile's first row sees the fewest, its last one the most.
    row = first_row + tl.arange(0, cfg.block_m)
    fewest = keys
    most = keys
    visible = tl.full([cfg.block_m], 0, tl.int32) + keys
    if shape.is_causal:
        visible += row + 1 - queries
        fewest += first_row + 1 - queries
        most += tl.minimum(first_row + cfg.block_m, queries) - queries
    unmasked = tl.maximum(tl.minimum(fewest, keys), 0) // cfg.block_n * cfg.block_n

    q_row = q_begin + tl.minimum(row, queries - 1)
    q_rows = q_ptr + locate(q_row, head, shape.q_stride_token, shape.q_stride_head, cfg)
    q_nope = load_columns(q_rows, 0, shape.nope_dim)
    q_rope = load_columns(q_rows, shape.nope_dim, shape.rope_dim)
    acc = tl.full([cfg.block_m, shape.v_dim], 0.0, tl.float32)
    row_max = tl.full([cfg.block_m], float("-inf"), tl.float32)
    row_sum = tl.full([cfg.block_m], 0.0, tl.float32)
    kv_head = head // shape.group
    for start in tl.range(0, unmasked, cfg.block_n):
        acc, row_max, row_sum = attend_block(
            q_nope, q_rope, acc, row_max, row_sum, k_ptr, v_ptr, kv_begin, kv_head, start, most - 1, visible,
            scale_log2, False, negate, shape, cfg,
        )  # fmt: skip
    for start in tl.range(unmasked, most, cfg.block_n):
        acc, row_max, row_sum = attend_block(
            q_nope, q_rope, acc, row_max, row_sum, k_ptr, v_ptr, kv_begin, kv_head, start, most - 1, visible,
            scale_log2, True, negate, shape, cfg,
        )  # fmt: skip

    out, lse = finish_softmax(acc, row_max, row_sum, scale_log2)
    out = round_to(out, out_ptr.dtype.element_ty, cfg.interpreted)
    in_sequence = row < queries
    out_rows = out_ptr + locate(q_begin + row, head, shape.out_stride_token, shape.out_stride_head, cfg)
    tl.store(out_rows + tl.arange(0, shape.v_dim)[None, :], out, mask=in_sequence[:, None])
    if shape.return_lse:
        tl.store(lse_ptr + (q_begin + row).to(tl.int64) * shape.heads + head, lse, mask=in_sequence)
