"""Contract cases of non-absorbed prefill."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import attrs
import torch

from mla_core.problem import TORCH_DTYPES
from mla_prefill import mla_prefill
from mla_testing.suites.lengths import HUGE_BATCH
from mla_testing.suites.pairwise import pairwise
from mla_testing.varlen import SOFTMAX_SCALE, PrefillInputs, varlen

LENGTHS = (300, 0, 65, 1, 129, 64, 63)
"""Queries of the sequences in turn: around the tile sizes of the kernels."""

KEY_RULES = ("equal", "longer", "shorter", "mixed")
"""How many keys a sequence of n queries has: n, n + 70, n / 2, or each of them in turn."""


@attrs.frozen(kw_only=True)
class PrefillCase:
    """One prefill problem with its inputs; `id` spells it out.

    Attributes:
        group: query heads of each key head.
        first: where in LENGTHS the sequences start.
        keys: a rule of KEY_RULES, or `short` (up to 3 tokens) or `very_long` for all sequences.
        layout: of q, k and v, in `mla_testing.strided`.
        scale: softmax_scale, as a multiple of DeepSeek-V3's.
    """

    operation: ClassVar[str] = "prefill"
    function: ClassVar[Any] = staticmethod(mla_prefill)
    hints: ClassVar[tuple[dict[str, int], ...]] = (
        {"max_seqlen_q": 0, "max_seqlen_kv": 0},
        {"max_seqlen_q": 2**40, "max_seqlen_kv": 2**40},
    )

    heads: int
    group: int = 1
    batch: int = 3
    first: int = 0
    keys: str = "equal"
    is_causal: bool = True
    dtype: str = "bf16"
    layout: str = "contiguous"
    scale: float = 1.0

    @property
    def is_huge(self) -> bool:
        """Whether only the most telling checks are worth their time."""
        return self.batch >= HUGE_BATCH or self.keys == "very_long"

    @property
    def id(self) -> str:
        """Readable and unique, and what `suites.find` takes."""
        mask = "causal" if self.is_causal else "full"
        scale = "" if self.scale == 1 else f"-scale{self.scale:g}"
        return (
            f"prefill-h{self.heads}x{self.group}-b{self.batch}-len{self.first}-{self.keys}-{mask}"
            f"-{self.dtype}-{self.layout}{scale}"
        )

    @property
    def seqlens(self) -> tuple[tuple[int, int], ...]:
        """(queries, keys) of each sequence."""
        if self.keys == "short":
            return tuple((sequence % 3, (sequence + 1) % 4) for sequence in range(self.batch))
        if self.keys == "very_long":
            return ((10001, 20011),) * self.batch
        pairs = []
        for sequence in range(self.batch):
            queries = LENGTHS[(self.first + sequence) % len(LENGTHS)]
            rule = KEY_RULES[sequence % 3] if self.keys == "mixed" else self.keys
            pairs.append((queries, {"equal": queries, "longer": queries + 70, "shorter": queries // 2}[rule]))
        return tuple(pairs)

    def build(self, device: torch.device | str) -> PrefillInputs:
        """The inputs on `device`."""
        return varlen(
            seqlens=self.seqlens,
            heads=self.heads * self.group,
            kv_heads=self.heads,
            dtype=TORCH_DTYPES[self.dtype],
            is_causal=self.is_causal,
            layout=self.layout,
            softmax_scale=self.scale * SOFTMAX_SCALE,
            device=device,
        )

    def replaced(self, inputs: PrefillInputs) -> PrefillInputs:
        """Other sequences that fit the same tensors: in reverse order, without gaps, the first one dropped."""
        moved, _ = inputs.reordered(range(self.batch - 1, 0, -1) if self.batch > 1 else [0])
        filler = self.batch + 1 - moved.cu_seqlens_q.shape[0]
        return attrs.evolve(
            moved,
            cu_seqlens_q=torch.cat([moved.cu_seqlens_q, moved.cu_seqlens_q[-1:].expand(filler)]),
            cu_seqlens_kv=torch.cat([moved.cu_seqlens_kv, moved.cu_seqlens_kv[-1:].expand(filler)]),
        )

    def shuffled(self, inputs: PrefillInputs) -> tuple[PrefillInputs, torch.Tensor]:
        """The sequences packed in another order, and the row of q that each row was."""
        order = torch.randperm(self.batch, generator=torch.Generator().manual_seed(self.batch)).tolist()
        return inputs.reordered(order)


@functools.cache
def full() -> tuple[PrefillCase, ...]:
    """All pairs of heads, groups, batch, lengths, keys, layouts and options."""
    rows = pairwise(
        {
            "heads": (1, 2, 5, 16),
            "batch": (3, 1, 2, 5, 17),
            "first": tuple(range(len(LENGTHS))),
            "keys": KEY_RULES,
            "layout": ("contiguous", "padded_rows", "outer_swapped", "interleaved", "misaligned"),
            "group": (1, 2, 3),
            "is_causal": (True, False),
            "dtype": ("bf16", "fp16"),
            "scale": (1.0, 0.0, -1.0, 4.0),
        }
    )
    return (*smoke(), *(PrefillCase(**row) for row in rows))


@functools.cache
def smoke() -> tuple[PrefillCase, ...]:
    """A few small cases in which each option occurs, for slow targets."""
    return (
        PrefillCase(heads=2, first=1),
        PrefillCase(heads=1, group=2, first=2, batch=2, keys="longer", layout="padded_rows"),
        PrefillCase(heads=2, first=3, batch=2, keys="shorter", layout="outer_swapped", dtype="fp16", scale=-1.0),
        PrefillCase(heads=5, first=5, batch=5, keys="mixed", is_causal=False, layout="interleaved"),
        PrefillCase(heads=1, first=6, batch=3, keys="mixed", layout="misaligned"),
    )


@functools.cache
def large() -> tuple[PrefillCase, ...]:
    """q, k, v and the result beyond 2 and 4 GiB; on a CPU what lies between the rows in use is never touched."""
    return (
        PrefillCase(heads=3, first=4, batch=1, layout="far_swapped"),
        PrefillCase(heads=3, first=1, batch=4, keys="longer", is_causal=False, layout="far_swapped"),
        PrefillCase(heads=2, first=5, batch=1, layout="spread"),
    )


@functools.cache
def huge() -> tuple[PrefillCase, ...]:
    """More sequences than a dimension of a grid may count, and a long one: for a GPU."""
    return (
        PrefillCase(heads=1, batch=HUGE_BATCH, keys="short"),
        PrefillCase(heads=4, group=4, batch=1, keys="very_long"),
        PrefillCase(heads=2, batch=1, keys="very_long", is_causal=False),
    )
