"""Capture of a call in a CUDA or HIP graph, and its replay with other contents of the same tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def replay(call: Callable[..., Any], inputs: Any, replaced: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Captures a call on `inputs` and replays it on `replaced`, copied over the first rows of the same tensors.

    Returns the out and lse that the replay wrote, NaN where it wrote nothing.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call(inputs, return_lse=True)  # compiles outside the capture
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out, lse = call(inputs, return_lse=True)
    for held, new in zip(inputs.tensors, replaced.tensors, strict=True):
        held[tuple(slice(0, size) for size in new.shape)].copy_(new)
    out.fill_(float("nan"))
    lse.fill_(float("nan"))
    captured.replay()
    torch.cuda.synchronize()
    return out, lse
