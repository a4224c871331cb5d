"""Counts what the gfx950 decode kernel executes for requests of 4096 tokens, in the emulator.

`python docs/gfx950_executed.py`; needs Triton 3.9 and no GPU. The figures of the public kernels are those of their
steady loops (docs/gfx950.md), which cover 64 tokens a turn with four waves; their prologues are not counted.
"""

from __future__ import annotations

import attrs

from mla_decode import mla_decode_with_kvcache
from mla_testing import emulate
from mla_testing.paged_cache import paged_cache
from mla_testing.quiet_exit import silence_leak_report

TOKENS = 4096
UNITS = 8
WAVES = 4
TILE_TOKENS = 64


@attrs.frozen
class PublicLoop:
    """Instructions of one wave for a tile of 64 tokens."""

    rows: int
    total: int
    lds: int


PUBLIC = (PublicLoop(rows=16, total=508, lds=66), PublicLoop(rows=64, total=907, lds=209))


def main() -> None:
    """Prints wave instructions of all kinds and of LDS for 1000 (row x token), of all kernels that a call launches."""
    print("rows  requests  instructions  public  ratio   LDS  public  ratio")
    for public in PUBLIC:
        for requests in (UNITS, 1):
            inputs = paged_cache(seqlens=(TOKENS,) * requests, heads=public.rows, share_prefix=True)
            with emulate("gfx950", compute_units=UNITS, checks="none") as session:
                mla_decode_with_kvcache(*inputs.tensors, **inputs.options, solution="cdna4")
            work = requests * public.rows * TOKENS / 1000
            total = sum(sum(launch.instructions.values()) for launch in session.launches) / work
            lds = sum(launch.instructions["lds"] for launch in session.launches) / work
            scale = WAVES * 1000 / (public.rows * TILE_TOKENS)
            cells = [total, public.total * scale, public.total * scale / total]
            cells += [lds, public.lds * scale, public.lds * scale / lds]
            row = "{:4d}  {:8d}  {:12.0f}  {:6.0f}  {:5.2f}  {:4.0f}  {:6.0f}  {:5.2f}"
            print(row.format(public.rows, requests, *cells))
    silence_leak_report()


if __name__ == "__main__":
    main()
