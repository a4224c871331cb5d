"""KV tiles: 64 tokens of a paged pool, copied asynchronously straight to LDS.

A tile is copied as `[4 waves, 16 tokens, columns]`: each wave copies sixteen consecutive tokens, the latent and the
RoPE columns apart. How many pages those touch decides what one page id serves (`cfg.paging`):

    page_per_tile    page size a multiple of 64: one id a tile; the page's address is a scalar base
    page_per_wave    a multiple of 16: one id a wave
    page_per_token   any: one id a token

Ids are loaded (`load_page_ids`) a step ahead of the copies that need them; only the copies (`issue_tile`) make
addresses of them. Tokens behind the end of the sequence count as its last tile, last sixteen tokens or last token, so
that every table entry that is read and every row that is copied belongs to a visible page: no lane is masked, and what
rows behind the end bring to LDS is never used.

Where every offset that a lane forms fits 32 bits (`cfg.within_2gb`), copies are buffer loads; otherwise lanes form
64-bit addresses.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.gluon_compat import aggregate, reinterpret
from mla_core.layouts.cdna4 import tile_copy_layout, tile_shared_layout
from mla_core.stages.uniform import keep_in_lanes, make_uniform

TILE_TOKENS = gl.constexpr(64)
COPY_WAVES = gl.constexpr(4)
WAVE_TOKENS = gl.constexpr(16)

async_copy = gl.amd.cdna4.async_copy


@aggregate
class Keys:
    """The keys of one request, as one query tile sees them.

    kv_cache: pointer to the pool. table_row: pointer to the request's page ids. seqlen: int32, at least 1. visible:
    int32 `[1, rows, 1]`, keys that each row sees. scale_log2: fp32, factor of raw scores.
    """

    kv_cache: gl.tensor
    table_row: gl.tensor
    seqlen: gl.tensor
    visible: gl.tensor
    scale_log2: gl.tensor


@aggregate
class KVTile:
    """LDS of one tile as the copies see it: latent `[4, 16, kv_lora_rank]`, rope `[4, 16, qk_rope_head_dim]`."""

    latent: gl.shared_memory_descriptor
    rope: gl.shared_memory_descriptor


@aggregate
class KVStages:
    """LDS of some tiles: latent `[stages, 4, 16, kv_lora_rank]`, rope `[stages, 4, 16, qk_rope_head_dim]`."""

    latent: gl.shared_memory_descriptor
    rope: gl.shared_memory_descriptor

    @gluon.jit
    def at(self, stage):
        """The KVTile of one stage."""
        return KVTile(self.latent.index(stage), self.rope.index(stage))


@aggregate
class PageIds:
    """Page ids of one tile for both copies: scalars, `[4]` or `[4, 16]` by `cfg.paging`."""

    latent: gl.tensor
    rope: gl.tensor


@gluon.jit
def allocate_stages(dtype: gl.constexpr, stages: gl.constexpr, cfg: gl.constexpr, geo: gl.constexpr):
    """Uninitialised tiles."""
    return KVStages(
        _allocate(dtype, stages, geo.kv_lora_rank, cfg.mfma_rows), _allocate(dtype, stages, geo.qk_rope_head_dim, 0)
    )


@gluon.jit
def _allocate(dtype: gl.constexpr, stages: gl.constexpr, columns: gl.constexpr, value_columns: gl.constexpr):
    layout: gl.constexpr = tile_shared_layout(COPY_WAVES, WAVE_TOKENS, columns, value_columns)
    return gl.allocate_shared_memory(dtype, [stages, COPY_WAVES, WAVE_TOKENS, columns], layout)


@gluon.jit
def view_latent(tile, cfg: gl.constexpr):
    """The latent part of a tile as `[groups, 64 / groups, columns]`: the same bytes, tokens in order."""
    return _view_part(tile.latent, cfg.groups, cfg.mfma_rows)


@gluon.jit
def view_rope(tile, cfg: gl.constexpr):
    """The RoPE part of a tile as `[groups, 64 / groups, columns]`: the same bytes, tokens in order."""
    return _view_part(tile.rope, cfg.groups, 0)


@gluon.jit
def _view_part(part, groups: gl.constexpr, value_columns: gl.constexpr):
    if groups == COPY_WAVES:
        return part
    else:
        shape: gl.constexpr = [groups, TILE_TOKENS // groups, part.shape[2]]
        layout: gl.constexpr = tile_shared_layout(shape[0], shape[1], shape[2], value_columns)
        return reinterpret(part, part.dtype, shape, layout)


@gluon.jit
def load_page_ids(keys, tile, cfg: gl.constexpr, geo: gl.constexpr):
    """PageIds of a tile of the sequence `keys` (Keys)."""
    table_row = keys.table_row
    seqlen = keys.seqlen
    latent: gl.constexpr = tile_copy_layout(COPY_WAVES, WAVE_TOKENS, geo.kv_lora_rank, COPY_WAVES)
    rope: gl.constexpr = tile_copy_layout(COPY_WAVES, WAVE_TOKENS, geo.qk_rope_head_dim, COPY_WAVES)
    if cfg.paging == "page_per_tile":
        ids = gl.load(table_row + _page_index(_tile_start(tile, seqlen), geo))
        return PageIds(ids, ids)
    elif cfg.paging == "page_per_wave":
        return PageIds(
            gl.load(table_row + _page_index(_wave_starts(tile, seqlen, latent), geo)),
            gl.load(table_row + _page_index(_wave_starts(tile, seqlen, rope), geo)),
        )
    else:
        # One load a wave, its lanes the tokens; `issue_tile` hands each row's offset to the whole wave that copies it.
        one_lane_a_token: gl.constexpr = gl.BlockedLayout([1, 1], [4, 16], [4, 1], [1, 0])
        return PageIds(
            gl.load(table_row + _page_index(_positions(tile, seqlen, one_lane_a_token), geo)),
            gl.load(table_row + _page_index(_positions(tile, seqlen, gl.SliceLayout(2, rope)), geo)),
        )


@gluon.jit
def wait_page_ids(ids, cfg: gl.constexpr):
    """The same ids, arrived: a scalar in a scalar register, others in vector registers.

    Loads and copies arrive in the order in which they were issued, so this waits for nothing that was issued after the
    ids. Where it isn't called, the wait falls to the place of use, behind the copies that were issued meanwhile.
    """
    if cfg.paging == "page_per_tile":
        page = make_uniform(ids.latent)
        return PageIds(page, page)
    else:
        return PageIds(keep_in_lanes(ids.latent), keep_in_lanes(ids.rope))


@gluon.jit
def issue_tile(destination, ids, keys, tile, cfg: gl.constexpr, geo: gl.constexpr):
    """Starts copying a tile to LDS and closes a group of copies: 16 + 2 instructions a wave."""
    _issue_rows(destination.latent, keys.kv_cache, ids.latent, tile, keys.seqlen, cfg, geo)
    _issue_rows(destination.rope, keys.kv_cache + geo.kv_lora_rank, ids.rope, tile, keys.seqlen, cfg, geo)
    async_copy.commit_group()


@gluon.jit
def _issue_rows(destination, kv_cache, ids, tile, seqlen, cfg: gl.constexpr, geo: gl.constexpr):
    """Starts copying `[4, 16, columns]` rows; kv_cache points to the first of the columns in the pool's first row."""
    layout: gl.constexpr = tile_copy_layout(COPY_WAVES, WAVE_TOKENS, destination.shape[2], COPY_WAVES)
    column = gl.arange(0, destination.shape[2], layout=gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
    if cfg.paging == "page_per_token":
        base = kv_cache
        ids_layout: gl.constexpr = ids.type.layout
        slot = _slot(_positions(tile, seqlen, ids_layout), geo).to(_slot_offset_type(geo))
        rows = ids.to(_offset_type(cfg)) * geo.stride_page + slot * geo.stride_token
        rows = gl.convert_layout(rows, gl.SliceLayout(2, layout))
    else:
        token = gl.arange(0, WAVE_TOKENS, layout=gl.SliceLayout(0, gl.SliceLayout(2, layout)))
        if cfg.paging == "page_per_tile":
            slot = _slot(_tile_start(tile, seqlen), geo)
            base = kv_cache + (ids.to(gl.int64) * geo.stride_page + slot.to(gl.int64) * geo.stride_token)
            wave = gl.arange(0, COPY_WAVES, layout=gl.SliceLayout(1, gl.SliceLayout(2, layout)))
            # Depends on the tile for the compiler only (tile >= 0): offsets of all rows would not fit the registers.
            wave_rows = keep_in_lanes(wave * WAVE_TOKENS + (tile >> 31)) * geo.stride_token
        else:
            base = kv_cache
            wave_rows = ids * geo.stride_page + _slot(_wave_starts(tile, seqlen, layout), geo) * geo.stride_token
        rows = wave_rows[:, None] + token[None, :] * geo.stride_token
    if cfg.within_2gb:
        async_copy.buffer_load_to_shared(destination, base, rows[:, :, None] + column)
    else:
        async_copy.global_load_to_shared(destination, base + (rows[:, :, None] + column))


@gluon.constexpr_function
def _offset_type(cfg):
    return gl.int32 if cfg.within_2gb else gl.int64


@gluon.constexpr_function
def _slot_offset_type(geo):
    return gl.int32 if geo.page_within_2gb else gl.int64


@gluon.jit
def _page_index(position, geo: gl.constexpr):
    """Column of the page table for a position >= 0: divided as unsigned, which takes fewer instructions."""
    return (position.to(gl.uint32) // geo.page_size).to(gl.int32)


@gluon.jit
def _slot(position, geo: gl.constexpr):
    """Row in its page of a position >= 0."""
    return (position.to(gl.uint32) % geo.page_size).to(gl.int32)


@gluon.jit
def _tile_start(tile, seqlen):
    """Position of a tile's first token; a tile behind the end counts as the last one."""
    return gl.minimum(tile, (seqlen - 1) // TILE_TOKENS) * TILE_TOKENS


@gluon.jit
def _wave_starts(tile, seqlen, layout: gl.constexpr):
    """Position `[4]` of each wave's first token; sixteen tokens behind the end count as the last sixteen."""
    wave = gl.arange(0, COPY_WAVES, layout=gl.SliceLayout(1, gl.SliceLayout(2, layout)))
    return gl.minimum(tile * TILE_TOKENS + wave * WAVE_TOKENS, (seqlen - 1) // WAVE_TOKENS * WAVE_TOKENS)


@gluon.jit
def _positions(tile, seqlen, layout: gl.constexpr):
    """Positions `[4, 16]` of a tile's tokens; those behind the end count as the last token."""
    wave = gl.arange(0, COPY_WAVES, layout=gl.SliceLayout(1, layout))
    token = gl.arange(0, WAVE_TOKENS, layout=gl.SliceLayout(0, layout))
    first = keep_in_lanes(tile * TILE_TOKENS + wave * WAVE_TOKENS)
    return gl.minimum(first[:, None] + token[None, :], seqlen - 1)
