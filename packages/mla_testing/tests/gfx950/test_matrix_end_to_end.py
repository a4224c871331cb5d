"""Matrix products compiled by Triton: operands that Triton lays out, loads through LDS and scales must come out right."""

import pytest
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mla_testing import emulate

cdna4 = gl.amd.cdna4
TORCH = {"fp8": torch.float8_e4m3fn, "bf8": torch.float8_e5m2, "fp16": torch.float16, "bf16": torch.bfloat16}


@gluon.jit
def matmul_from_lds(a_ptr, b_ptr, out_ptr, M: gl.constexpr, K: gl.constexpr, SIZE: gl.constexpr, WIDTH: gl.constexpr):
    """out [M, M] = A [M, K] @ B [K, M], both row-major: B has to be read from LDS across its rows."""
    mma: gl.constexpr = gl.amd.AMDMFMALayout(
        version=4,
        instr_shape=[SIZE, SIZE, 512 // SIZE],
        transposed=True,
        warps_per_cta=[4, 1],
    )
    a_layout: gl.constexpr = gl.DotOperandLayout(0, mma, WIDTH)
    b_layout: gl.constexpr = gl.DotOperandLayout(1, mma, WIDTH)
    copy: gl.constexpr = gl.BlockedLayout([1, 8], [4, 16], [4, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
    rows = gl.arange(0, M, layout=gl.SliceLayout(1, copy))[:, None]
    ks = gl.arange(0, K, layout=gl.SliceLayout(0, copy))[None, :]
    a = gl.load(a_ptr + rows * K + ks)
    k_rows = gl.arange(0, K, layout=gl.SliceLayout(1, copy))[:, None]
    columns = gl.arange(0, M, layout=gl.SliceLayout(0, copy))[None, :]
    b = gl.load(b_ptr + k_rows * M + columns)
    a_tile = gl.allocate_shared_memory(a.dtype, [M, K], shared, a)
    b_tile = gl.allocate_shared_memory(b.dtype, [K, M], shared, b)
    acc = gl.zeros([M, M], gl.float32, mma)
    acc = cdna4.mfma(a_tile.load(a_layout), b_tile.load(b_layout), acc)
    out_rows = gl.arange(0, M, layout=gl.SliceLayout(1, mma))[:, None]
    out_columns = gl.arange(0, M, layout=gl.SliceLayout(0, mma))[None, :]
    gl.store(out_ptr + out_rows * M + out_columns, acc)


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("kind", TORCH)
def test_operands_through_lds(kind, size):
    """The second operand goes through the transposing LDS read of its element size."""
    m, k = 128, 64
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, generator=generator).to(TORCH[kind]) for n in ((m, k), (k, m)))
    out = torch.empty(m, m)
    with emulate("gfx950") as session:
        matmul_from_lds[(1,)](a, b, out, M=m, K=k, SIZE=size, WIDTH=8, num_warps=4)
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=0, atol=1e-3 if kind == "bf8" else 2e-4)
    record = session.launches[-1]
    assert ("ds_read_b64_tr_b8" if "8" in kind else "ds_read_b64_tr_b16") in record.asm.replace("bf16", "")
    assert record.instructions["mfma"] == (m // size) ** 2 * k * size // 512


@gluon.jit
def scaled_matmul(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, out_ptr,
    M: gl.constexpr, K: gl.constexpr, SIZE: gl.constexpr, A: gl.constexpr, B: gl.constexpr,
):  # fmt: skip
    """out [M, M] = (A * scale) @ (B * scale); fp4 operands are packed in pairs along K."""
    mma: gl.constexpr = gl.amd.AMDMFMALayout(
        version=4, instr_shape=[SIZE, SIZE, 2048 // SIZE], transposed=True, warps_per_cta=[1, 1]
    )
    a_layout: gl.constexpr = gl.DotOperandLayout(0, mma, 16)
    b_layout: gl.constexpr = gl.DotOperandLayout(1, mma, 16)
    a_k: gl.constexpr = K // 2 if A == "e2m1" else K
    b_k: gl.constexpr = K // 2 if B == "e2m1" else K
    a_rows = gl.arange(0, M, layout=gl.SliceLayout(1, a_layout))[:, None]
    a = gl.load(a_ptr + a_rows * a_k + gl.arange(0, a_k, layout=gl.SliceLayout(0, a_layout))[None, :])
    b_columns = gl.arange(0, M, layout=gl.SliceLayout(0, b_layout))[None, :]
    b = gl.load(b_ptr + gl.arange(0, b_k, layout=gl.SliceLayout(1, b_layout))[:, None] * M + b_columns)
    a_scale_layout: gl.constexpr = cdna4.get_mfma_scale_layout(a_layout, [M, K // 32])
    b_scale_layout: gl.constexpr = cdna4.get_mfma_scale_layout(b_layout, [M, K // 32])
    blocks_a = gl.arange(0, K // 32, layout=gl.SliceLayout(0, a_scale_layout))[None, :]
    blocks_b = gl.arange(0, K // 32, layout=gl.SliceLayout(0, b_scale_layout))[None, :]
    rows_a = gl.arange(0, M, layout=gl.SliceLayout(1, a_scale_layout))[:, None]
    rows_b = gl.arange(0, M, layout=gl.SliceLayout(1, b_scale_layout))[:, None]
    a_scale = gl.load(a_scale_ptr + rows_a * (K // 32) + blocks_a)
    b_scale = gl.load(b_scale_ptr + rows_b * (K // 32) + blocks_b)
    acc = cdna4.mfma_scaled(a, a_scale, A, b, b_scale, B, gl.zeros([M, M], gl.float32, mma))
    out_rows = gl.arange(0, M, layout=gl.SliceLayout(1, mma))[:, None]
    out_columns = gl.arange(0, M, layout=gl.SliceLayout(0, mma))[None, :]
    gl.store(out_ptr + out_rows * M + out_columns, acc)


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def narrow_matrix(kind, rows, k, generator):
    """(memory [rows, k or k / 2], values [rows, k])."""
    if kind == "e2m1":
        codes = torch.randint(0, 16, (rows, k), generator=generator, dtype=torch.uint8)
        return codes[:, ::2] | codes[:, 1::2] << 4, FP4[codes.long()]
    dtype = torch.float8_e4m3fn if kind == "e4m3" else torch.float8_e5m2
    values = torch.randn(rows, k, generator=generator).to(dtype)
    return values, values.double()


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize(("kind_a", "kind_b"), [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m1", "e2m1"), ("e4m3", "e2m1")])
def test_block_scaled_products(kind_a, kind_b, size):
    m, k = 32, 256
    generator = torch.Generator().manual_seed(0)
    a_memory, a = narrow_matrix(kind_a, m, k, generator)
    b_memory, b = narrow_matrix(kind_b, m, k, generator)  # transposed: [columns, k]
    scales = [torch.randint(124, 131, (m, k // 32), generator=generator, dtype=torch.uint8) for _ in range(2)]
    out = torch.empty(m, m)
    with emulate("gfx950") as session:
        scaled_matmul[(1,)](
            a_memory,
            scales[0],
            b_memory.T.contiguous(),
            scales[1],
            out,
            M=m,
            K=k,
            SIZE=size,
            A=kind_a,
            B=kind_b,
            num_warps=1,
        )
    wide = [torch.repeat_interleave(2.0 ** (s.double() - 127), 32, dim=1) for s in scales]
    expected = (a * wide[0]) @ (b * wide[1]).T
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-5 * expected.abs().max().item())
    assert f"v_mfma_scale_f32_{size}x{size}x{2048 // size}_f8f6f4" in session.launches[-1].asm
