"""The planner's table, made by Triton's interpreter: every tile once, in the order that the module promises."""

import json
import os
import subprocess
import sys

import pytest

from mla_core import Target, triton_support
from mla_prefill import PrefillProblem
from mla_prefill.hopper import schedule
from mla_prefill.hopper.solution import supports
from mla_testing.suites.runners import InterpretedRunner

SCRIPT = """
import json, sys
import torch, triton
import triton.language as tl
from mla_prefill.hopper import planner

@triton.jit
def order(table, cu_q, cu_kv, batch, section, tail, H: tl.constexpr, KV: tl.constexpr,
          CAUSAL: tl.constexpr):
    planner.order_tiles(table, cu_q, cu_kv, batch, section, tail, H, KV, CAUSAL, 128, 128, 4, 16)

for case in json.load(sys.stdin):
    cu_q, cu_kv = (torch.tensor(case[name], dtype=torch.int32) for name in ("cu_q", "cu_kv"))
    batch = len(cu_q) - 1
    table = torch.full(planner.table_shape(int(cu_q[-1]), batch, case["heads"], 128), -77, dtype=torch.int32)
    order[(batch, case["programs"])](
        table, cu_q, cu_kv, batch, case["section"], case["tail"], case["heads"], case["kv_heads"], case["causal"]
    )
    print(json.dumps(table.tolist()))
"""

CASES = {
    "uniform": {"q": [384] * 3, "kv": [384] * 3},
    "ragged": {"q": [300, 0, 129, 1, 640], "kv": [300, 70, 129, 0, 640]},
    "longer_keys": {"q": [130, 64, 257], "kv": [500, 65, 1000]},
    "shorter_keys": {"q": [500, 65, 300], "kv": [130, 64, 0]},
    "full": {"q": [300, 200, 129], "kv": [900, 0, 131], "causal": False},
    "grouped": {"q": [700, 300], "kv": [700, 300], "heads": 12, "kv_heads": 3, "section": 1400},
    "two_tail_blocks": {"q": [1000, 640], "kv": [1000, 640], "tail": 2, "section": 2000, "programs": 3},
}


def starts(lengths):
    return [3 + sum(lengths[:end]) for end in range(len(lengths) + 1)]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    if not InterpretedRunner().solutions("prefill"):
        pytest.skip("nothing can be interpreted with this Triton and NumPy")
    cases = []
    for case in CASES.values():
        settings = {"heads": 4, "kv_heads": 4, "causal": True, "section": 800, "tail": 1, "programs": 1}
        cases.append({**settings, **case, "cu_q": starts(case["q"]), "cu_kv": starts(case["kv"])})
    script = tmp_path_factory.mktemp("planner") / "order.py"
    script.write_text(SCRIPT)  # Triton reads a kernel's source from its file
    done = subprocess.run(
        [sys.executable, str(script)],
        input=json.dumps(cases),
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {
        name: (case, json.loads(line)) for name, case, line in zip(CASES, cases, done.stdout.splitlines(), strict=True)
    }


@pytest.mark.parametrize("name", CASES)
def test_every_tile_once(tables, name):
    case, table = tables[name]
    wanted = []
    for sequence, (queries, keys) in enumerate(zip(case["q"], case["kv"], strict=True)):
        for row in range(0, queries, 128):
            rows = min(128, queries - row)
            first = row + 1 + keys - queries if case["causal"] else keys
            last = max(first + rows - 1, 0) if case["causal"] else keys
            blocks = max(-(-last // 128), 1)
            kv_row = case["cu_kv"][sequence] + (blocks - 1) * 128
            for head in range(case["heads"]):
                wanted.append([case["cu_q"][sequence] + row, rows, kv_row, blocks, last, first, head])
    assert table[0][:2] == [0, len(wanted)]  # nothing is taken yet
    assert sorted(record[:7] for record in table[1 : 1 + len(wanted)]) == sorted(wanted)
    assert all(word == -77 for record in table[1 + len(wanted) :] for word in record)  # nothing else is written


@pytest.mark.parametrize("name", CASES)
def test_long_tiles_by_section_then_short_ones(tables, name):
    case, table = tables[name]
    records = table[1 : 1 + table[0][1]]
    blocks = [record[3] for record in records]
    if not case["causal"]:
        return
    long = sum(count > case["tail"] for count in blocks)
    assert all(count > case["tail"] for count in blocks[:long])
    sections, seen = [], set()
    for row, _, _, count, _, _, head, _ in records[:long]:
        sequence = max(index for index in range(len(case["q"])) if case["cu_q"][index] <= row and case["q"][index])
        budget = max(case["section"] // max(case["kv"][sequence], 1), 1)
        parts = -(-case["kv_heads"] // min(budget, case["kv_heads"]))
        group = case["heads"] // case["kv_heads"]
        section = (sequence, ((head // group + 1) * parts - 1) // case["kv_heads"])
        if not sections or sections[-1][0] != section:
            assert section not in seen  # a section's tiles stand together
            seen.add(section)
            sections.append((section, count))
        assert count <= sections[-1][1]  # longest first
        sections[-1] = (section, count)
    keys = [case["kv"][sequence] for (sequence, _), _ in sections]
    assert keys == sorted(keys, reverse=True)


def test_tail_is_bounded_by_the_longest_tile():
    target = Target.named("sm_90")
    assert schedule.tail_blocks(PrefillProblem.make(batch=1, seqlen=1024, heads=128), target, 128) == 2
    assert schedule.tail_blocks(PrefillProblem.make(batch=1, seqlen=200, heads=1), target, 128) == 0
    assert schedule.tail_blocks(PrefillProblem.make(batch=1, seqlen=4096, heads=128, is_causal=False), target, 128) == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"aligned": False}, "multiples of 16 bytes"),
        ({"q_strides": (128 * 192 + 4, 192)}, "q's token stride is 24580"),
        ({"k_strides": (128 * 192, 196)}, "k's head stride is 196"),
        ({"v_strides": (0, 128)}, "v's is 0"),
        ({"total_kv": 0}, "total_kv is 0"),
        ({"k_strides": (192, 2**30)}, "span more than"),
    ],
)
def test_refusals_name_the_reason(change, reason):
    import attrs

    problem = attrs.evolve(PrefillProblem.make(batch=1, seqlen=512, heads=128), **change)
    verdict = supports(problem, Target.named("sm_90"))
    assert not verdict
    if not triton_support.missing():
        assert reason in verdict.reason


def test_other_targets_are_refused():
    problem = PrefillProblem.make(batch=1, seqlen=512, heads=16)
    assert "gfx950" in supports(problem, Target.named("gfx950")).reason
