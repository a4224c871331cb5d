"""How the gfx950 decode kernel is done, as one value."""

from __future__ import annotations

import attrs

from mla_core.config import KernelConfig, kernel_config, one_of
from mla_core.errors import ConfigError

TILE_TOKENS = 64
"""Tokens of a KV tile: four waves copy sixteen rows each."""

WAVE_TOKENS = 16
"""Tokens of a tile that one wave copies."""

WAVES = 4
"""Waves of a workgroup: one for each SIMD of a CU, so that each has all of the SIMD's 512 registers."""

REGIMES = ("bh16bn64", "bh32bn64", "bh64bn64")
PAGINGS = ("page_per_tile", "page_per_wave", "page_per_token")


@attrs.frozen
class Regime:
    """Shape of one workgroup's work.

    Attributes:
        rows: folded query rows (q_len x heads) of a workgroup.
        mfma_rows: rows of the matrix instruction, 16 or 32.
        waves: (token groups, waves over rows, waves over columns). A token group has keys, running maximum and
            accumulator of its own, and meets the other groups only when all keys are done.
        step_tiles: KV tiles that one step of the loop takes.
        scheduler: the compiler's instruction scheduler. `max-ilp` where registers are to spare: one workgroup runs on
            a CU whatever they number, so that nothing is gained by using few of them.
    """

    rows: int
    mfma_rows: int
    waves: tuple[int, int, int]
    step_tiles: int
    scheduler: str


_REGIMES = {
    "bh16bn64": Regime(rows=16, mfma_rows=16, waves=(4, 1, 1), step_tiles=2, scheduler=""),
    "bh32bn64": Regime(rows=32, mfma_rows=16, waves=(1, 2, 2), step_tiles=1, scheduler="max-ilp"),
    "bh64bn64": Regime(rows=64, mfma_rows=32, waves=(1, 2, 2), step_tiles=1, scheduler=""),
}


@kernel_config
class CDNA4DecodeConfig(KernelConfig):
    """Config of the gfx950 decode kernel.

    Attributes:
        regime: `bh16bn64`, `bh32bn64` or `bh64bn64`: rows of a workgroup by tokens of a tile.
        paging: what one page id serves. `page_per_tile` needs a page size that is a multiple of 64,
            `page_per_wave` one of 16; `page_per_token` takes any.
        within_2gb: every byte offset that a lane adds to a scalar base fits a signed 32-bit register, and copies are
            buffer loads. The base is the tile's page with `page_per_tile`, whatever the pool's size, else the pool.
            False: lanes form 64-bit addresses; only `page_per_token` does, the others would gain nothing by it.
    """

    regime: str = attrs.field(default="bh16bn64", validator=one_of(*REGIMES))
    paging: str = attrs.field(default="page_per_tile", validator=one_of(*PAGINGS))
    within_2gb: bool = attrs.field(default=True, validator=one_of(True, False))

    def __attrs_post_init__(self) -> None:
        if not self.within_2gb and self.paging != "page_per_token":
            raise ConfigError("paging", self.paging, "page_per_token where within_2gb is False")

    @property
    def shape(self) -> Regime:
        """What the regime's name stands for."""
        return _REGIMES[self.regime]

    @property
    def rows(self) -> int:
        """Folded query rows of a workgroup."""
        return self.shape.rows

    @property
    def mfma_rows(self) -> int:
        """Rows of the matrix instruction."""
        return self.shape.mfma_rows

    @property
    def waves(self) -> tuple[int, int, int]:
        """(token groups, waves over rows, waves over columns)."""
        return self.shape.waves

    @property
    def groups(self) -> int:
        """Token groups."""
        return self.shape.waves[0]

    @property
    def column_waves(self) -> int:
        """Waves that share a row's keys within a token group."""
        return self.shape.waves[2]

    @property
    def group_tokens(self) -> int:
        """Tokens of a tile that one group owns."""
        return TILE_TOKENS // self.groups

    @property
    def step_tokens(self) -> int:
        """Tokens that one step of the loop takes, and the unit in which a sequence is split."""
        return TILE_TOKENS * self.shape.step_tiles

    @property
    def step_keys(self) -> int:
        """Keys of a step that one token group owns."""
        return self.step_tokens // self.groups

    @property
    def num_warps(self) -> int:
        """Waves of a workgroup."""
        return WAVES

    @property
    def options(self) -> dict[str, str]:
        """Options of the back end."""
        return {"llvm_fn_attrs": f"amdgpu-sched-strategy={self.shape.scheduler}"} if self.shape.scheduler else {}
