"""What a part of the grid knows of its work: its record of the plan, read when needed so that it takes no registers."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.core import _aggregate as aggregate

from mla_core.stages.hopper_sync import load_acquire
from mla_decode.hopper.planner import (
    BLOCK_N,
    FIRST_BLOCK,
    FIRST_END,
    FIRST_PIECES,
    FIRST_REQUEST,
    FIRST_SLOT,
    LAST_END,
    LAST_PIECES,
    LAST_REQUEST,
    LAST_SLOT,
    WORDS,
)


@aggregate
class Part:
    """A part's record. Its items are the requests `first_request..last_request`; only the first and the last of them may
    be pieces of a request. The record lies in the first-level cache after its first use."""

    plan_ptr: gl.tensor
    geometry: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, plan_ptr, geometry):
        self.plan_ptr = plan_ptr
        self.geometry = gl.constexpr(geometry)

    @gluon.jit
    def index(self):
        """Number of the part: program i is row tile i % row_tiles of part i // row_tiles, so that the tiles of a part
        run side by side and share its keys in L2."""
        return gl.program_id(0) // self.geometry.row_tiles

    @gluon.jit
    def first_row(self):
        """First query row of the program's tile."""
        return (gl.program_id(0) % self.geometry.row_tiles) * self.geometry.tile_rows

    @gluon.jit
    def load_word(self, word):
        """A word of the part's record."""
        return gl.load(self.plan_ptr + self.geometry.records_at + self.index() * WORDS + word)

    @gluon.jit
    def arrivals(self, first_slot):
        """Counter of the pieces of the request whose first piece is in `first_slot`."""
        tile = gl.program_id(0) % self.geometry.row_tiles
        counters = (self.plan_ptr + self.geometry.arrivals_at).to(gl.pointer_type(gl.int64))
        return counters + tile * self.geometry.parts + first_slot // 2

    @gluon.jit
    def load_launches(self, STORERS: gl.constexpr):
        """Launches with this plan before the running one; 0 where the part has no piece.

        Each launch adds STORERS arrivals a piece to a request's counter. Called before this part's own arrivals, so that
        those of this launch cannot be complete.
        """
        first, last = self.load_requests()
        request = gl.where(self.load_pieces(first) > 1, first, last)
        pieces = self.load_pieces(request)
        launches = 0
        if (pieces > 1) & (first <= last):
            arrived = load_acquire(self.arrivals(self.load_first_slot(request)))
            launches = (arrived // (STORERS * pieces)).to(gl.int32)
        return launches

    @gluon.jit
    def load_requests(self):
        """(first, last) request; last is before first where the part is empty."""
        return self.load_word(FIRST_REQUEST), self.load_word(LAST_REQUEST)

    @gluon.jit
    def load_item(self, request):
        """(keys of the request, first block of the item, block past the item)."""
        first, last = self.load_requests()
        first_block = self.load_word(FIRST_BLOCK)
        first_end = self.load_word(FIRST_END)
        last_end = self.load_word(LAST_END)
        tokens = gl.load(self.plan_ptr + self.geometry.tokens_at + request)
        end = gl.where(request == last, last_end, gl.cdiv(tokens, BLOCK_N))
        return tokens, gl.where(request == first, first_block, 0), gl.where(request == first, first_end, end)

    @gluon.jit
    def load_pieces(self, request):
        """How many parts share a request; 1 for a whole one."""
        first, last = self.load_requests()
        inner = gl.where(request == last, self.load_word(LAST_PIECES), 1)
        return gl.where(request == first, self.load_word(FIRST_PIECES), inner)

    @gluon.jit
    def load_first_slot(self, request):
        """Scratch slot of the first piece of a request that the part has a piece of."""
        first = self.load_word(FIRST_REQUEST)
        return self.load_word(gl.where(request == first, FIRST_SLOT, LAST_SLOT))

    @gluon.jit
    def load_slot(self, request):
        """Scratch slot of the part's own piece of a request."""
        return 2 * self.index() + (request != self.load_word(FIRST_REQUEST)).to(gl.int32)
