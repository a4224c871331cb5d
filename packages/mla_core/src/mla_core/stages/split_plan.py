"""Splitting a ragged batch over workgroups, on the device: which keys of which request a workgroup takes.

Lengths are known to the device only, and a captured graph replays with others, so every workgroup derives the plan
from `cache_seqlens` itself; nothing is planned by the host and no plan is kept in memory.

A request of n steps (a step is the tokens of one turn of the kernel's loop) becomes max(1, ceil(n / chunk)) *items*
of nearly equal size, numbered request by request, and workgroup w takes the items w, w + slots, w + 2 slots, ...

For any number of rounds with `rounds * slots > batch`, the chunk

    chunk = ceil(total steps / (rounds * slots - batch))

gives at most `rounds * slots` items, because ceil(n / chunk) <= n / chunk + 1 and so the items are at most
total / chunk + batch. A round costs one chunk and what an item costs whatever its size; the plan tries a few numbers
of rounds and takes the cheapest. One long request alone is so spread over all workgroups, and many equal ones leave
few of them idle. The chunk depends on the lengths as a set only: a request is cut at the same keys wherever in the
batch it stands.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_core.gluon_compat import aggregate
from mla_core.stages.split_bounds import ROUND_CHOICES

CHOICES = gl.constexpr(ROUND_CHOICES)

PLAN_LANES = gl.constexpr(256)
"""Requests that one pass over the lengths takes; a larger batch takes several."""

ITEM_COST = gl.constexpr(3)
"""What an item costs beside its keys, in steps: loading q, the first latency, storing and merging a partial result."""


@aggregate
class SplitPlan:
    """The plan, the same in every workgroup. chunk: most steps of an item. rounds: items of a workgroup at most."""

    chunk: gl.tensor
    rounds: gl.tensor


@gluon.jit
def divide_up(dividend, divisor):
    """ceil(dividend / divisor) of int32 dividend >= 0 and divisor >= 1, unsigned, which takes fewer instructions."""
    return ((dividend + (divisor - 1)).to(gl.uint32) // gl.to_tensor(divisor).to(gl.uint32)).to(gl.int32)


@gluon.jit
def load_seqlens(cache_seqlens, requests, batch, max_tokens):
    """Lengths of `requests`, clamped to [0, max_tokens]; 0 behind the batch."""
    seqlens = gl.load(cache_seqlens + requests, mask=requests < batch, other=0)
    return gl.minimum(gl.maximum(seqlens, 0), max_tokens)


@gluon.jit
def compute_split_plan(cache_seqlens, batch, max_tokens, slots, step_tokens: gl.constexpr, layout: gl.constexpr):
    """The SplitPlan of a batch on `slots` workgroups.

    cache_seqlens int32 `[batch]`, the rest int32 scalars; `layout`: of a one-dimensional tensor of PLAN_LANES.
    """
    total = 0
    longest = 0
    for first in range(0, batch, PLAN_LANES):
        requests = first + gl.arange(0, PLAN_LANES, layout=layout)
        steps = divide_up(load_seqlens(cache_seqlens, requests, batch, max_tokens), step_tokens)
        total += gl.sum(steps, 0)
        longest = gl.maximum(longest, gl.max(steps, 0))
    fewest = divide_up(batch, slots)
    rounds = fewest
    chunk = longest
    cost = 2147483647
    for choice in gl.static_range(CHOICES):
        tried = fewest + choice * gl.maximum(1, fewest // 2)
        spare = tried * slots - batch
        tried_chunk = gl.where(spare > 0, divide_up(total, gl.maximum(spare, 1)), longest)
        tried_chunk = gl.minimum(tried_chunk, longest)
        tried_cost = tried * (tried_chunk + ITEM_COST)
        better = tried_cost < cost
        cost = gl.where(better, tried_cost, cost)
        chunk = gl.where(better, tried_chunk, chunk)
        rounds = gl.where(better, tried, rounds)
    return SplitPlan(gl.maximum(chunk, 1), rounds)


@gluon.jit
def compute_splits(seqlens, chunk, step_tokens: gl.constexpr):
    """Items of requests with `seqlens` tokens: at least one each."""
    return gl.maximum(divide_up(divide_up(seqlens, step_tokens), chunk), 1)


@gluon.jit
def _add(a, b):
    return a + b


@gluon.jit
def find_item(item, chunk, cache_seqlens, batch, max_tokens, step_tokens: gl.constexpr, layout: gl.constexpr):
    """(request, number of its first item) of an item; request is `batch` where there are fewer items."""
    request = 0
    first_item = 0
    carried = 0
    for first in range(0, batch, PLAN_LANES):
        requests = first + gl.arange(0, PLAN_LANES, layout=layout)
        seqlens = load_seqlens(cache_seqlens, requests, batch, max_tokens)
        splits = gl.where(requests < batch, compute_splits(seqlens, chunk, step_tokens), 0)
        ends = carried + gl.associative_scan(splits, 0, _add)
        before = (ends <= item) & (requests < batch)
        request += gl.sum(before.to(gl.int32), 0)
        first_item = gl.maximum(first_item, gl.max(gl.where(before, ends, 0), 0))
        carried = gl.max(ends, 0)
    return request, first_item


@gluon.jit
def compute_item_steps(split, splits, steps):
    """[begin, end) of the steps of a request's item number `split` of `splits`: nearly equal shares of `steps`."""
    share = (steps.to(gl.uint32) // splits.to(gl.uint32)).to(gl.int32)
    longer = steps - share * splits
    begin = split * share + gl.minimum(split, longer)
    return begin, begin + share + gl.where(split < longer, 1, 0)
