"""Where results go: to out and lse, or, for a piece of a request, to fp32 scratch that the pieces' parts then merge."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.core import _aggregate as aggregate

from mla_core.stages.hopper_sync import publish_arrival, wait_arrivals
from mla_core.stages.triton_softmax import LN_2
from mla_decode.problem import KV_LORA_RANK as _KV_LORA_RANK

KV_LORA_RANK = gl.constexpr(_KV_LORA_RANK)

ROW_SHARES = gl.constexpr(4)
"""Parts that share the columns of a row in the merge, where a request has more parts than rows."""


@aggregate
class Results:
    """Outputs, and fp32 scratch: partial outputs `[2 parts, row_tiles * tile_rows, 512]`, each normalised, then their
    lse `[2 parts, row_tiles * tile_rows]` of base 2."""

    out_ptr: gl.tensor
    lse_ptr: gl.tensor
    scratch_ptr: gl.tensor
    geometry: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, out_ptr, lse_ptr, scratch_ptr, geometry):
        self.out_ptr = out_ptr
        self.lse_ptr = lse_ptr
        self.scratch_ptr = scratch_ptr
        self.geometry = gl.constexpr(geometry)

    @gluon.jit
    def out_offset(self, request, row):
        """Elements to the start of a row of out."""
        g: gl.constexpr = self.geometry
        return request.to(gl.int64) * g.out_request + (row // g.heads) * g.out_token + (row % g.heads) * g.out_head

    @gluon.jit
    def scratch_row(self, slot, row):
        """Index of a row of a slot in the scratch."""
        return slot * (self.geometry.row_tiles * self.geometry.tile_rows) + row

    @gluon.jit
    def partial_out(self, scratch_row):
        """Pointers to rows of partial outputs."""
        return self.scratch_ptr + scratch_row.to(gl.int64) * KV_LORA_RANK

    @gluon.jit
    def partial_lse(self, scratch_row):
        """Pointers to the lse of rows of partial outputs."""
        return self.scratch_ptr + self.geometry.scratch_rows * KV_LORA_RANK + scratch_row

    @gluon.jit
    def store_out(self, request, row, column, values, valid):
        """Stores final values where `valid`; the arguments broadcast to the shape of `values`."""
        pointers = self.out_ptr + self.out_offset(request, row) + column
        gl.store(pointers, values.to(self.out_ptr.dtype.element_ty), mask=valid)

    @gluon.jit
    def store_partial(self, slot, row, column, values, valid):
        """Stores values of a piece where `valid`."""
        gl.store(self.partial_out(self.scratch_row(slot, row)) + column, values, mask=valid)

    @gluon.jit
    def store_lse(self, request, row, lse_log2, valid):
        """Stores a final lse given in base 2 where `valid`."""
        g: gl.constexpr = self.geometry
        if g.return_lse:
            gl.store(self.lse_ptr + request.to(gl.int64) * g.rows + row, lse_log2 * LN_2, mask=valid)

    @gluon.jit
    def store_partial_lse(self, slot, row, lse_log2, valid):
        """Stores the lse of a piece, base 2, where `valid`."""
        gl.store(self.partial_lse(self.scratch_row(slot, row)), lse_log2, mask=valid)

    @gluon.jit
    def publish_piece(self, part, request):
        """Tells the other parts of a request that this partition has stored its share of a piece."""
        publish_arrival(part.arrivals(part.load_first_slot(request)))

    @gluon.jit
    def wait_pieces(self, part, launches, ready, STORERS: gl.constexpr):
        """One partition waits for the pieces of each request that the part shares, and tells the others by `ready` [2].

        A single poller for a workgroup: more of them slow the very stores that they wait for.
        """
        first, last = part.load_requests()
        turn = 0
        for request in range(first, last + 1, gl.maximum(last - first, 1)):
            pieces = part.load_pieces(request)
            if pieces > 1:
                arrivals = (launches.to(gl.int64) + 1) * (STORERS * pieces)
                wait_arrivals(part.arrivals(part.load_first_slot(request)), arrivals)
                mbarrier.arrive(ready.index(turn))
            turn += 1

    @gluon.jit
    def merge_pieces(self, part, ready, COLUMN: gl.constexpr, COLUMNS: gl.constexpr):
        """Merges this partition's columns of the requests that the part shares with others, once all pieces are there.

        Each of a request's parts merges an equal share of its rows, piece by piece in order, so that the result does not
        depend on who arrives when.
        """
        first, last = part.load_requests()
        turn = 0
        for request in range(first, last + 1, gl.maximum(last - first, 1)):
            pieces = part.load_pieces(request)
            if pieces > 1:
                mbarrier.wait(ready.index(turn), 0)
                self.merge_request(part, request, part.load_first_slot(request), pieces, COLUMN, COLUMNS)
            turn += 1

    @gluon.jit
    def merge_request(self, part, request, first_slot, pieces, COLUMN: gl.constexpr, COLUMNS: gl.constexpr):
        """Merges this part's share of one request: some rows, or where there are fewer rows than parts, a part of a row.

        The tile of a step follows the number of pieces, so that each has about 32 values a thread in flight.
        """
        g: gl.constexpr = self.geometry
        first_row = part.first_row()
        rows = gl.minimum(g.rows - first_row, g.tile_rows)
        share = part.index() - first_slot // 2
        if pieces >= ROW_SHARES * rows:
            if share < ROW_SHARES * rows:
                row = first_row + share // ROW_SHARES
                NARROWED: gl.constexpr = COLUMNS // ROW_SHARES
                column = COLUMN + share % ROW_SHARES * NARROWED
                self.merge_rows(request, row, row + 1, first_slot, pieces, column, NARROWED, 64, 1)
        else:
            begin = first_row + rows * share // pieces
            end = first_row + rows * (share + 1) // pieces
            if pieces <= 2:
                self.merge_rows(request, begin, end, first_slot, pieces, COLUMN, COLUMNS, 2, 2048 // COLUMNS)
            elif pieces <= 8:
                self.merge_rows(request, begin, end, first_slot, pieces, COLUMN, COLUMNS, 4, 1024 // COLUMNS)
            else:
                self.merge_rows(request, begin, end, first_slot, pieces, COLUMN, COLUMNS, 4096 // COLUMNS, 1)

    @gluon.jit
    def merge_rows(
        self, request, begin, end, first_slot, pieces, first_column, COLUMNS: gl.constexpr, PIECES: gl.constexpr,
        ROWS: gl.constexpr,
    ):  # fmt: skip
        """Merges COLUMNS columns of rows `begin..end - 1`, ROWS rows and PIECES pieces at a time."""
        # A warpgroup: 4 warps x 4 lanes x 4 columns (a 64-byte stretch of a row), 8 lanes along the pieces or the rows.
        lanes: gl.constexpr = [8, 1, 4] if ROWS == 1 else [1, 8, 4]
        tile: gl.constexpr = gl.BlockedLayout([1, 1, 4], lanes, [1, 1, 4], [2, 1, 0])
        by_row: gl.constexpr = gl.SliceLayout(0, tile)
        grid: gl.constexpr = gl.SliceLayout(2, tile)
        piece = gl.arange(0, PIECES, gl.SliceLayout(1, grid))
        column = first_column + gl.arange(0, COLUMNS, gl.SliceLayout(0, by_row))
        for top in range(begin, end, ROWS):
            grid_row = top + gl.arange(0, ROWS, gl.SliceLayout(0, grid))
            largest = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, by_row))
            weight_sum = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, by_row))
            merged = gl.zeros([ROWS, COLUMNS], gl.float32, by_row)
            for first in range(0, pieces, PIECES):
                slot = gl.where(first + piece == 0, first_slot, 2 * (first_slot // 2 + first + piece))
                valid = (first + piece < pieces)[:, None] & (grid_row < end)[None, :]
                index = self.scratch_row(slot[:, None], grid_row[None, :])
                lse = gl.load(self.partial_lse(index), mask=valid, other=float("-inf"), cache_modifier=".cg")
                pointers = self.partial_out(index)[:, :, None] + gl.expand_dims(column, 0)[None, :, :]
                values = gl.load(pointers, mask=valid[:, :, None], other=0.0, cache_modifier=".cg")
                new_largest = gl.maximum(largest, gl.convert_layout(gl.max(lse, 0), gl.SliceLayout(1, by_row)))
                reference = gl.where(new_largest == float("-inf"), 0.0, new_largest)
                weight = gl.exp2(lse - gl.convert_layout(reference, gl.SliceLayout(0, grid))[None, :])
                decay = gl.exp2(largest - reference)
                weight_sum = weight_sum * decay + gl.convert_layout(gl.sum(weight, 0), gl.SliceLayout(1, by_row))
                weighted = gl.where((weight > 0)[:, :, None], values * weight[:, :, None], 0.0)
                merged = merged * decay[:, None] + gl.sum(weighted, 0)
                largest = new_largest
            seen = weight_sum > 0
            merged = gl.where(seen[:, None], merged / weight_sum[:, None], 0.0)
            row = top + gl.arange(0, ROWS, gl.SliceLayout(1, by_row))
            self.store_out(request, row[:, None], column[None, :], merged, (row < end)[:, None])
            if first_column == 0:
                lse = gl.where(seen, largest + gl.log2(weight_sum), float("-inf"))
                self.store_lse(request, row, lse, row < end)
