"""Shapes to measure: named grids, and shapes spelled on the command line."""

from __future__ import annotations

import itertools
import re
from typing import Any

import attrs

from mla_core.errors import ArgumentError
from mla_core.problem import ELEMENT_BYTES
from mla_decode.problem import KV_LORA_RANK, QK_ROPE_HEAD_DIM
from mla_prefill.problem import QK_HEAD_DIM, V_HEAD_DIM
from mla_testing.operations import Inputs
from mla_testing.paged_cache import paged_cache
from mla_testing.varlen import varlen


@attrs.frozen(kw_only=True)
class DecodeShape:
    """A decode step in bf16, every sequence `seqlen` tokens long, or spread evenly from `shortest` to it.

    Spelled `batch x seqlen x heads`, with `x q_len` behind it where that is not 1; a spread is `shortest-seqlen`.
    """

    batch: int
    seqlen: int
    heads: int
    q_len: int = 1
    page_size: int = 64
    shortest: int | None = None

    operation = "decode"

    @property
    def label(self) -> str:
        """The shape as the command line spells it."""
        return f"{self.batch}x{self.spread}x{self.heads}" + (f"x{self.q_len}" if self.q_len > 1 else "")

    @property
    def spread(self) -> str:
        """The lengths: one, or the shortest and the longest."""
        return str(self.seqlen) if self.shortest is None else f"{self.shortest}-{self.seqlen}"

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence."""
        first = self.seqlen if self.shortest is None else self.shortest
        gaps = max(self.batch - 1, 1)
        return [first + (self.seqlen - first) * place // gaps for place in range(self.batch)]

    @property
    def bytes(self) -> int:
        """Least memory traffic: each visible KV row read once, q read, out written."""
        rows = self.batch * self.q_len * self.heads
        head_dim = KV_LORA_RANK + QK_ROPE_HEAD_DIM
        return ELEMENT_BYTES * (sum(self.lengths) * head_dim + rows * (head_dim + KV_LORA_RANK))

    @property
    def pairs(self) -> int:
        """(Row, visible key) pairs over all heads."""
        return self.heads * sum(length - self.q_len + 1 + row for length in self.lengths for row in range(self.q_len))

    @property
    def flops(self) -> int:
        """Multiplications and additions of both products over the visible keys."""
        return 2 * self.pairs * (2 * KV_LORA_RANK + QK_ROPE_HEAD_DIM)

    def inputs(self, device: str) -> Inputs:
        """Tensors of the shape: random pages and values."""
        return paged_cache(
            seqlens=self.lengths,
            heads=self.heads,
            q_len=self.q_len,
            page_size=self.page_size,
            device=device,
        )

    def as_dict(self) -> dict[str, Any]:
        """The shape's own columns of the CSV."""
        return {"batch": self.batch, "seqlen": self.spread, "heads": self.heads, "q_len": self.q_len, "mask": ""}


@attrs.frozen(kw_only=True)
class PrefillShape:
    """A prefill in bf16 of `batch` sequences of `seqlen` tokens.

    Spelled `batch x seqlen x heads`, then `full` or `causal`.
    """

    batch: int
    seqlen: int
    heads: int
    causal: bool = True

    operation = "prefill"

    @property
    def label(self) -> str:
        """The shape as the command line spells it."""
        return f"{self.batch}x{self.seqlen}x{self.heads}x{'causal' if self.causal else 'full'}"

    @property
    def bytes(self) -> int:
        """Least memory traffic: q, k and v read once, out written."""
        return ELEMENT_BYTES * self.batch * self.seqlen * self.heads * 2 * (QK_HEAD_DIM + V_HEAD_DIM)

    @property
    def pairs(self) -> int:
        """(Row, visible key) pairs over all heads; half of the square under a causal mask (diagonal ignored)."""
        square = self.batch * self.seqlen**2 * self.heads
        return square // 2 if self.causal else square

    @property
    def flops(self) -> int:
        """Multiplications and additions of both products over the pairs."""
        return 2 * self.pairs * (QK_HEAD_DIM + V_HEAD_DIM)

    def inputs(self, device: str) -> Inputs:
        """Tensors of the shape with random values."""
        return varlen(
            seqlens=[(self.seqlen, self.seqlen)] * self.batch, heads=self.heads, is_causal=self.causal, device=device
        )

    def as_dict(self) -> dict[str, Any]:
        """The shape's own columns of the CSV."""
        mask = "causal" if self.causal else "full"
        return {"batch": self.batch, "seqlen": self.seqlen, "heads": self.heads, "q_len": "", "mask": mask}


Shape = DecodeShape | PrefillShape


def decode_shapes(heads: tuple[int, ...], batches: tuple[int, ...], lengths: tuple[int, ...]) -> list[Shape]:
    """The full product, lengths innermost."""
    return [
        DecodeShape(batch=batch, seqlen=seqlen, heads=count)
        for count, batch, seqlen in itertools.product(heads, batches, lengths)
    ]


def prefill_shapes(
    heads: tuple[int, ...], batches: tuple[int, ...], lengths: tuple[int, ...], masks: tuple[bool, ...] = (True, False)
) -> list[Shape]:
    """The full product, lengths innermost; a mask is True for causal."""
    return [
        PrefillShape(batch=batch, seqlen=seqlen, heads=count, causal=causal)
        for causal, count, batch, seqlen in itertools.product(masks, heads, batches, lengths)
    ]


SEED_LENGTHS = (512, 1024, 2048, 8192, 16384)
PREFILL_LENGTHS = (1024, 2048, 4096, 8192, 16384)

GRIDS: dict[str, dict[str, list[Shape]]] = {
    # The grid that this kind of kernel was first published with.
    "seed": {
        "decode": [
            *decode_shapes((8, 16), (1, 8, 32), (*SEED_LENGTHS, 32768)),
            *decode_shapes((64, 128), (64, 128), SEED_LENGTHS),
        ],
        "prefill": prefill_shapes((16, 64), (1, 2, 4, 8, 16), PREFILL_LENGTHS),
    },
    # A minute: both regimes, short and long.
    "small": {
        "decode": [
            *decode_shapes((16,), (1, 32), (2048, 8192)),
            *decode_shapes((128,), (8, 64), (2048, 4096)),
            DecodeShape(batch=128, shortest=1024, seqlen=4096, heads=16),
        ],
        "prefill": prefill_shapes((16,), (1, 4), (1024, 4096)),
    },
    # From bandwidth-bound to compute-bound.
    "roofline": {
        "decode": [
            *decode_shapes((8, 16, 32, 64, 128), (1, 16, 128), (4096,)),
            DecodeShape(batch=128, seqlen=4096, heads=128, q_len=2),
        ],
        "prefill": prefill_shapes((16,), (1,), (256, 512, *PREFILL_LENGTHS), masks=(True,)),
    },
}
"""Shapes by grid and operation."""


def shapes(operation: str, grid: str) -> list[Shape]:
    """The shapes of a named grid, or of a comma-separated list such as `64x4096x128,8x8192x16x2`.

    Raises ArgumentError for one that is neither.
    """
    if grid in GRIDS:
        return GRIDS[grid][operation]
    return [parse_shape(operation, text.strip()) for text in grid.split(",")]


def parse_shape(operation: str, text: str) -> Shape:
    """The shape that `label` spells. Raises ArgumentError for text that spells none."""
    allowed = {
        "decode": "BATCHxLENGTHxHEADS or BATCHxLENGTHxHEADSxQ_LEN, such as 64x4096x128 or 64x1024-4096x128",
        "prefill": "BATCHxLENGTHxHEADS, with xcausal or xfull behind it, such as 1x8192x16xfull",
    }[operation]
    found = re.fullmatch(r"(\d+)x(?:(\d+)-)?(\d+)x(\d+)(?:x(\d+|causal|full))?", text)
    batch, shortest, seqlen, heads, last = found.groups() if found else ("0",) * 5
    numbers = [int(number) for number in (batch, seqlen, heads)]
    is_decode = operation == "decode"
    fits = all(numbers) and (shortest is None or (is_decode and 0 < int(shortest) <= int(seqlen)))
    if not fits or (last is not None and last.isdigit() != is_decode) or last == "0":
        raise ArgumentError("--grid", repr(text), f"{', '.join(GRIDS)}, or {allowed}")
    common = dict(zip(("batch", "seqlen", "heads"), numbers, strict=True))
    if is_decode:
        return DecodeShape(**common, q_len=int(last or 1), shortest=None if shortest is None else int(shortest))
    return PrefillShape(**common, causal=last != "full")
