"""Every argument of mla_prefill that is never allowed: refused by name, value and what is allowed."""

import pytest
import torch

from mla_core import ArgumentError, KernelConfig, UnsupportedError, kernel_config
from mla_prefill import mla_prefill
from mla_testing.varlen import varlen

BF16, FP16 = torch.bfloat16, torch.float16


@kernel_config
class StrangerConfig(KernelConfig):
    block_n: int = 64


def zeros(*shape, dtype=BF16, **options):
    return torch.zeros(shape, dtype=dtype, **options)


def ints(*shape, **options):
    return torch.zeros(shape, dtype=torch.int32, **options)


def arguments():
    """A call that is allowed: 10 query tokens, 12 keys, 2 sequences, 4 heads over 2 key heads."""
    inputs = varlen(seqlens=[(4, 5), (6, 7)], heads=4, kv_heads=2, gap=0)
    names = ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_kv")
    return {
        **dict(zip(names, inputs.tensors, strict=True)),
        "max_seqlen_q": 6,
        "max_seqlen_kv": 7,
        "softmax_scale": 0.1,
    }


def call(**changes):
    return mla_prefill(**{**arguments(), **changes})


# (changed arguments, argument that the error names, part of the value, part of what is allowed)
REFUSED = {
    "q is no tensor": ({"q": [1.0]}, "q", "a list", "a torch.Tensor"),
    "q has 4 dimensions": ({"q": zeros(1, 10, 4, 192)}, "q.shape", "(1, 10, 4, 192)", "3 dimensions"),
    "q is fp32": ({"q": zeros(10, 4, 192, dtype=torch.float32)}, "q.dtype", "float32", "bfloat16 or torch.float16"),
    "q has other columns": ({"q": zeros(10, 4, 128)}, "q.shape", "(10, 4, 128)", "[total_q, heads, 192]"),
    "no head": ({"q": zeros(10, 0, 192)}, "q.shape", "(10, 0, 192)", "at least 1 head"),
    "q strided in its columns": ({"q": zeros(10, 4, 384)[..., ::2]}, "q.stride(-1)", "2", "1 ("),
    "q is sparse": ({"q": zeros(10, 4, 192).to_sparse()}, "q.layout", "sparse_coo", "strided"),
    "q wants a gradient": ({"q": zeros(10, 4, 192, requires_grad=True)}, "q.requires_grad", "True", "no_grad"),
    "k is None": ({"k": None}, "k", "a NoneType", "a torch.Tensor"),
    "k of another dtype": ({"k": zeros(12, 2, 192, dtype=FP16)}, "k.dtype", "float16", "bfloat16"),
    "k has other columns": ({"k": zeros(12, 2, 128)}, "k.shape", "(12, 2, 128)", "192"),
    "k without heads": ({"k": zeros(12, 0, 192)}, "k.shape", "(12, 0, 192)", "divide the 4 heads"),
    "3 key heads for 4": ({"k": zeros(12, 3, 192)}, "k.shape", "(12, 3, 192)", "divide the 4 heads"),
    "8 key heads for 4": ({"k": zeros(12, 8, 192)}, "k.shape", "(12, 8, 192)", "divide the 4 heads"),
    "k strided in its columns": ({"k": zeros(12, 2, 384)[..., ::2]}, "k.stride(-1)", "2", "1 ("),
    "k elsewhere": ({"k": zeros(12, 2, 192, device="meta")}, "k.device", "meta", "cpu"),
    "v of other tokens": ({"v": zeros(11, 2, 128)}, "v.shape", "(11, 2, 128)", "(12, 2, 128)"),
    "v of other heads": ({"v": zeros(12, 4, 128)}, "v.shape", "(12, 4, 128)", "(12, 2, 128)"),
    "v has other columns": ({"v": zeros(12, 2, 192)}, "v.shape", "(12, 2, 192)", "(12, 2, 128)"),
    "v of another dtype": ({"v": zeros(12, 2, 128, dtype=FP16)}, "v.dtype", "float16", "bfloat16"),
    "v strided in its columns": ({"v": zeros(12, 2, 256)[..., ::2]}, "v.stride(-1)", "2", "1 ("),
    "cu_seqlens_q is int64": ({"cu_seqlens_q": ints(3).long()}, "cu_seqlens_q.dtype", "int64", "int32"),
    "cu_seqlens_q is empty": ({"cu_seqlens_q": ints(0)}, "cu_seqlens_q.shape", "(0,)", "[batch + 1]"),
    "cu_seqlens_q has 2 dimensions": ({"cu_seqlens_q": ints(3, 1)}, "cu_seqlens_q.shape", "(3, 1)", "1 dimensions"),
    "cu_seqlens_q is strided": ({"cu_seqlens_q": ints(6)[::2]}, "cu_seqlens_q.stride(-1)", "2", "1 ("),
    "cu_seqlens_q is a list": ({"cu_seqlens_q": [0, 4, 10]}, "cu_seqlens_q", "a list", "a torch.Tensor"),
    "cu_seqlens_kv of another batch": ({"cu_seqlens_kv": ints(4)}, "cu_seqlens_kv.shape", "(4,)", "(3,)"),
    "cu_seqlens_kv is int64": ({"cu_seqlens_kv": ints(3).long()}, "cu_seqlens_kv.dtype", "int64", "int32"),
    "cu_seqlens_kv is strided": ({"cu_seqlens_kv": ints(6)[::2]}, "cu_seqlens_kv.stride(-1)", "2", "1 ("),
    "cu_seqlens_kv elsewhere": ({"cu_seqlens_kv": ints(3, device="meta")}, "cu_seqlens_kv.device", "meta", "cpu"),
    "bound of q is None": ({"max_seqlen_q": None}, "max_seqlen_q", "None", "an int of at least 0"),
    "bound of q is negative": ({"max_seqlen_q": -1}, "max_seqlen_q", "-1", "an int of at least 0"),
    "bound of q is a float": ({"max_seqlen_q": 6.0}, "max_seqlen_q", "6.0", "an int of at least 0"),
    "bound of kv is a tensor": ({"max_seqlen_kv": torch.tensor(7)}, "max_seqlen_kv", "tensor(7)", "an int"),
    "bound of kv is a bool": ({"max_seqlen_kv": True}, "max_seqlen_kv", "True", "an int of at least 0"),
    "scale is NaN": ({"softmax_scale": float("nan")}, "softmax_scale", "nan", "a finite number"),
    "scale is None": ({"softmax_scale": None}, "softmax_scale", "None", "a finite number"),
    "scale is a tensor": ({"softmax_scale": torch.ones(())}, "softmax_scale", "tensor", "a finite number"),
    "is_causal is an int": ({"is_causal": 1}, "is_causal", "1", "True or False"),
    "return_lse is None": ({"return_lse": None}, "return_lse", "None", "True or False"),
    "capped logits": ({"logit_cap": 30.0}, "logit_cap", "30.0", "0.0 (capping is not implemented)"),
    "out of another shape": ({"out": zeros(10, 4, 192)}, "out.shape", "(10, 4, 192)", "(10, 4, 128)"),
    "out of another dtype": ({"out": zeros(10, 4, 128, dtype=FP16)}, "out.dtype", "float16", "bfloat16"),
    "out strided in its columns": ({"out": zeros(10, 4, 256)[..., ::2]}, "out.stride(-1)", "2", "1 ("),
    "out expanded": ({"out": zeros(1, 4, 128).expand(10, 4, 128)}, "out.stride()", "(0, ", "apart"),
    "lse_out without lse": ({"lse_out": zeros(10, 4, dtype=torch.float32)}, "lse_out", "a tensor", "return_lse"),
    "lse_out of another shape": (
        {"lse_out": zeros(4, 10, dtype=torch.float32), "return_lse": True}, "lse_out.shape", "(4, 10)", "(10, 4)"
    ),
    "lse_out is bf16": ({"lse_out": zeros(10, 4), "return_lse": True}, "lse_out.dtype", "bfloat16", "float32"),
    "lse_out transposed": (
        {"lse_out": zeros(4, 10, dtype=torch.float32).t(), "return_lse": True},
        "lse_out.stride()", "(1, 10)", "contiguous",
    ),
    "unknown solution": ({"solution": "swift"}, "solution", "'swift'", "None or one of"),
    "config of no solution": ({"config": StrangerConfig()}, "config", "StrangerConfig", "None or one of"),
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


@pytest.mark.parametrize(
    "missing", ["q", "k", "v", "cu_seqlens_q", "cu_seqlens_kv", "max_seqlen_q", "max_seqlen_kv", "softmax_scale"]
)
def test_required(missing):
    given = arguments()
    del given[missing]
    with pytest.raises(TypeError, match=missing):
        mla_prefill(**given)


@pytest.mark.parametrize("other", ["q", "k", "v", "cu_seqlens_q", "cu_seqlens_kv"])
def test_out_on_top_of_an_input(other):
    given = arguments()
    size = 10 * 4 * 128
    room = torch.zeros(3 * size, dtype=BF16)
    out = room[:size].view(10, 4, 128)
    # The input moves to where the last 16 bytes of out are.
    moved = given[other]
    start = (size * out.element_size() - 16) // moved.element_size()
    given[other] = room.view(moved.dtype).as_strided(moved.shape, moved.stride(), start).copy_(moved)
    mla_prefill(**given, out=torch.empty_like(out))
    with pytest.raises(ArgumentError, match=f"out is overlapping {other} in memory; allowed: memory of its own"):
        mla_prefill(**given, out=out)


def test_a_solution_that_cannot_serve_says_why(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    from mla_core import registry

    others = [entry.name for entry in registry.solutions("prefill") if entry.name != "torch"]
    for name in others:
        with pytest.raises(UnsupportedError, match=f"solution '{name}' cannot serve this prefill on cpu: "):
            call(solution=name)


def test_a_refusal_leaves_the_outputs_alone():
    out = torch.full((10, 4, 128), 3.0, dtype=BF16)
    with pytest.raises(ArgumentError):
        call(out=out, logit_cap=1.0)
    assert (out == 3).all()
