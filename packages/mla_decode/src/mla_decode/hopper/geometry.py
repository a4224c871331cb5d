"""The shapes and strides of a problem that the kernels are compiled for, as one immutable constexpr value."""

from __future__ import annotations

import attrs

from mla_core.config import KernelConfig, kernel_config
from mla_decode.hopper.config import BLOCK_N
from mla_decode.problem import DecodeProblem

RECORD_WORDS = 16
"""int32 words of a part's record in the plan: 64 bytes."""

BOUNDARY_WORDS = 2
"""int32 words of a boundary between parts: one int64."""

ARRIVAL_WORDS = 2
"""int32 words of an arrival counter: one int64, which no number of launches overflows."""


@kernel_config
class Geometry(KernelConfig):
    """What the model, the pool and the output tensor fix; nothing here changes with batch or lengths.

    Attributes:
        rows: query rows of a request, q_len * heads; row r is query token r // heads of head r % heads.
        q_len, heads, causal, return_lse: as in the Problem.
        row_tiles: tiles of `tile_rows` rows that the rows take.
        parts: parts that a batch is cut into; each row tile of each part is a program of its own.
        out_request, out_token, out_head: strides of out, elements.
        page_blocks: blocks of 64 keys in a page.
    """

    rows: int
    q_len: int
    heads: int
    causal: bool
    return_lse: bool
    row_tiles: int
    tile_rows: int
    parts: int
    out_request: int
    out_token: int
    out_head: int
    page_blocks: int = attrs.field(default=1)

    @staticmethod
    def of(problem: DecodeProblem, tile_rows: int, compute_units: int) -> Geometry:
        """The geometry of a problem on `compute_units` SMs, its rows cut into tiles of `tile_rows`."""
        row_tiles = -(-problem.rows // tile_rows)
        out_request, out_token, out_head = problem.out_strides
        return Geometry(
            rows=problem.rows,
            q_len=problem.q_len,
            heads=problem.heads,
            causal=problem.causal,
            return_lse=problem.return_lse,
            row_tiles=row_tiles,
            tile_rows=tile_rows,
            parts=max(compute_units // row_tiles, 1),
            out_request=out_request,
            out_token=out_token,
            out_head=out_head,
            page_blocks=problem.kv.page_size // BLOCK_N,
        )

    @property
    def records_at(self) -> int:
        """Offset of the records in a plan, int32 words."""
        return -(-BOUNDARY_WORDS * (self.parts + 1) // RECORD_WORDS) * RECORD_WORDS

    @property
    def arrivals_at(self) -> int:
        """Offset of the arrival counters in a plan, int32 words."""
        return self.records_at + self.parts * RECORD_WORDS

    @property
    def tokens_at(self) -> int:
        """Offset of the requests' keys in a plan, int32 words."""
        return self.arrivals_at + ARRIVAL_WORDS * self.parts * self.row_tiles

    @property
    def scratch_rows(self) -> int:
        """Rows of all slots of the scratch: two slots a part."""
        return 2 * self.parts * self.row_tiles * self.tile_rows
