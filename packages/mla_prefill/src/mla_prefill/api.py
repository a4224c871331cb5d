"""The public prefill function: validate, dispatch, launch.

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
from mla_prefill.ops import traced
from mla_prefill.plan import PrefillPlan
from mla_prefill.problem import V_HEAD_DIM, validate

_programs = ProgramCache()

MAKER = "mla_prefill_plan"


def mla_prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    *,
    max_seqlen_q: int,
    max_seqlen_kv: int,
    softmax_scale: float,
    is_causal: bool = True,
    logit_cap: float = 0.0,
    return_lse: bool = False,
    out: torch.Tensor | None = None,
    lse_out: torch.Tensor | None = None,
    solution: str | None = None,
    config: Any = None,
    plan: PrefillPlan | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Non-absorbed MLA attention over sequences of varying length, packed one behind the other.

    For each sequence and head: `out = softmax(softmax_scale * q @ k^T) @ v`. With `is_causal`, row i of a sequence with
    `n_q` queries and `n_kv` keys sees keys `<= i + n_kv - n_q` (bottom-right alignment).

    Args:
        q: `[total_q, heads, 192]` bf16 or fp16: 128 columns without position, then 64 RoPE columns. Strides are free
            except a contiguous last dimension, here and in k, v and out; any size, beyond 2 and 4 GiB too.
        k: `[total_kv, kv_heads, 192]`, dtype of q; heads is a multiple of kv_heads.
        v: `[total_kv, kv_heads, 128]`, dtype of q.
        cu_seqlens_q, cu_seqlens_kv: `[batch + 1]` int32, first token of each sequence and the end of the last one;
            not decreasing, within `[0, total]`. Rows of q that belong to no sequence are not written.
        max_seqlen_q, max_seqlen_kv: upper bounds of the lengths for scheduling. Results do not depend on them.
        softmax_scale: factor of the logits before the softmax, natural base.
        is_causal: mask the keys behind a row's own position; False: all rows see all keys of their sequence.
        logit_cap: 0.0; others are refused.
        return_lse: also return the log-sum-exp, natural base.
        out: `[total_q, heads, 128]` dtype of q to write into.
        lse_out: `[total_q, heads]` fp32, contiguous; only with `return_lse`.
        solution: name of a registered solution to use; None lets dispatch choose.
        config: a Config of that solution to use instead of its own choice.
        plan: what `mla_prefill_plan` made for the same cu_seqlens and shapes, so that layers share it; None makes one.

    Returns:
        out, or (out, lse) with lse `[total_q, heads]` fp32. A row with no visible key has out 0 and lse -inf.

    Traced by torch.compile or torch.export it is one operator (`mla_prefill.ops`), without `config`.

    Never waits for the device, so that it can be captured in a graph and replayed with other lengths.

    Raises:
        ArgumentError: an argument's type, shape, dtype, device or stride; names it, its value and what is allowed.
            Also a plan that was made for other shapes or another solution.
        ConfigError: `config` is of another solution, or contradicts the problem.
        UnsupportedError: `solution` cannot serve this problem, and why.
    """
    if torch.compiler.is_compiling():
        if plan is not None:
            raise UnsupportedError("plan is given while tracing; allowed: None (or call it untraced)")
        return traced(
            q,
            k,
            v,
            cu_seqlens_q,
            cu_seqlens_kv,
            max_seqlen_q=max_seqlen_q,
            max_seqlen_kv=max_seqlen_kv,
            softmax_scale=softmax_scale,
            is_causal=is_causal,
            logit_cap=logit_cap,
            return_lse=return_lse,
            out=out,
            lse_out=lse_out,
            solution=solution,
            config=config,
        )
    check_plan_type(plan, PrefillPlan, MAKER)
    program = _program_of(
        (q, k, v, cu_seqlens_q, cu_seqlens_kv),
        max_seqlen_q=max_seqlen_q,
        max_seqlen_kv=max_seqlen_kv,
        softmax_scale=softmax_scale,
        is_causal=is_causal,
        logit_cap=logit_cap,
        return_lse=return_lse,
        out=out,
        lse_out=lse_out,
        solution=solution,
        config=config,
    )
    if out is not None or lse_out is not None:
        inputs = {"q": q, "k": k, "v": v, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_kv}
        check_outputs(inputs, out, lse_out)
    result = q.new_empty((*q.shape[:2], V_HEAD_DIM)) if out is None else out
    lse: Any = q.new_empty(q.shape[:2], dtype=torch.float32) if return_lse and lse_out is None else lse_out
    if program is not None:
        planned = () if plan is None or plan.words is None else (plan,)
        for given in planned:
            check_plan(program, given, q.device, MAKER)
        with torch.cuda.device_of(q):  # Triton launches on the current device; no-op for CPU tensors
            program.launch(q, k, v, cu_seqlens_q, cu_seqlens_kv, result, lse, softmax_scale, *planned)
    return (result, lse) if return_lse else result


def mla_prefill_plan(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    *,
    max_seqlen_q: int,
    max_seqlen_kv: int,
    is_causal: bool = True,
    return_lse: bool = False,
    solution: str | None = None,
    config: Any = None,
    plan: PrefillPlan | None = None,
) -> PrefillPlan:
    """What every layer's `mla_prefill` of one prefill step needs to know of the lengths, made once.

    The arguments are those of the calls that will use the plan; of the tensors only cu_seqlens_q and cu_seqlens_kv are
    read, by a kernel on the current stream. The call never waits for the device. A plan serves one stream at a time.

    Args:
        plan: one to fill again, in place, for the same shapes and other lengths: a captured graph that holds it (whether
            the filling is captured too or not) replays correctly. None allocates one.

    Returns:
        The plan; one without contents for a solution that plans nothing.

    Raises:
        ArgumentError: as `mla_prefill`; also a `plan` of other shapes or another solution.
        ConfigError, UnsupportedError: as `mla_prefill`.
    """
    check_plan_type(plan, PrefillPlan, MAKER)
    program: Any = _program_of(
        (q, k, v, cu_seqlens_q, cu_seqlens_kv),
        max_seqlen_q=max_seqlen_q,
        max_seqlen_kv=max_seqlen_kv,
        softmax_scale=1.0,
        is_causal=is_causal,
        logit_cap=0.0,
        return_lse=return_lse,
        out=None,
        lse_out=None,
        solution=solution,
        config=config,
    )
    if program is None or not hasattr(program, "fill_plan"):
        return PrefillPlan(key=())
    if plan is None:
        plan = program.make_plan(q.device)
    check_plan(program, plan, q.device, MAKER)
    with torch.cuda.device_of(q):
        program.fill_plan(plan, cu_seqlens_q, cu_seqlens_kv)
    return plan


def _program_of(
    tensors: tuple[torch.Tensor, ...],
    *,
    max_seqlen_q: Any,
    max_seqlen_kv: Any,
    out: Any,
    lse_out: Any,
    solution: Any,
    config: Any,
    **options: Any,
) -> Program | None:
    """The Program of a call, validated and chosen on its signature's first use; None where there is no row."""
    options["max_seqlen_q"] = scheduling_bound(max_seqlen_q)
    options["max_seqlen_kv"] = scheduling_bound(max_seqlen_kv)
    key = signature_key((*tensors, out, lse_out), (*options.values(), solution, config))
    program = _programs.get(key)
    if program is MISSING:
        problem = validate(*tensors, **options, out=out, lse_out=lse_out)
        built = registry.program(problem, Target.current(tensors[0].device), solution=solution, config=config)
        program = _programs.put(key, None if problem.is_empty else built)
    return program
