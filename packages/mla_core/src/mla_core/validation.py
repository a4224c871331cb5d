"""Checks of tensor arguments that both public functions share. Each refusal names the argument and its value."""

from __future__ import annotations

import math
from typing import Any

import torch

from mla_core.errors import ArgumentError
from mla_core.problem import DTYPE_NAMES


def check_tensor(name: str, value: Any, dims: int, dtype: torch.dtype | None, device: torch.device | None) -> None:
    """A dense tensor with `dims` dimensions, of `dtype` (None: bf16 or fp16) on `device` (None: any), not requiring grad."""
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(name, f"a {type(value).__name__}", "a torch.Tensor")
    if value.layout != torch.strided:
        raise ArgumentError(f"{name}.layout", value.layout, "torch.strided")
    if value.dim() != dims:
        raise ArgumentError(f"{name}.shape", tuple(value.shape), f"{dims} dimensions")
    if dtype is None and value.dtype not in DTYPE_NAMES:
        raise ArgumentError(f"{name}.dtype", value.dtype, "torch.bfloat16 or torch.float16")
    if dtype is not None and value.dtype != dtype:
        raise ArgumentError(f"{name}.dtype", value.dtype, str(dtype))
    if device is not None and value.device != device:
        raise ArgumentError(f"{name}.device", value.device, f"{device}, the device of q")
    if value.requires_grad and torch.is_grad_enabled():
        raise ArgumentError(
            f"{name}.requires_grad", True, "False (there is no backward), or call it under torch.no_grad()"
        )


def check_shape(name: str, value: torch.Tensor, expected: tuple[int, ...], meaning: str) -> None:
    """Exactly the shape `expected`, which `meaning` spells in symbols."""
    if tuple(value.shape) != expected:
        raise ArgumentError(f"{name}.shape", tuple(value.shape), f"{expected} = {meaning}")


def check_last_contiguous(name: str, value: torch.Tensor) -> None:
    """Stride 1 in the last dimension."""
    if value.shape[-1] > 1 and value.stride(-1) != 1:
        raise ArgumentError(f"{name}.stride(-1)", value.stride(-1), "1 (a contiguous last dimension)")


def check_writable(name: str, value: torch.Tensor) -> None:
    """No two elements of an output share memory (as an expanded tensor's do)."""
    reach = 1
    for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
        if size <= 1:
            continue
        if stride < reach:
            raise ArgumentError(f"{name}.stride()", tuple(value.stride()), "strides that keep its elements apart")
        reach = stride * (size - 1) + reach


def check_disjoint(name: str, value: torch.Tensor, others: dict[str, torch.Tensor]) -> None:
    """An output's storage range overlaps no other argument's."""
    start, end = _extent(value)
    for other_name, other in others.items():
        other_start, other_end = _extent(other)
        if start < other_end and other_start < end and _may_share(value, other):
            raise ArgumentError(name, f"overlapping {other_name} in memory", "memory of its own")


def _extent(value: torch.Tensor) -> tuple[int, int]:
    if value.numel() == 0:
        return (0, 0)
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    start = value.data_ptr()
    return start, start + (last + 1) * value.element_size()


def _may_share(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.device == second.device


def check_number(name: str, value: Any, allowed: str, *, low: float | None = None, integer: bool = False) -> None:
    """A finite int or float (an int where `integer`), at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int if integer else (int, float)) or not math.isfinite(value):
        raise ArgumentError(name, repr(value), allowed)
    if low is not None and value < low:
        raise ArgumentError(name, value, allowed)


def check_flag(name: str, value: Any) -> None:
    """True or False itself."""
    if not isinstance(value, bool):
        raise ArgumentError(name, repr(value), "True or False")


def check_logits(softmax_scale: Any, logit_cap: Any) -> None:
    """What is done to the logits before the softmax."""
    check_number("softmax_scale", softmax_scale, "a finite number")
    check_number("logit_cap", logit_cap, "0.0 (capping is not implemented)")
    if logit_cap != 0:
        raise ArgumentError("logit_cap", logit_cap, "0.0 (capping is not implemented)")


def check_out(value: Any, like: torch.Tensor, shape: tuple[int, ...], meaning: str) -> None:
    """A tensor to write results of `like`'s dtype into."""
    check_tensor("out", value, len(shape), like.dtype, like.device)
    check_shape("out", value, shape, meaning)
    check_last_contiguous("out", value)
    check_writable("out", value)


def check_lse_out(value: Any, like: torch.Tensor, shape: tuple[int, ...], meaning: str, return_lse: bool) -> None:
    """A tensor to write the log-sum-exp into, which only `return_lse` asks for."""
    if not return_lse:
        raise ArgumentError("lse_out", "a tensor", "None where return_lse is False")
    check_tensor("lse_out", value, len(shape), torch.float32, like.device)
    check_shape("lse_out", value, shape, meaning)
    if not value.is_contiguous():
        raise ArgumentError("lse_out.stride()", tuple(value.stride()), "contiguous strides")


def check_outputs(inputs: dict[str, torch.Tensor], out: torch.Tensor | None, lse_out: torch.Tensor | None) -> None:
    """Refuses outputs that overlap an input or each other in memory."""
    if out is not None:
        check_disjoint("out", out, inputs)
    if lse_out is not None:
        check_disjoint("lse_out", lse_out, inputs if out is None else {**inputs, "out": out})
