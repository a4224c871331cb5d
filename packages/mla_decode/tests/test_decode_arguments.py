"""Every argument of mla_decode_with_kvcache that is never allowed: refused by name, value and what is allowed."""

import pytest
import torch

from mla_core import ArgumentError, ConfigError, KernelConfig, UnsupportedError, kernel_config
from mla_core.torch_attention import TorchConfig
from mla_decode import mla_decode_with_kvcache
from mla_testing.paged_cache import paged_cache

BF16, FP16 = torch.bfloat16, torch.float16


@kernel_config
class StrangerConfig(KernelConfig):
    block_n: int = 64


def zeros(*shape, dtype=BF16, **options):
    return torch.zeros(shape, dtype=dtype, **options)


def ints(*shape, **options):
    return torch.zeros(shape, dtype=torch.int32, **options)


def arguments():
    """A call that is allowed: batch 2, q_len 1, 4 heads, pages of 8, 3 of them."""
    inputs = paged_cache(seqlens=[5, 9], heads=4, page_size=8, spare_pages=0, max_pages=2)
    return {
        "q": inputs.q,
        "kv_cache": inputs.kv_cache,
        "page_table": inputs.page_table,
        "cache_seqlens": inputs.cache_seqlens,
        "softmax_scale": 0.1,
    }


def call(**changes):
    return mla_decode_with_kvcache(**{**arguments(), **changes})


# (changed arguments, argument that the error names, part of the value, part of what is allowed)
REFUSED = {
    "q is no tensor": ({"q": [1.0]}, "q", "a list", "a torch.Tensor"),
    "q is None": ({"q": None}, "q", "a NoneType", "a torch.Tensor"),
    "q has 3 dimensions": ({"q": zeros(2, 4, 576)}, "q.shape", "(2, 4, 576)", "4 dimensions"),
    "q is fp32": ({"q": zeros(2, 1, 4, 576, dtype=torch.float32)}, "q.dtype", "float32", "bfloat16 or torch.float16"),
    "q has other columns": ({"q": zeros(2, 1, 4, 512)}, "q.shape", "(2, 1, 4, 512)", "576"),
    "q_len 0": ({"q": zeros(2, 0, 4, 576)}, "q.shape", "(2, 0, 4, 576)", "q_len of at least 1"),
    "no head": ({"q": zeros(2, 1, 0, 576)}, "q.shape", "(2, 1, 0, 576)", "1 to 128 heads"),
    "129 heads": ({"q": zeros(2, 1, 129, 576)}, "q.shape", "(2, 1, 129, 576)", "1 to 128 heads"),
    "q strided in its columns": (
        {"q": zeros(2, 1, 4, 1152)[..., ::2]}, "q.stride(-1)", "2", "1 (a contiguous last dimension)"
    ),
    "q is sparse": ({"q": zeros(2, 1, 4, 576).to_sparse()}, "q.layout", "sparse_coo", "strided"),
    "q wants a gradient": ({"q": zeros(2, 1, 4, 576, requires_grad=True)}, "q.requires_grad", "True", "no_grad"),
    "pool is no tensor": ({"kv_cache": None}, "kv_cache", "a NoneType", "a torch.Tensor"),
    "pool has 2 dimensions": ({"kv_cache": zeros(24, 576)}, "kv_cache.shape", "(24, 576)", "3 dimensions"),
    "pool has 5 dimensions": ({"kv_cache": zeros(3, 8, 1, 1, 576)}, "kv_cache.shape", "(3, 8, 1, 1, 576)", "3 dim"),
    "pool has 2 heads": ({"kv_cache": zeros(3, 8, 2, 576)}, "kv_cache.shape", "(3, 8, 2, 576)", "1, head_dim"),
    "pool of another dtype": ({"kv_cache": zeros(3, 8, 576, dtype=FP16)}, "kv_cache.dtype", "float16", "bfloat16"),
    "pool has other columns": ({"kv_cache": zeros(3, 8, 640)}, "kv_cache.shape", "(3, 8, 640)", "576"),
    "page_size 0": ({"kv_cache": zeros(3, 0, 576)}, "kv_cache.shape", "(3, 0, 576)", "page_size >= 1"),
    "pool strided in its columns": ({"kv_cache": zeros(3, 576, 8).mT}, "kv_cache.stride(-1)", "8", "1 ("),
    "pool elsewhere": ({"kv_cache": zeros(3, 8, 576, device="meta")}, "kv_cache.device", "meta", "cpu"),
    "page_table is int64": ({"page_table": ints(2, 2).long()}, "page_table.dtype", "int64", "int32"),
    "page_table has 1 dimension": ({"page_table": ints(2)}, "page_table.shape", "(2,)", "2 dimensions"),
    "page_table of another batch": ({"page_table": ints(3, 2)}, "page_table.shape", "(3, 2)", "batch = 2"),
    "page_table strided": ({"page_table": ints(2, 4)[:, ::2]}, "page_table.stride(-1)", "2", "1 ("),
    "page_table elsewhere": ({"page_table": ints(2, 2, device="meta")}, "page_table.device", "meta", "cpu"),
    "page_table is a list": ({"page_table": [[0]]}, "page_table", "a list", "a torch.Tensor"),
    "lengths are int64": ({"cache_seqlens": ints(2).long()}, "cache_seqlens.dtype", "int64", "int32"),
    "lengths of another batch": ({"cache_seqlens": ints(3)}, "cache_seqlens.shape", "(3,)", "(2,) = [batch]"),
    "lengths have 2 dimensions": ({"cache_seqlens": ints(2, 1)}, "cache_seqlens.shape", "(2, 1)", "1 dimensions"),
    "lengths strided": ({"cache_seqlens": ints(4)[::2]}, "cache_seqlens.stride(-1)", "2", "1 ("),
    "lengths are a list": ({"cache_seqlens": [5, 9]}, "cache_seqlens", "a list", "a torch.Tensor"),
    "scale is NaN": ({"softmax_scale": float("nan")}, "softmax_scale", "nan", "a finite number"),
    "scale is infinite": ({"softmax_scale": float("inf")}, "softmax_scale", "inf", "a finite number"),
    "scale is a string": ({"softmax_scale": "0.1"}, "softmax_scale", "'0.1'", "a finite number"),
    "scale is a tensor": ({"softmax_scale": torch.ones(())}, "softmax_scale", "tensor", "a finite number"),
    "scale is None": ({"softmax_scale": None}, "softmax_scale", "None", "a finite number"),
    "scale is a bool": ({"softmax_scale": True}, "softmax_scale", "True", "a finite number"),
    "bound is negative": ({"max_seqlen_k": -1}, "max_seqlen_k", "-1", "at least 0"),
    "bound is a float": ({"max_seqlen_k": 9.0}, "max_seqlen_k", "9.0", "None or an int"),
    "bound is a tensor": ({"max_seqlen_k": torch.tensor(9)}, "max_seqlen_k", "tensor(9)", "None or an int"),
    "bound is a bool": ({"max_seqlen_k": True}, "max_seqlen_k", "True", "None or an int"),
    "other latent": ({"kv_lora_rank": 256}, "kv_lora_rank", "256", "512"),
    "other rope": ({"qk_rope_head_dim": 128}, "qk_rope_head_dim", "128", "64"),
    "causal is an int": ({"causal": 1}, "causal", "1", "True or False"),
    "causal is None": ({"causal": None}, "causal", "None", "True or False"),
    "return_lse is an int": ({"return_lse": 1}, "return_lse", "1", "True or False"),
    "capped logits": ({"logit_cap": 30.0}, "logit_cap", "30.0", "0.0 (capping is not implemented)"),
    "cap is None": ({"logit_cap": None}, "logit_cap", "None", "0.0 (capping is not implemented)"),
    "out of another shape": ({"out": zeros(2, 1, 4, 576)}, "out.shape", "(2, 1, 4, 576)", "(2, 1, 4, 512)"),
    "out of another dtype": ({"out": zeros(2, 1, 4, 512, dtype=FP16)}, "out.dtype", "float16", "bfloat16"),
    "out strided in its columns": ({"out": zeros(2, 1, 4, 1024)[..., ::2]}, "out.stride(-1)", "2", "1 ("),
    "out expanded": ({"out": zeros(1, 1, 4, 512).expand(2, 1, 4, 512)}, "out.stride()", "(0, ", "apart"),
    "out elsewhere": ({"out": zeros(2, 1, 4, 512, device="meta")}, "out.device", "meta", "cpu"),
    "out is a list": ({"out": []}, "out", "a list", "a torch.Tensor"),
    "lse_out without lse": ({"lse_out": zeros(2, 1, 4, dtype=torch.float32)}, "lse_out", "a tensor", "return_lse"),
    "lse_out of another shape": (
        {"lse_out": zeros(2, 4, 1, dtype=torch.float32), "return_lse": True}, "lse_out.shape", "(2, 4, 1)", "(2, 1, 4)"
    ),
    "lse_out is bf16": ({"lse_out": zeros(2, 1, 4), "return_lse": True}, "lse_out.dtype", "bfloat16", "float32"),
    "lse_out strided": (
        {"lse_out": zeros(2, 1, 8, dtype=torch.float32)[..., ::2], "return_lse": True},
        "lse_out.stride()", "(8, 8, 2)", "contiguous",
    ),
    "plan is no plan": ({"plan": {"words": 3}}, "plan", "a dict", "None or what mla_decode_plan returned"),
    "unknown solution": ({"solution": "swift"}, "solution", "'swift'", "None or one of"),
    "solution is no name": ({"solution": 3}, "solution", "3", "None or one of"),
    "config of no solution": ({"config": StrangerConfig()}, "config", "StrangerConfig", "None or one of"),
    "config is a dict": ({"config": {"block_n": 64}}, "config", "dict", "None or one of"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "argument", "value", "allowed"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("after_a_good_call", [False, True], ids=["first", "later"])
def test_refused(changes, argument, value, allowed, after_a_good_call):
    if after_a_good_call:  # its Program is kept, and must not serve a call that differs from it
        call()
    with pytest.raises(ArgumentError) as caught:
        call(**changes)
    assert caught.value.argument == argument
    assert value in str(caught.value.value)
    assert allowed in caught.value.allowed
    assert str(caught.value) == f"{argument} is {caught.value.value}; allowed: {caught.value.allowed}"


@pytest.mark.parametrize("missing", ["q", "kv_cache", "page_table", "cache_seqlens", "softmax_scale"])
def test_required(missing):
    given = arguments()
    del given[missing]
    with pytest.raises(TypeError, match=missing):
        mla_decode_with_kvcache(**given)


@pytest.mark.parametrize("other", ["q", "kv_cache", "page_table", "cache_seqlens"])
@pytest.mark.parametrize("repeated", [False, True], ids=["first", "repeated"])
def test_out_on_top_of_an_input(other, repeated):
    given = arguments()
    size = 2 * 4 * 512
    room = torch.zeros(size + 2 * given["kv_cache"].numel(), dtype=BF16)
    out = room[:size].view(2, 1, 4, 512)
    # The input moves to where the last 16 bytes of out are.
    moved = given[other]
    start = (size * out.element_size() - 16) // moved.element_size()
    given[other] = room.view(moved.dtype).as_strided(moved.shape, moved.stride(), start).copy_(moved)
    if repeated:
        mla_decode_with_kvcache(**given, out=torch.empty_like(out))
    with pytest.raises(ArgumentError, match=f"out is overlapping {other} in memory; allowed: memory of its own"):
        mla_decode_with_kvcache(**given, out=out)


def test_lse_out_on_top_of_out():
    room = torch.zeros(2 * 4 * 512 + 16, dtype=BF16)
    lse = room[-16:].view(torch.float32).view(2, 1, 4)
    call(out=room[: 2 * 4 * 512].view(2, 1, 4, 512), lse_out=lse, return_lse=True)
    with pytest.raises(ArgumentError, match="lse_out is overlapping out in memory"):
        call(out=room[8 : 2 * 4 * 512 + 8].view(2, 1, 4, 512), lse_out=lse, return_lse=True)


def test_a_solution_that_cannot_serve_says_why(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UnsupportedError, match="solution 'triton' cannot serve this decode on cpu: "):
        call(solution="triton")


def test_a_config_of_another_solution_is_refused():
    with pytest.raises(ConfigError, match=r"config is TorchConfig; allowed: a \w+Config for 'triton'"):
        call(solution="triton", config=TorchConfig())


def test_a_refusal_leaves_the_outputs_alone():
    out = torch.full((2, 1, 4, 512), 3.0, dtype=BF16)
    with pytest.raises(ArgumentError):
        call(out=out, logit_cap=1.0)
    assert (out == 3).all()


@pytest.mark.parametrize("page", [-1, 3, 2147480000])
def test_a_visible_page_outside_the_pool_is_refused_by_name(page):
    changed = arguments()
    changed["page_table"][1, 1] = page
    with pytest.raises(ArgumentError) as refusal:
        mla_decode_with_kvcache(**changed)
    assert refusal.value.argument == "page_table[1, 1]" and refusal.value.value == page
    changed["cache_seqlens"][1] = 8  # the second page is no longer needed
    assert mla_decode_with_kvcache(**changed).isfinite().all()
