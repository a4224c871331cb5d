"""What the strides of q, k, v and out must be for the gfx950 prefill kernel. No Triton is imported here.

The kernel adds 32-bit offsets, within one tile, to a 64-bit address of the tile's first row, which each workgroup
computes once (q, out) or moves on by one tile at a time (k, v). Tensors may thus be of any size, beyond 2 and 4 GiB
too; only the rows of one tile must lie within 2 GiB.
"""

from __future__ import annotations

from mla_core.problem import COPY_BYTES, ELEMENT_BYTES, fits_int32
from mla_prefill.cdna4.config import CDNA4PrefillConfig
from mla_prefill.problem import QK_HEAD_DIM, V_HEAD_DIM, PrefillProblem

TILE_ROWS = CDNA4PrefillConfig().block_m
"""Rows of the largest tile, that of the queries."""


def used_strides(problem: PrefillProblem) -> dict[str, tuple[int, int]]:
    """(token, head) strides in elements by tensor, 0 for a dimension with a single index: what it is does not matter."""
    shapes = {
        "q": (problem.total_q, problem.heads, problem.q_strides),
        "k": (problem.total_kv, problem.kv_heads, problem.k_strides),
        "v": (problem.total_kv, problem.kv_heads, problem.v_strides),
        "out": (problem.total_q, problem.heads, problem.out_strides),
    }
    return {
        name: (strides[0] if tokens > 1 else 0, strides[1] if heads > 1 else 0)
        for name, (tokens, heads, strides) in shapes.items()
    }


def refusal(problem: PrefillProblem) -> str:
    """Why the kernel cannot address the tensors, as one sentence; empty where it can."""
    if not problem.aligned:
        return f"q, k, v and out must start at {COPY_BYTES}-byte addresses for 128-bit copies, and one does not"
    piece = COPY_BYTES // ELEMENT_BYTES
    for name, (token, head) in used_strides(problem).items():
        for axis, stride in (("token", token), ("head", head)):
            if stride % piece:
                return f"the {axis} stride of {name} must be a multiple of {piece} elements, and is {stride}"
        columns = QK_HEAD_DIM if name in "qk" else V_HEAD_DIM
        if not fits_int32((TILE_ROWS, columns), (token, 1)):
            return f"{TILE_ROWS} rows of {name} must lie within 2 GiB, and its token stride is {token} elements"
    return ""
