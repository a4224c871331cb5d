"""What the producer warp hands to the consumer warpgroups: rings of tiles in shared memory, and records of work."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from mla_core.gluon_compat import aggregate
from mla_prefill.hopper.planner import (
    BLOCKS,
    FIRST_VISIBLE,
    HEAD,
    KV_ROW,
    LAST_VISIBLE,
    NEXT_RECORD,
    Q_ROW,
    Q_ROWS,
    RECORD_COUNT,
    WORDS,
)


@aggregate
class Ring:
    """`stages` slots that the n-th, n+1-th, ... hand-over use in turn; `stages` is a power of two.

    Each slot has two barriers: `full` completes when the slot's bytes have arrived, `empty` when every consumer has
    released it. A side that is `stages` hand-overs ahead waits.
    """

    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor
    stages: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, full, empty, stages):
        self.full = full
        self.empty = empty
        self.stages = gl.constexpr(stages)

    @gluon.jit
    def slot(self, n):
        """Slot of the n-th hand-over."""
        return n & (self.stages - 1)

    @gluon.jit
    def phase(self, n):
        """Parity of the slot's uses before the n-th hand-over."""
        return (n // self.stages) & 1

    @gluon.jit
    def wait_empty(self, n):
        """Producer: until the slot is free."""
        mbarrier.wait(self.empty.index(self.slot(n)), self.phase(n) ^ 1)

    @gluon.jit
    def wait_full(self, n):
        """Consumer: until the slot is filled."""
        mbarrier.wait(self.full.index(self.slot(n)), self.phase(n))

    @gluon.jit
    def wait_released(self, n):
        """Producer: until every consumer is done with the n-th hand-over."""
        mbarrier.wait(self.empty.index(self.slot(n)), self.phase(n))

    @gluon.jit
    def release(self, n):
        """Consumer: the slot may be filled again."""
        mbarrier.arrive(self.empty.index(self.slot(n)), count=1)

    @gluon.jit
    def release_if(self, n, EXISTS):
        """Consumer: the same, where there was an n-th hand-over."""
        mbarrier.arrive(self.empty.index(self.slot(n)), count=1, pred=EXISTS)


@gluon.jit
def make_ring(STAGES: gl.constexpr, CONSUMERS: gl.constexpr):
    """A Ring with fresh barriers; a fence must follow before another warp uses it."""
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=CONSUMERS)
    return Ring(full, empty, STAGES)


@aggregate
class Fetch:
    """What the producer needs of a record; fields as in `planner`, and `words`, all of it spread over the lanes."""

    words: gl.tensor
    q_row: gl.tensor
    kv_row: gl.tensor
    blocks: gl.tensor
    head: gl.tensor

    @gluon.constexpr_function
    def __init__(self, words, q_row, kv_row, blocks, head):
        self.words = words
        self.q_row = q_row
        self.kv_row = kv_row
        self.blocks = blocks
        self.head = head


@aggregate
class Keys:
    """What a consumer needs of a record while it goes through the keys; fields as in `planner`."""

    blocks: gl.tensor
    last_visible: gl.tensor
    first_visible: gl.tensor

    @gluon.constexpr_function
    def __init__(self, blocks, last_visible, first_visible):
        self.blocks = blocks
        self.last_visible = last_visible
        self.first_visible = first_visible

    @gluon.jit
    def masked_blocks(self, BLOCK_N: gl.constexpr):
        """How many blocks, from the last one back, need a mask. The last one always counts."""
        return gl.maximum(self.blocks - gl.maximum(self.first_visible, 0) // BLOCK_N, 1)


@aggregate
class Rows:
    """What a consumer needs of a record to write its result; fields as in `planner`."""

    q_row: gl.tensor
    q_rows: gl.tensor
    head: gl.tensor

    @gluon.constexpr_function
    def __init__(self, q_row, q_rows, head):
        self.q_row = q_row
        self.q_rows = q_rows
        self.head = head


RECORD_SLOTS = gl.constexpr(2)
"""Records passed on at a time: the one whose result is being written, and the next."""


@aggregate
class WorkQueue:
    """Records from the planner's table, taken by the producer and passed on through shared memory.

    The counter in the table's header is the only thing that CTAs share, so which CTA computes a tile may differ from
    run to run, and its result does not.
    """

    table_ptr: gl.tensor
    records: gl.shared_memory_descriptor  # [RECORD_SLOTS, WORDS]
    ring: Ring

    @gluon.constexpr_function
    def __init__(self, table_ptr, records, ring):
        self.table_ptr = table_ptr
        self.records = records
        self.ring = ring

    @gluon.jit
    def load_first(self):
        """Producer: this CTA's first record. The first ones belong to the CTAs in order; nobody claims them."""
        return self.load_fetch(gl.program_id(0), gl.load(self.table_ptr + RECORD_COUNT))

    @gluon.jit
    def claim(self):
        """Producer: takes the next record that no CTA has.

        There are as many claims as records, one for each that is worked on; the last one sets the counter back, so that
        the table serves again.
        """
        claims = gl.atomic_add(self.table_ptr + NEXT_RECORD, 1)
        count = gl.load(self.table_ptr + RECORD_COUNT)
        if claims == count - 1:
            gl.store(self.table_ptr + NEXT_RECORD, 0)
        return self.load_fetch(gl.minimum(claims + gl.num_programs(0), count), count)

    @gluon.jit
    def load_fetch(self, record, count):
        """Producer: what it needs of a record; a negative head, which means no more work, from the `count`-th on."""
        exists = record < count
        words = self.table_ptr + (record + 1) * WORDS
        lane = gl.arange(0, WORDS, gl.BlockedLayout([1], [32], [1], [0]))
        return Fetch(
            gl.where(exists | (lane != HEAD), gl.load(words + lane), -1),
            gl.load(words + Q_ROW),
            gl.load(words + KV_ROW),
            gl.load(words + BLOCKS),
            gl.where(exists, gl.load(words + HEAD), -1),
        )

    @gluon.jit
    def publish(self, n, fetch):
        """Producer: passes a record on as the n-th."""
        self.ring.wait_empty(n)
        self.records.index(self.ring.slot(n)).store(fetch.words)
        mbarrier.arrive(self.ring.full.index(self.ring.slot(n)), count=1)

    @gluon.jit
    def wait_record(self, n):
        """Consumer: until the n-th record has been passed on; whether it is one."""
        self.ring.wait_full(n)
        return _word(self.load_words(n), HEAD) >= 0

    @gluon.jit
    def load_words(self, n):
        """Consumer: the n-th record passed on, whole in every lane."""
        layout: gl.constexpr = gl.BlockedLayout([WORDS], [32], [gl.num_warps()], [0])
        return self.records.index(self.ring.slot(n)).load(layout)

    @gluon.jit
    def load_keys(self, n):
        """Consumer: which keys the n-th record's tile sees."""
        words = self.load_words(n)
        return Keys(_word(words, BLOCKS), _word(words, LAST_VISIBLE), _word(words, FIRST_VISIBLE))

    @gluon.jit
    def load_rows(self, n):
        """Consumer: where the n-th record's result goes; the record may be overwritten from then on."""
        words = self.load_words(n)
        self.ring.release(n)
        return Rows(_word(words, Q_ROW), _word(words, Q_ROWS), _word(words, HEAD))


@gluon.jit
def _word(words, INDEX: gl.constexpr):
    """One element of a tensor that every lane holds whole."""
    return gl.sum(gl.where(gl.arange(0, WORDS, words.type.layout) == INDEX, words, 0), 0)
