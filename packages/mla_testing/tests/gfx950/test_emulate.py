"""Kernels launched on CPU tensors, on the whole way from Triton to the emulator."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.driver import driver

from mla_core.errors import ArgumentError
from mla_core.target import Target
from mla_testing import emulate
from mla_testing.gfx950 import (
    Checks,
    DeadlockError,
    EmulationError,
    GlobalRaceError,
    UninitialisedOutputError,
    benchmark,
    demo_kernels,
)

ORDERS = ("forward", "reverse")


def run_attention(q, k, v, keys, size, **mistakes):
    rows, dim = q.shape
    block_m = 64 if size == 16 else 128
    out, lse = torch.empty_like(q), torch.empty(rows)
    meta = {"BLOCK_M": block_m, "BLOCK_N": 64, "DIM": dim, "NUM_WARPS": 4, "MFMA": size}
    grid = (rows // block_m,)
    demo_kernels.attention[grid](
        q, k, v, out, lse, keys, dim**-0.5 * 1.4426950408889634, **meta, **mistakes, num_warps=4
    )
    return out, lse


def attention_inputs(rows, keys, dim):
    generator = torch.Generator().manual_seed(rows + keys + dim)
    return [torch.randn(n, dim, generator=generator).bfloat16() for n in (rows, keys, keys)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("size", "dim", "keys"), [(16, 64, 200), (32, 64, 64), (32, 128, 300)])
def test_attention(size, dim, keys, order):
    q, k, v = attention_inputs(256, keys, dim)
    with emulate("gfx950", wave_order=order) as session:
        out, lse = run_attention(q, k, v, keys, size)
        session.check_written(out)
    logits = q.double() @ k.double().T * dim**-0.5
    # P is rounded to bf16 (2**-9 relative) and so is the result.
    torch.testing.assert_close(out.double(), logits.softmax(-1) @ v.double(), rtol=2**-8, atol=2**-9)
    torch.testing.assert_close(lse.double() / 1.4426950408889634, logits.logsumexp(-1), rtol=0, atol=4e-6)


@pytest.mark.parametrize("order", ORDERS)
def test_matmul_through_lds(order):
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(64, 256, generator=generator).half(), torch.randn(256, 64, generator=generator).half()
    out = torch.empty(4, 64, 64)
    with emulate(wave_order=order):
        demo_kernels.split_matmul[(4,)](a, b, out, 256, SIZE=64, BLOCK_K=64, NUM_WARPS=4, num_warps=4)
    torch.testing.assert_close(out.double().sum(0), a.double() @ b.double(), rtol=0, atol=2e-4)


@pytest.mark.parametrize("order", ORDERS)
def test_triton_kernels(order):
    x = torch.randn(5, 300, generator=torch.Generator().manual_seed(0))
    out, total = torch.empty_like(x), torch.empty(300)
    ticket = torch.zeros(1, dtype=torch.int32)
    with emulate(wave_order=order):
        demo_kernels.row_softmax[(5,)](x, out, 300, BLOCK=512)
        demo_kernels.ticket_sum[(5,)](x, torch.empty(5, 300), ticket, total, 300, BLOCK=512)
    torch.testing.assert_close(out, x.softmax(1))
    torch.testing.assert_close(total, 2 * x.sum(0))
    assert ticket.item() == 5


def test_records():
    q, k, v = attention_inputs(128, 200, 64)
    with emulate() as session:
        run_attention(q, k, v, 200, 16)
        run_attention(q, k, v, 64, 16)
    first, second = session.launches
    assert (first.name, first.grid, first.num_warps) == ("attention", (2, 1, 1), 4)
    # 4 blocks: per block and wave 4 x 2 products of Q K^T and 4 x 2 of P V; 2 workgroups of 4 waves.
    assert first.instructions["mfma"] == 4 * 16 * 8
    assert second.instructions["mfma"] == 1 * 16 * 8
    for kind in ("valu", "transcendental", "salu", "smem", "lds", "vmem", "wait", "barrier"):
        assert first.instructions[kind] > second.instructions[kind] > 0 or kind in ("smem",)
    # Two buffers of K and of V of 64 x 64 bf16, each with 16 bytes of padding per KiB copied by a wave.
    padded = 64 * 64 * 2 + (64 * 64 * 2 // 1024 - 1) * 32
    assert 4 * padded <= first.resources.lds_bytes <= 4 * padded + 256
    assert first.resources.vgprs > 0 and first.resources.vgpr_spills == 0 and first.resources.scratch_bytes == 0
    assert first.execution.bytes_written == q.numel() * 2 + 128 * 4
    assert first.unwritten == {"out_ptr": 0, "lse_ptr": 0}
    assert first.seconds > 0 and first.instructions_per_second > 0


def test_orders_differ_where_an_order_exists():
    """Which lane's value a racing atomic exchange leaves behind is the last one's."""

    def last():
        memory = torch.zeros(1, dtype=torch.int32)
        leave_mark[(3,)](memory)
        return memory.item()

    with emulate(wave_order="forward"):
        forward = last()
    with emulate(wave_order="reverse"):
        backward = last()
    assert (forward, backward) == (3, 1)


@triton.jit
def leave_mark(memory):
    tl.atomic_xchg(memory, tl.program_id(0) + 1)


@triton.jit
def write_some(out, n: tl.constexpr):
    i = tl.arange(0, 128)
    tl.store(out + i, i, mask=i < n)


@triton.jit
def write_together(out):
    tl.store(out + tl.arange(0, 128), tl.program_id(0))


def test_uninitialised_output():
    out = torch.empty(128, dtype=torch.int32)
    with emulate() as session:
        write_some[(1,)](out, n=100)
        assert session.launches[0].unwritten == {"out": 28 * 4}
        assert session.launches[0].execution.bytes_written == 100 * 4
        with pytest.raises(UninitialisedOutputError, match="112 bytes of out"):
            session.check_written(out)
        write_some[(1,)](out, n=128)
        session.check_written(out)


def test_checks_can_be_chosen():
    out = torch.empty(128, dtype=torch.int32)
    with emulate(), pytest.raises(GlobalRaceError, match=r"test_emulate.py:\d+"):
        write_together[(2,)](out)
    with emulate(checks=["strict", "race"]) as session:
        write_together[(2,)](out)
        assert session.checks == Checks(poison=False, bounds=False, global_race=False)


def test_leaving_restores_everything():
    before, target = driver._active, Target.current()
    with pytest.raises(RuntimeError, match="inside"), emulate(compute_units=3):
        assert Target.current() == Target.current("cpu")
        assert (Target.current().arch, Target.current().compute_units) == ("gfx950", 3)
        assert driver.active.get_current_target().arch == "gfx950"
        raise RuntimeError("inside")
    assert driver._active is before
    assert Target.current() == target


def test_sessions_nest_and_kernels_outlive_them():
    out = torch.empty(128, dtype=torch.int32)
    with emulate() as outer:
        write_some[(1,)](out, n=128)
        with emulate() as inner:
            write_some[(1,)](out, n=128)
        write_some[(1,)](out, n=128)
    assert (len(outer.launches), len(inner.launches)) == (2, 1)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"arch": "gfx942"}, "arch"),
        ({"wave_order": "random"}, "wave_order"),
        ({"checks": ["strict", "luck"]}, "checks"),
        ({"compute_units": 0}, "compute_units"),
    ],
)
def test_arguments_are_validated(options, name):
    with pytest.raises(ArgumentError, match=name), emulate(**options):
        pass


def test_views_of_one_tensor_as_several_arguments():
    base = torch.arange(512, dtype=torch.float32)
    left, right = base[:300], base[200:500]
    out = torch.empty(300)
    with emulate():
        add_views[(1,)](left, right, out)
    torch.testing.assert_close(out, left + right)


@triton.jit
def add_views(a, b, out):
    i = tl.arange(0, 512)
    inside = i < 300
    tl.store(out + i, tl.load(a + i, mask=inside) + tl.load(b + i, mask=inside), mask=inside)


def test_reading_beyond_a_view_is_out_of_bounds():
    base = torch.zeros(512)
    with emulate(), pytest.raises(EmulationError, match=r"outside every tensor.*nearest: byte \d+ of b, which has 796"):
        add_views[(1,)](base, torch.zeros(512)[:199], torch.empty(300))


def test_grids_have_three_dimensions():
    out = torch.zeros(2, 3, 4, dtype=torch.int32)
    with emulate():
        mark_programs[(4, 3, 2)](out)
    np.testing.assert_array_equal(out.reshape(-1), np.arange(24))


@triton.jit
def mark_programs(out):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(out + (z * tl.num_programs(1) + y) * tl.num_programs(0) + x, (z * 3 + y) * 4 + x)


@triton.jit
def relay(flag, data, out, n: tl.constexpr):
    """Program 0 waits for the last program, which may not even have started."""
    i = tl.arange(0, n)
    if tl.program_id(0) == 0:
        while tl.atomic_cas(flag, 1, 1, sem="acquire") != 1:
            pass
        tl.store(out + i, tl.load(data + i) + 1)
    elif tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(data + i, i)
        tl.debug_barrier()
        tl.atomic_xchg(flag, 1, sem="release")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("programs", [2, 100])
def test_workgroups_may_wait_for_ones_that_start_later(programs, order):
    flag, data, out = torch.zeros(1, dtype=torch.int32), torch.zeros(256), torch.zeros(256)
    with emulate(wave_order=order):
        relay[(programs,)](flag, data, out, n=256)
        torch.testing.assert_close(out, torch.arange(256.0) + 1)
        flag.zero_()
        with pytest.raises(DeadlockError, match=r"workgroup \(0, 0, 0\) wave \d spins at test_emulate.py"):
            relay[(1,)](flag, data, out, n=256)


def test_rate():
    """The goal is 1.5 million wave instructions per second of CPU time with all checks; a slow machine may have half."""
    assert benchmark.rate(workgroups=32, checks="all") > 0.75
