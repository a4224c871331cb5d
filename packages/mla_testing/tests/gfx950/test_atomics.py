"""Atomics, and workgroups that wait for each other."""

import numpy as np
import pytest

from mla_testing.gfx950.errors import (
    DeadlockError,
    EmulationError,
    GlobalRaceError,
    MisalignedAccessError,
    PendingAccessError,
)
from mla_testing.gfx950.probe import run

M32 = 0xFFFFFFFF
LANES = np.arange(64)


def s32(x):
    return x - (1 << 32) if x >> 31 else x


INTEGER = {  # (old, value) -> new
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "smin": lambda a, b: min(s32(a), s32(b)),
    "smax": lambda a, b: max(s32(a), s32(b)),
    "umin": min,
    "umax": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "swap": lambda a, b: b,
    "inc": lambda a, b: 0 if a >= b else a + 1,
    "dec": lambda a, b: b if a == 0 or a > b else a - 1,
}
FLOAT = ("add_f32", "pk_add_f16", "pk_add_bf16")
SPACES = ("global", "flat", "buffer")
MNEMONICS = {f"{s}_atomic_{n}{w}" for s in SPACES for n in (*INTEGER, "cmpswap") for w in ("", "_x2")}
MNEMONICS |= {f"{s}_atomic_{n}" for s in SPACES for n in FLOAT} | {"buffer_wbl2", "buffer_inv"}


def perform(space, name, memory, offset, data, returns=True, **options):
    """Old values (or None) of the lanes' atomics; ``data``: uint32 arrays of the data registers v4.."""
    address = memory.ctypes.data
    wide = address + np.asarray(offset, np.int64)
    v = {0: offset, 2: wide & M32, 3: wide >> 32, **{4 + i: x for i, x in enumerate(data)}}
    registers = "v4" if len(data) == 1 else f"v[4:{3 + len(data)}]"
    # Two-dword results, and the data of the pair forms, end where data and result ranges do.
    words = len(data) // (2 if "cmpswap" in name else 1)
    result = "v8" if words == 1 else "v[8:9]"
    flag = " sc0" if returns else ""
    if space == "buffer":
        text = f"buffer_atomic_{name} {registers}, v0, s[0:3], 0 offen{flag}"
    else:
        where = "v0, {}, s[0:1]" if space == "global" else "v[2:3], {}"
        text = f"{space}_atomic_{name} {result + ', ' if returns else ''}{where.format(registers)}{flag}"
    text += "\ns_waitcnt vmcnt(0) lgkmcnt(0)"
    s = {0: address & M32, 1: address >> 32, 2: 0x7FFFFFFE, 3: 0x27000}
    state = run(text, v={**v, 8: 77, 9: 77}, s=s, tensors={"memory": memory}, **options)
    first = 4 if space == "buffer" else 8
    return [state.v[first + i][0] for i in range(words)] if returns else None


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", INTEGER)
def test_integer_atomics_serve_lanes_in_order(space, name):
    start = np.array([5, 0x80000000, 0, 0xFFFFFFFF], np.uint32)
    memory, model = start.copy(), [int(x) for x in start]
    value = (LANES * 2654435761 + 12345).astype(np.uint32)
    (old,) = perform(space, name, memory, LANES % 4 * 4, [value])
    for lane in range(64):
        assert old[lane] == model[lane % 4]
        model[lane % 4] = INTEGER[name](model[lane % 4], int(value[lane])) & M32
    assert memory.tolist() == model


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", INTEGER)
def test_wide_integer_atomics(space, name):
    memory = np.full(64, 0x1_0000_0007, np.uint64)
    value = (1 << 32) + LANES.astype(np.uint64)
    low, high = perform(space, f"{name}_x2", memory, LANES * 8, [value & M32, value >> 32])
    assert (low == 7).all() and (high == 1).all()
    # All operands are positive, so signed and unsigned agree.
    expected = {**INTEGER, "smin": min, "smax": max}[name]
    assert memory.tolist() == [expected(0x1_0000_0007, int(v)) % 2**64 for v in value]


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("wide", [False, True])
def test_compare_and_swap(space, wide):
    memory = np.full(64, 9, np.uint64 if wide else np.uint32)
    compare = np.where(LANES % 2, 9, 8)
    zero = np.zeros(64, int)
    data = [100 + LANES, zero, compare, zero] if wide else [100 + LANES, compare]
    old = perform(space, "cmpswap_x2" if wide else "cmpswap", memory, LANES * memory.itemsize, data)
    assert (old[0] == 9).all()
    np.testing.assert_array_equal(memory, np.where(LANES % 2, 100 + LANES, 9))


@pytest.mark.parametrize("space", SPACES)
def test_float_atomics(space):
    memory = np.zeros(2, np.float32)
    perform(space, "add_f32", memory, LANES % 2 * 4, [LANES.astype(np.float32)], returns=False)
    assert memory.tolist() == [LANES[::2].sum(), LANES[1::2].sum()]
    memory = np.zeros(2, np.float16)
    perform(space, "pk_add_f16", memory, LANES * 0, [np.full(64, 0x4000_3C00, np.uint32)], returns=False)
    assert memory.tolist() == [64.0, 128.0]
    memory = np.zeros(1, np.uint32)
    perform(space, "pk_add_bf16", memory, LANES * 0, [np.full(64, 0x4000_3F80, np.uint32)], returns=False)
    assert memory[0] == 0x4300_4280  # 128.0 and 64.0


@pytest.mark.parametrize("space", SPACES)
def test_only_active_lanes_take_part(space):
    memory = np.zeros(1, np.uint32)
    (old,) = perform(space, "add", memory, LANES * 0, [np.ones(64, int)], exec_mask=0xF0)
    assert memory[0] == 4
    assert old[4:8].tolist() == [0, 1, 2, 3]


def test_alignment_and_waiting():
    memory = np.zeros(4, np.uint32)
    with pytest.raises(MisalignedAccessError):
        perform("global", "add", memory, LANES * 0 + 2, [np.ones(64, int)])
    s = {0: memory.ctypes.data & M32, 1: memory.ctypes.data >> 32}
    with pytest.raises(PendingAccessError, match="v8 while"):
        text = "global_atomic_add v8, v0, v4, s[0:1] sc0\nv_mov_b32_e32 v9, v8"
        run(text, v={0: 0, 4: 1}, s=s, tensors={"memory": memory})


# ------------------------------------------------------------------ workgroups that wait for each other

# s[0:1] points at {data, flag}; s4 is the number of the workgroup. v1 = 1.
PRODUCE = """
    s_cmp_eq_u32 s4, {producer}
    s_cbranch_scc0 consumer
    global_store_dword v0, v1, s[0:1]
    {release}
    global_atomic_swap v0, v1, s[0:1] offset:4
    s_endpgm
"""
CONSUME = """
    consumer:
    spin:
    global_atomic_cmpswap v5, v0, v[2:3], s[0:1] offset:4 sc0
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s5, v5
    s_cmp_eq_u32 s5, 1
    s_cbranch_scc0 spin
    {acquire}
    global_load_dword v6, v0, s[0:1]
    s_waitcnt vmcnt(0)
"""
RELEASE, ACQUIRE = "buffer_wbl2 sc1\ns_waitcnt vmcnt(0)", "buffer_inv sc1"


def hand_over(producer=1, release=RELEASE, acquire=ACQUIRE):
    memory = np.zeros(2, np.uint32)
    s = {0: memory.ctypes.data & M32, 1: memory.ctypes.data >> 32, 4: [0, 1]}
    text = PRODUCE.format(producer=producer, release=release) + CONSUME.format(acquire=acquire)
    return run(text, v={0: 0, 1: 1, 2: 1, 3: 1, 6: 0}, s=s, exec_mask=1, workgroups=2, tensors={"memory": memory})


@pytest.mark.parametrize("producer", [0, 1])
def test_a_workgroup_may_wait_for_another(producer):
    result = hand_over(producer)
    assert result.v[6][1 - producer, 0] == 1


@pytest.mark.parametrize(
    "broken", [{"release": ""}, {"release": "buffer_wbl2 sc1"}, {"release": "s_waitcnt vmcnt(0)"}, {"acquire": ""}]
)
def test_handing_over_takes_release_and_acquire(broken):
    with pytest.raises(GlobalRaceError, match=r"workgroup 0 reads what workgroup 1 writes.*in memory"):
        hand_over(**broken)


def test_waiting_for_nobody_is_a_deadlock():
    with pytest.raises(DeadlockError, match=r"workgroup \(1, 0, 0\) wave 0 spins at probe:11.*global_atomic_cmpswap"):
        hand_over(producer=2)


def test_waiting_through_barriers_is_noticed_too():
    memory = np.zeros(1, np.uint32)
    s = {0: memory.ctypes.data & M32, 1: memory.ctypes.data >> 32}
    text = "spin:\nglobal_load_dword v1, v0, s[0:1]\ns_waitcnt vmcnt(0)\ns_barrier\ns_branch spin"
    with pytest.raises(DeadlockError, match="wave 1"):
        run(text, v={0: 0}, s=s, waves=2, tensors={"memory": memory})


def test_a_barrier_that_a_wave_never_reaches():
    text = "s_cmp_eq_u32 s0, 0\ns_cbranch_scc1 spin\ns_barrier\ns_endpgm\nspin:\ns_branch spin"
    with pytest.raises(DeadlockError, match=r"wave 0 spins(?s:.*)wave 1 waits at a barrier"):
        run(text, s={0: [0, 1]}, waves=2)


def test_waves_that_ended_do_not_block_a_barrier():
    run("s_cmp_eq_u32 s0, 0\ns_cbranch_scc1 end\ns_barrier\nend:", s={0: [0, 1]}, waves=2)


def test_long_loops_are_not_mistaken_for_waiting():
    result = run("s_mov_b32 s0, 0\nloop:\ns_add_i32 s0, s0, 1\ns_cmp_lt_i32 s0, 3000\ns_cbranch_scc1 loop")
    assert result.s[0, 0] == 3000


def test_loops_can_be_limited():
    text = "loop:\ns_add_i32 s0, s0, 1\ns_branch loop"
    with pytest.raises(EmulationError, match="looped 101 times"):
        run(text, s={0: 0}, max_jumps=100)


# ------------------------------------------------------------------ races between workgroups


def two_workgroups(text):
    memory = np.zeros(128, np.uint16)
    s = {0: memory.ctypes.data & M32, 1: memory.ctypes.data >> 32, 4: [0, 1]}
    offset = np.array([[0], [2]]) + LANES * 4
    return run(text, v={0: offset, 1: 1, 2: LANES * 4}, s=s, workgroups=2, tensors={"memory": memory})


def test_neighbouring_halves_are_no_race():
    two_workgroups("global_store_short v0, v1, s[0:1]")


def test_stores_to_the_same_bytes_race():
    with pytest.raises(GlobalRaceError, match="writes what workgroup"):
        two_workgroups("global_store_short v2, v1, s[0:1]")


def test_reading_what_another_workgroup_writes_races():
    for order in ("0", "1"):
        text = (
            f"s_cmp_eq_u32 s4, {order}\ns_cbranch_scc0 reader\nglobal_store_dword v2, v1, s[0:1]\ns_endpgm\nreader:\n"
            "global_load_dword v3, v2, s[0:1]"
        )
        with pytest.raises(GlobalRaceError, match="what workgroup"):
            two_workgroups(text)


def test_overwriting_what_another_workgroup_read_races():
    text = "global_load_dword v3, v2, s[0:1]\ns_cmp_eq_u32 s4, 0\ns_cbranch_scc0 end\nglobal_store_dword v2, v1, s[0:1]\nend:"
    with pytest.raises(GlobalRaceError, match="overwrites what several workgroups read"):
        two_workgroups(text)
