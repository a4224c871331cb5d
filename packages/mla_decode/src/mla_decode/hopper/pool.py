"""Blocks of 64 keys from the paged pool to shared memory."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma
from triton.language.core import _aggregate as aggregate

from mla_core.layouts import wgmma
from mla_core.stages.bulk_copy import issue_bulk_load
from mla_decode.hopper.planner import BLOCK_N
from mla_decode.problem import KV_LORA_RANK as _KV_LORA_RANK

KV_LORA_RANK = gl.constexpr(_KV_LORA_RANK)
PIECE = gl.constexpr(128)
"""Latent columns of a piece: what one product takes and one bulk copy brings."""
ROPE = gl.constexpr(64)
PIECES = gl.constexpr(_KV_LORA_RANK // 128)
ELEMENT_BYTES = gl.constexpr(2)


@aggregate
class Pool:
    """The pool through two descriptors over `[num_pages, page_size, 576]`, with boxes of 128 and of 64 columns."""

    piece_desc: tma.tensor_descriptor
    rope_desc: tma.tensor_descriptor
    page_table_ptr: gl.tensor
    page_table_stride: gl.tensor
    page_blocks: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, piece_desc, rope_desc, page_table_ptr, page_table_stride, page_blocks):
        self.piece_desc = piece_desc
        self.rope_desc = rope_desc
        self.page_table_ptr = page_table_ptr
        self.page_table_stride = page_table_stride
        self.page_blocks = gl.constexpr(page_blocks)

    @gluon.jit
    def load_page(self, request, block, valid):
        """Page of a block of a request; 0 where not `valid`."""
        row = self.page_table_ptr + request.to(gl.int64) * self.page_table_stride
        return gl.load(row + block // self.page_blocks, mask=valid, other=0)

    @gluon.jit
    def issue_piece(self, page, block, PIECE_INDEX: gl.constexpr, barrier, destination, pred):
        """Starts the copy of latent columns [128 i, 128 i + 128) of a block to `destination` [1, 64, 128]."""
        token = (block % self.page_blocks) * BLOCK_N
        issue_bulk_load(self.piece_desc, [page, token, PIECE_INDEX * PIECE], barrier, destination, pred=pred)

    @gluon.jit
    def issue_rope(self, page, block, barrier, destination, pred):
        """Starts the copy of the RoPE columns of a block to `destination` [1, 64, 64]."""
        token = (block % self.page_blocks) * BLOCK_N
        issue_bulk_load(self.rope_desc, [page, token, KV_LORA_RANK], barrier, destination, pred=pred)


@gluon.jit
def clear_hidden_keys(piece, visible):
    """Zeroes the rows of a piece `[64, 128]` from `visible` on: they may hold anything, and 0 times NaN is NaN."""
    layout: gl.constexpr = wgmma.row_store(PIECE)
    row = gl.arange(0, BLOCK_N, gl.SliceLayout(1, layout))
    values = piece.load(layout)
    piece.store(gl.where((row < visible)[:, None], values, gl.zeros_like(values)))
