"""The public decode function: validate, dispatch, launch.

Validation and dispatch run once per distinct set of shapes, strides and options; later calls with the same ones find
their Program in a table and only launch.
"""

from __future__ import annotations

from typing import Any

import torch

from mla_core.dispatch import Program, registry
from mla_core.errors import UnsupportedError
from mla_core.plan import check_plan, check_plan_type
from mla_core.program_cache import MISSING, ProgramCache, scheduling_bound, signature_key
from mla_core.target import Target
from mla_core.validation import check_outputs
from mla_decode.ops import traced
from mla_decode.plan import DecodePlan
from mla_decode.problem import KV_LORA_RANK, QK_ROPE_HEAD_DIM, check_pages, pool_view, validate

_programs = ProgramCache()

MAKER = "mla_decode_plan"


def mla_decode_with_kvcache(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    page_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    *,
    softmax_scale: float,
    max_seqlen_k: int | None = None,
    kv_lora_rank: int = KV_LORA_RANK,
    qk_rope_head_dim: int = QK_ROPE_HEAD_DIM,
    causal: bool = True,
    logit_cap: float = 0.0,
    return_lse: bool = False,
    out: torch.Tensor | None = None,
    lse_out: torch.Tensor | None = None,
    solution: str | None = None,
    config: Any = None,
    plan: DecodePlan | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Absorbed MLA attention of q against a paged compressed KV cache.

    For request b, query token i and head h, with `n` visible keys:
    `out = softmax(softmax_scale * q . kv[:n]^T) @ kv[:n, :kv_lora_rank]`, where `n` is `seqlen - q_len + 1 + i` for
    causal and `seqlen` otherwise (DeepSeek-V2, arXiv:2405.04434, with W_UK absorbed into q and W_UV applied after).

    Args:
        q: `[batch, q_len, heads, 576]` bf16 or fp16: 512 absorbed latent columns, then 64 RoPE columns. 1 to 128
            heads, any q_len >= 1. Strides are free except a contiguous last dimension.
        kv_cache: `[num_pages, page_size, 576]` or `[num_pages, page_size, 1, 576]`, dtype of q, any page_size >= 1,
            any size (beyond 2 and 4 GiB too), strides free except a contiguous last dimension.
        page_table: `[batch, max_pages]` int32. Entries that no visible key needs may hold anything.
        cache_seqlens: `[batch]` int32, keys of each request including the q_len new ones. Negative counts as 0; more
            than `max_pages * page_size` counts as that.
        softmax_scale: factor of the logits before the softmax, natural base.
        max_seqlen_k: upper bound of cache_seqlens for scheduling (None: what page_table can hold). Results do not
            depend on it.
        kv_lora_rank, qk_rope_head_dim: 512 and 64; others are refused.
        causal: row i of q_len sees keys `< seqlen - q_len + 1 + i`; False: all rows see all keys.
        logit_cap: 0.0; others are refused.
        return_lse: also return the log-sum-exp, natural base.
        out: `[batch, q_len, heads, 512]` dtype of q to write into, strides free except a contiguous last dimension.
        lse_out: `[batch, q_len, heads]` fp32, contiguous; only with `return_lse`.
        solution: name of a registered solution to use; None lets dispatch choose.
        config: a Config of that solution to use instead of its own choice.
        plan: what `mla_decode_plan` made for the same lengths and shapes, so that layers share it; None makes one.

    Returns:
        out, or (out, lse) with lse `[batch, q_len, heads]` fp32. A row with no visible key has out 0 and lse -inf.

    Traced by torch.compile or torch.export it is one operator (`mla_decode.ops`), without `config`.

    Never waits for the device, so that it can be captured in a graph and replayed with other lengths and pages.

    Raises:
        ArgumentError: an argument's type, shape, dtype, device or stride; names it, its value and what is allowed.
            Also a plan that was made for other shapes or another solution, and, for tensors on the CPU, a page outside the
            pool that a visible key needs (on a GPU its result is undefined).
        ConfigError: `config` is of another solution, or contradicts the problem.
        UnsupportedError: `solution` cannot serve this problem, and why.
    """
    if torch.compiler.is_compiling():
        if plan is not None:
            raise UnsupportedError("plan is given while tracing; allowed: None (or call it untraced)")
        return traced(
            q,
            kv_cache,
            page_table,
            cache_seqlens,
            softmax_scale=softmax_scale,
            max_seqlen_k=max_seqlen_k,
            kv_lora_rank=kv_lora_rank,
            qk_rope_head_dim=qk_rope_head_dim,
            causal=causal,
            logit_cap=logit_cap,
            return_lse=return_lse,
            out=out,
            lse_out=lse_out,
            solution=solution,
            config=config,
        )
    check_plan_type(plan, DecodePlan, MAKER)
    kv_cache = pool_view(kv_cache)
    program = _program_of(
        (q, kv_cache, page_table, cache_seqlens),
        softmax_scale=softmax_scale,
        max_seqlen_k=max_seqlen_k,
        kv_lora_rank=kv_lora_rank,
        qk_rope_head_dim=qk_rope_head_dim,
        causal=causal,
        logit_cap=logit_cap,
        return_lse=return_lse,
        out=out,
        lse_out=lse_out,
        solution=solution,
        config=config,
    )
    if out is not None or lse_out is not None:
        inputs = {"q": q, "kv_cache": kv_cache, "page_table": page_table, "cache_seqlens": cache_seqlens}
        check_outputs(inputs, out, lse_out)
    if q.device.type == "cpu":  # what a device reads on its own, the host can read here
        check_pages(page_table, cache_seqlens, *kv_cache.shape[:2])
    result = q.new_empty((*q.shape[:-1], kv_lora_rank)) if out is None else out
    lse: Any = q.new_empty(q.shape[:-1], dtype=torch.float32) if return_lse and lse_out is None else lse_out
    if program is None:
        result.zero_()
        if lse is not None:
            lse.fill_(float("-inf"))
    else:
        planned = () if plan is None or plan.words is None else (plan,)
        for given in planned:
            check_plan(program, given, q.device, MAKER)
        with torch.cuda.device_of(q):  # Triton launches on the current device; no-op for CPU tensors
            program.launch(q, kv_cache, page_table, cache_seqlens, result, lse, softmax_scale, *planned)
    return (result, lse) if return_lse else result


def mla_decode_plan(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    page_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    *,
    max_seqlen_k: int | None = None,
    causal: bool = True,
    return_lse: bool = False,
    solution: str | None = None,
    config: Any = None,
    plan: DecodePlan | None = None,
) -> DecodePlan:
    """What every layer's `mla_decode_with_kvcache` of one decode step needs to know of the lengths, made once.

    The arguments are those of the calls that will use the plan; of the tensors only `cache_seqlens` is read, by a kernel
    on the current stream. The call never waits for the device. A plan serves one stream at a time.

    Args:
        plan: one to fill again, in place, for the same shapes and other lengths: a captured graph that holds it (whether
            the filling is captured too or not) replays correctly. None allocates one.

    Returns:
        The plan; one without contents for a solution that plans nothing.

    Raises:
        ArgumentError: as `mla_decode_with_kvcache`; also a `plan` of other shapes or another solution.
        ConfigError, UnsupportedError: as `mla_decode_with_kvcache`.
    """
    check_plan_type(plan, DecodePlan, MAKER)
    program: Any = _program_of(
        (q, pool_view(kv_cache), page_table, cache_seqlens),
        softmax_scale=1.0,
        max_seqlen_k=max_seqlen_k,
        kv_lora_rank=KV_LORA_RANK,
        qk_rope_head_dim=QK_ROPE_HEAD_DIM,
        causal=causal,
        logit_cap=0.0,
        return_lse=return_lse,
        out=None,
        lse_out=None,
        solution=solution,
        config=config,
    )
    if program is None or not hasattr(program, "fill_plan"):
        return DecodePlan(key=())
    if plan is None:
        plan = program.make_plan(q.device)
    check_plan(program, plan, q.device, MAKER)
    with torch.cuda.device_of(q):
        program.fill_plan(plan, cache_seqlens)
    return plan


def _program_of(
    tensors: tuple[torch.Tensor, ...],
    *,
    max_seqlen_k: Any,
    out: Any,
    lse_out: Any,
    solution: Any,
    config: Any,
    **options: Any,
) -> Program | None:
    """The Program of a call, validated and chosen on its signature's first use; None where no row has a visible key."""
    options["max_seqlen_k"] = scheduling_bound(max_seqlen_k)
    key = signature_key((*tensors, out, lse_out), (*options.values(), solution, config))
    program = _programs.get(key)
    if program is MISSING:
        problem = validate(*tensors, **options, out=out, lse_out=lse_out)
        built = registry.program(problem, Target.current(tensors[0].device), solution=solution, config=config)
        program = _programs.put(key, None if problem.is_empty else built)
    return program
