"""How fast the emulator is: wave instructions per second on the attention kernel of demo_kernels.py.

python -m mla_testing.gfx950.benchmark
"""

import time

import torch

from mla_testing.emulation import emulate
from mla_testing.gfx950 import demo_kernels
from mla_testing.quiet_exit import silence_leak_report

KEYS, DIM, BLOCK_M, NUM_WARPS = 1000, 64, 64, 4
REPEATS = 3


def rate(workgroups: int, checks: str) -> float:
    """Million wave instructions per second of CPU time, the best of three; compilation and decoding excluded."""
    generator = torch.Generator().manual_seed(0)
    rows = workgroups * BLOCK_M
    q, k, v = (torch.randn(n, DIM, generator=generator).bfloat16() for n in (rows, KEYS, KEYS))
    out, lse = torch.empty_like(q), torch.empty(rows)
    meta = {"BLOCK_M": BLOCK_M, "BLOCK_N": 64, "DIM": DIM, "NUM_WARPS": NUM_WARPS, "MFMA": 16}
    best = 0.0
    with emulate("gfx950", checks=checks) as session:
        for _ in range(1 + REPEATS):
            started = time.process_time()
            demo_kernels.attention[(workgroups,)](q, k, v, out, lse, KEYS, 0.18, **meta, num_warps=NUM_WARPS)
            seconds = time.process_time() - started
            if len(session.launches) > 1:  # the first launch compiles
                best = max(best, session.launches[-1].execution.total / seconds)
    return best / 1e6


def main() -> None:
    """Print a table."""
    silence_leak_report()
    print(f"{'workgroups':>10} {'waves':>6} {'all checks':>11} {'no checks':>10}   million wave instructions / s")
    for workgroups in (1, 4, 16, 32, 64):
        waves = workgroups * NUM_WARPS
        print(f"{workgroups:10} {waves:6} {rate(workgroups, 'all'):11.2f} {rate(workgroups, 'none'):10.2f}")


if __name__ == "__main__":
    main()
