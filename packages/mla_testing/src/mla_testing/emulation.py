"""``with emulate("gfx950"):`` makes a GPU that is not there the active Triton target."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Literal

import attrs

from mla_core.errors import ArgumentError
from mla_core.target import Target, override
from mla_testing.gfx950 import Checks, Session

EMULATED = ("gfx950",)
ORDERS = ("forward", "reverse")


@contextlib.contextmanager
def emulate(
    arch: str = "gfx950",
    *,
    wave_order: Literal["forward", "reverse"] = "forward",
    checks: Checks | Iterable[str] | str | None = "all",
    compute_units: int | None = None,
) -> Iterator[Session]:
    """Compile Triton and Gluon kernels for ``arch`` and run them on CPU tensors, instruction by instruction.

    Args:
        arch: ``"gfx950"``.
        wave_order: order of workgroups, and of the waves within them, wherever the hardware leaves one open (the
            winner of conflicting stores, the order of atomics, which batch of workgroups is resident first).
        checks: ``"all"``, ``"none"``, or names among strict, race, poison, bounds, global_race.
        compute_units: overrides the target's number of compute units, so that persistent grids stay small.

    Yields the :class:`~mla_testing.gfx950.Session`; its ``launches`` lists what ran.

    Raises:
        ArgumentError: an argument has a value that is not allowed.
        mla_testing.gfx950.EmulationError: a kernel violates a check, or uses an instruction the emulator lacks.
    """
    from triton.runtime.driver import driver

    from mla_testing.gfx950.driver import EmulatedDriver

    if arch not in EMULATED:
        raise ArgumentError("arch", repr(arch), "one of " + ", ".join(EMULATED))
    if wave_order not in ORDERS:
        raise ArgumentError("wave_order", repr(wave_order), "one of " + ", ".join(ORDERS))
    if compute_units is not None and compute_units < 1:
        raise ArgumentError("compute_units", repr(compute_units), "a positive number")
    try:
        chosen = Checks.of(checks)
    except ValueError as error:
        raise ArgumentError("checks", repr(checks), str(error)) from None
    target = Target.named(arch)
    if compute_units is not None:
        target = attrs.evolve(target, compute_units=compute_units)
    session = Session(chosen, wave_order == "reverse")
    emulated = EmulatedDriver(target, session)
    previous = driver._active  # reading `driver.active` would look for a GPU
    emulated.install()
    driver.set_active(emulated)
    try:
        with override(target):
            yield session
    finally:
        driver.set_active(previous)
        emulated.uninstall()
