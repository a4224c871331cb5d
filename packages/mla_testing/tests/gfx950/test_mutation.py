"""A representative part of the mutation self-test; `python -m mla_testing.gfx950.mutation` runs all of it."""

import pytest

from mla_testing.gfx950 import mutation

SUBJECTS = {subject.name: subject for subject in mutation.subjects()}
KINDS = {"dropped wait", "weakened wait", "dropped barrier", "LDS offset", "mask off by one", "swapped buffer"}


@pytest.mark.parametrize("name", SUBJECTS)
def test_mutants_are_caught(name):
    outcomes = mutation.examine(SUBJECTS[name], sample=24)
    missed = [o for o in outcomes if not o.caught]
    assert mutation.acceptable(outcomes), mutation.report(outcomes)
    assert len(missed) <= 0.2 * len(outcomes), mutation.report(outcomes)
    assert all(o.source != "?" for o in outcomes)


def test_every_kind_of_mutant_exists():
    subject = SUBJECTS["attention 16x16"]
    with mutation.emulate("gfx950") as session:
        subject.run()
        record = session.launches[-1]
    assert {m.kind for m in mutation.mutants(record.asm, record.name)} == KINDS


def test_checks_are_what_catches_them():
    """Without the checks most dropped waits go unnoticed: running in program order hides them."""
    subject = SUBJECTS["attention 16x16"]
    with mutation.emulate("gfx950", checks="none") as session:
        expected = subject.run()
        record = session.launches[-1]
        waits = [m for m in mutation.mutants(record.asm, record.name) if m.kind == "dropped wait"]
        unnoticed = 0
        for mutant in waits:
            session.rewrite = mutant.apply
            unnoticed += not mutation._differs(subject.run(), expected)
    assert unnoticed > len(waits) / 2
