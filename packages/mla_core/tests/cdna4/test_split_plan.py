"""The plan that workgroups make of a ragged batch: every step once, within the bounds, in even shares."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from mla_core import triton_support

MISSING = triton_support.missing((3, 9))
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

from triton.experimental import gluon  # noqa: E402
from triton.experimental.gluon import language as gl  # noqa: E402

from mla_core.stages.split_bounds import max_items  # noqa: E402
from mla_core.stages.split_plan import (  # noqa: E402
    PLAN_LANES,
    compute_item_steps,
    compute_split_plan,
    compute_splits,
    find_item,
)
from mla_testing import emulate  # noqa: E402

STEP = 64


@gluon.jit(do_not_specialize=["batch", "max_tokens", "slots"])
def record_plan(cache_seqlens, items, plan_out, batch, max_tokens, slots, step_tokens: gl.constexpr):
    """Writes (request, begin, end) of every item, and (chunk, rounds): one workgroup does what all would."""
    layout: gl.constexpr = gl.BlockedLayout([PLAN_LANES // 64], [64], [1], [0])
    plan = compute_split_plan(cache_seqlens, batch, max_tokens, slots, step_tokens, layout)
    gl.store(plan_out, plan.chunk)
    gl.store(plan_out + 1, plan.rounds)
    for item in range(0, plan.rounds * slots):
        request, first = find_item(item, plan.chunk, cache_seqlens, batch, max_tokens, step_tokens, layout)
        begin = 0
        end = 0
        if request < batch:
            seqlen = gl.minimum(gl.maximum(gl.load(cache_seqlens + request), 0), max_tokens)
            steps = (seqlen + step_tokens - 1) // step_tokens
            begin, end = compute_item_steps(item - first, compute_splits(seqlen, plan.chunk, step_tokens), steps)
        gl.store(items + 3 * item, request)
        gl.store(items + 3 * item + 1, begin)
        gl.store(items + 3 * item + 2, end)


def plan_of(seqlens: list[int], slots: int, max_tokens: int) -> tuple[list[tuple[int, int, int]], int, int]:
    """(items that exist, chunk, rounds)."""
    bound = max_items(len(seqlens), slots, -(-max_tokens // STEP))
    room = 8 * max(slots, len(seqlens)) + 8 * slots
    items = torch.full((room, 3), -1, dtype=torch.int32)
    plan = torch.empty(2, dtype=torch.int32)
    with emulate("gfx950"):
        record_plan[(1,)](
            torch.tensor(seqlens, dtype=torch.int32), items, plan, len(seqlens), max_tokens, slots, STEP, num_warps=1
        )
    chunk, rounds = plan.tolist()
    found = [tuple(row) for row in items[: rounds * slots].tolist() if row[0] < len(seqlens)]
    assert len(found) <= min(bound, rounds * slots)
    return found, chunk, rounds


def check(seqlens: list[int], slots: int, max_tokens: int = 10**6) -> tuple[int, int]:
    """Every step of every request in exactly one item; shares of a request differ by one at most."""
    items, chunk, rounds = plan_of(seqlens, slots, max_tokens)
    for request, seqlen in enumerate(seqlens):
        steps = -(-min(max(seqlen, 0), max_tokens) // STEP)
        parts = [(begin, end) for owner, begin, end in items if owner == request]
        assert parts[0][0] == 0 and parts[-1][1] == steps
        assert all(before[1] == after[0] for before, after in itertools.pairwise(parts))
        sizes = [end - begin for begin, end in parts]
        assert max(sizes) - min(sizes) <= 1 and max(sizes) <= chunk
    return chunk, rounds


@pytest.mark.parametrize("slots", [8, 40])
def test_random_batches(slots: int) -> None:
    draw = random.Random(slots)
    for batch in (1, 3, 8, 41):
        check([draw.choice((0, 1, 64, 65, draw.randint(0, 9000))) for _ in range(batch)], slots)


def test_batches_of_more_than_one_pass_over_the_lengths() -> None:
    check([70 * (index % 3) for index in range(300)], 64)


def test_one_long_request_uses_every_workgroup() -> None:
    items, chunk, rounds = plan_of([64 * 640], 40, 10**6)
    assert rounds == 1 and 38 <= len(items) <= 40 and chunk <= 17  # 16 steps each would be even


def test_equal_requests_leave_few_workgroups_idle() -> None:
    """25 requests of 40 steps on 40 workgroups: 1000 steps, 25 each at best, and 40 with one item a request."""
    chunk, rounds = check([64 * 40] * 25, 40)
    assert chunk * rounds < 40


def test_lengths_are_clamped() -> None:
    check([-5, 2**31 - 1, -(2**31), 100], 8, max_tokens=640)


def test_the_order_of_requests_does_not_move_the_cuts() -> None:
    lengths = [5000, 3, 0, 900, 64]
    cuts = {
        tuple(
            sorted(
                (order[owner], begin, end) for owner, begin, end in plan_of([lengths[at] for at in order], 8, 10**6)[0]
            )
        )
        for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1])
    }
    assert len(cuts) == 1


def test_a_round_is_bound_by_the_workgroups() -> None:
    assert max_items(1, 256, 10**6) == 4 * 256
    assert max_items(1, 256, 3) == 3
    assert max_items(512, 256, 10**6) == (2 + 3) * 256
