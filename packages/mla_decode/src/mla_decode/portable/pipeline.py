"""Device code of the `triton` decode solution.

One workgroup owns `block_m` rows (query tokens x heads) of one request and one split of its KV:

    load q                                          [block_m, 512] and [block_m, 64], kept
    for each block of block_n keys that every row sees:          no mask anywhere
        load_kv      page ids -> latent [block_n, 512], rope [block_n, 64]
        multiply     logits = q . kv^T                 rope columns, then latent columns
        softmax      p, row_max, row_sum, decay
        multiply     acc = decay * acc + p . latent    the latent tile once more, as V
    for each block that holds a key some row does not see:       the same, masked
    store            out, or this split's partial_out and partial_lse

Loads carry no mask: a token behind the last visible one is replaced by that last one, so that nothing but visible
keys is ever read, and its probability is 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mla_core.stages.interpreted import multiply, round_to
from mla_core.stages.triton_softmax import compute_softmax, finish_softmax


@triton.jit
def split_span(keys, split, num_splits, split_tokens, block_n: tl.constexpr):
    """Keys [first, last) of a split. Splits are split_tokens long, longer where num_splits of them do not suffice."""
    enough = tl.cdiv(tl.cdiv(keys, num_splits), block_n) * block_n
    length = tl.maximum(split_tokens, enough)
    first = tl.minimum(split * length, keys)
    return first, tl.minimum(first + length, keys)


@triton.jit
def widen(index, cfg: tl.constexpr):
    """index as wide as an offset into the pool has to be."""
    if cfg.within_2gb:
        return tl.cast(index, tl.int32)
    else:
        return tl.cast(index, tl.int64)


@triton.jit
def load_page_ids(page_table_ptr, start, last, shape: tl.constexpr, cfg: tl.constexpr):
    """Pages of the tokens from `start` on, those behind `last` replaced by it: one id where a page holds a whole
    block, else one a token, `[block_n]`."""
    if shape.page_size % cfg.block_n == 0:
        token = tl.minimum(start, last)
    else:
        token = tl.minimum(start + tl.arange(0, cfg.block_n), last)
    return tl.load(page_table_ptr + token // shape.page_size)


@triton.jit
def locate_tokens(page_ids, start, last, masked: tl.constexpr, shape: tl.constexpr, cfg: tl.constexpr):
    """Offsets `[block_n]` into the pool of the tokens from `start` on; `masked` replaces those behind `last` by it."""
    token = tl.arange(0, cfg.block_n)
    if masked:
        token = tl.minimum(token, last - start)
    page = widen(page_ids, cfg) * shape.kv_stride_page
    if shape.page_size % cfg.block_n == 0:
        page += widen(start % shape.page_size, cfg) * shape.kv_stride_token
        return page + widen(token, cfg) * shape.kv_stride_token
    else:
        return page + widen((start + token) % shape.page_size, cfg) * shape.kv_stride_token


@triton.jit
def load_row_tile(ptr, offsets, shape: tl.constexpr):
    """(latent `[N, 512]`, rope `[N, 64]`) of the rows at `offsets`."""
    rows = ptr + offsets[:, None]
    latent = tl.load(rows + tl.arange(0, shape.kv_lora_rank)[None, :])
    rope = tl.load(rows + shape.kv_lora_rank + tl.arange(0, shape.qk_rope_head_dim)[None, :])
    return latent, rope


@triton.jit
def attend_block(
    q_latent, q_rope, acc, row_max, row_sum, kv_ptr, page_ids, start, last, visible, scale_log2,
    masked: tl.constexpr, negate: tl.constexpr, shape: tl.constexpr, cfg: tl.constexpr,
):  # fmt: skip
    """One block of keys: the steady loop's body. `visible` `[block_m]`: keys each row sees, read where `masked`."""
    latent, rope = load_row_tile(kv_ptr, locate_tokens(page_ids, start, last, masked, shape, cfg), shape)
    logits = tl.full([cfg.block_m, cfg.block_n], 0.0, tl.float32)
    logits = multiply(q_rope, tl.trans(rope), logits, cfg.interpreted)
    logits = multiply(q_latent, tl.trans(latent), logits, cfg.interpreted)
    seen = (start + tl.arange(0, cfg.block_n))[None, :] < visible[:, None]
    p, row_max, row_sum, decay = compute_softmax(logits, row_max, row_sum, scale_log2, seen, masked, negate)
    acc = multiply(p, latent, acc * decay[:, None], cfg.interpreted)
    return acc, row_max, row_sum


@triton.jit(do_not_specialize=["page_table_stride", "max_kv_tokens", "num_splits", "split_tokens"])
def decode_kernel(
    q_ptr,
    kv_ptr,
    page_table_ptr,
    cache_seqlens_ptr,
    out_ptr,
    lse_ptr,
    scale_log2,
    page_table_stride,
    max_kv_tokens,
    num_splits,
    split_tokens,
    is_split: tl.constexpr,
    negate: tl.constexpr,
    shape: tl.constexpr,
    cfg: tl.constexpr,
):
    """out and lse are the caller's, or with `is_split` the scratch of `mla_decode.merge`; scale_log2 and negate are
    those of `split_scale`. Grid: one axis of (request, split, row block), the row block fastest, so that the blocks
    that share KV run side by side."""
    row_blocks: tl.constexpr = (shape.rows + cfg.block_m - 1) // cfg.block_m
    row_block = tl.program_id(0) % row_blocks
    split = tl.program_id(0) // row_blocks % num_splits
    request = (tl.program_id(0) // row_blocks // num_splits).to(tl.int64)

    row = row_block * cfg.block_m + tl.arange(0, cfg.block_m)
    token = row // shape.heads
    in_tile = row < shape.rows
    slot = (request * num_splits + split) * shape.rows + row  # num_splits is 1 where not is_split

    # Keys that a row sees grow with its query token: the tile's first token sees the fewest, its last one the most.
    keys = tl.minimum(tl.maximum(tl.load(cache_seqlens_ptr + request), 0), max_kv_tokens)
    first_token = row_block * cfg.block_m // shape.heads
    last_token = tl.minimum((row_block + 1) * cfg.block_m - 1, shape.rows - 1) // shape.heads
    visible = tl.full([cfg.block_m], 0, tl.int32) + keys
    fewest = keys
    most = keys
    if shape.causal:
        visible += token - (shape.q_len - 1)
        fewest += first_token - (shape.q_len - 1)
        most += last_token - (shape.q_len - 1)
    first, last = split_span(keys, split, num_splits, split_tokens, cfg.block_n)
    last = tl.minimum(last, most)
    if is_split:  # noqa: SIM102 (a constexpr condition, then one of the device)
        if last <= first:
            tl.store(lse_ptr + slot, tl.full([cfg.block_m], float("-inf"), tl.float32), mask=in_tile)
            return
    unmasked = tl.maximum(tl.minimum(last, fewest) - first, 0) // cfg.block_n * cfg.block_n + first

    q_row = tl.minimum(row, shape.rows - 1)
    q_offset = request * shape.q_stride_request + (q_row // shape.heads).to(tl.int64) * shape.q_stride_token
    q_offset += (q_row % shape.heads).to(tl.int64) * shape.q_stride_head
    q_latent, q_rope = load_row_tile(q_ptr, q_offset, shape)

    page_table_ptr += request * page_table_stride
    acc = tl.full([cfg.block_m, shape.kv_lora_rank], 0.0, tl.float32)
    row_max = tl.full([cfg.block_m], float("-inf"), tl.float32)
    row_sum = tl.full([cfg.block_m], 0.0, tl.float32)
    last_key = tl.maximum(last - 1, 0)  # a token that page_table has, also where no key is visible
    page_ids = load_page_ids(page_table_ptr, first, last_key, shape, cfg)
    for start in tl.range(first, unmasked, cfg.block_n, disable_licm=cfg.recompute_addresses):
        next_page_ids = load_page_ids(page_table_ptr, start + cfg.block_n, last_key, shape, cfg)
        acc, row_max, row_sum = attend_block(
            q_latent, q_rope, acc, row_max, row_sum, kv_ptr, page_ids, start, last_key, visible, scale_log2,
            False, negate, shape, cfg,
        )  # fmt: skip
        page_ids = next_page_ids
    for start in tl.range(unmasked, last, cfg.block_n, disable_licm=cfg.recompute_addresses):
        next_page_ids = load_page_ids(page_table_ptr, start + cfg.block_n, last_key, shape, cfg)
        acc, row_max, row_sum = attend_block(
            q_latent, q_rope, acc, row_max, row_sum, kv_ptr, page_ids, start, last_key, visible, scale_log2,
            True, negate, shape, cfg,
        )  # fmt: skip
        page_ids = next_page_ids

    out, lse = finish_softmax(acc, row_max, row_sum, scale_log2)
    out = round_to(out, out_ptr.dtype.element_ty, cfg.interpreted)
    column = tl.arange(0, shape.kv_lora_rank)
    if is_split:
        out_offset = slot * shape.kv_lora_rank
    else:
        out_offset = request * shape.out_stride_request + token.to(tl.int64) * shape.out_stride_token
        out_offset += (row % shape.heads).to(tl.int64) * shape.out_stride_head
    tl.store(out_ptr + out_offset[:, None] + column[None, :], out, mask=in_tile[:, None])
    if is_split or shape.return_lse:
        tl.store(lse_ptr + slot, lse, mask=in_tile)
