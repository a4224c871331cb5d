"""Compiling ahead of time: each binary once, faults as rows, manifests that agree with the binaries."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import attrs
import pytest

from mla_core.compile import compile_kernel
from mla_core.target import Target
from mla_testing.aot import CatalogEntry, CompiledRow, catalog, compile_all, limits, row
from mla_testing.aot.catalog import binary_identity
from mla_testing.aot.manifest import TRAILING_ARGUMENTS, manifest

GFX950 = Target.named("gfx950")


def merge_entry() -> CatalogEntry:
    """A small kernel: the merge of the portable decode."""
    return next(entry for entry in catalog(GFX950, ["decode"]).entries if "merge" in entry.kernel)


@pytest.mark.parametrize("target", ["gfx950", "sm_90"])
def test_catalog_names_and_binaries_are_unique(target: str) -> None:
    entries = catalog(Target.named(target)).entries
    assert entries
    assert len({entry.name for entry in entries}) == len(entries)
    assert len({binary_identity(entry.spec()) for entry in entries}) == len(entries)
    assert all(re.fullmatch(r"[\w.-]+", entry.name) for entry in entries)


def test_solution_without_kernels_is_named() -> None:
    left_out = catalog(GFX950, ["decode"], ["torch"]).left_out
    assert left_out == (("decode torch", "has no kernel for gfx950"),)


def test_manifest_lists_the_arguments_of_the_binary() -> None:
    """The kernel descriptor in the assembly counts explicit arguments independently of what the manifest says."""
    entry = merge_entry()
    spec = entry.spec()
    report = compile_kernel(spec, GFX950)
    listed = manifest(entry, spec, report, CompiledRow(entry=entry))
    metadata = report.assembly.split("amdhsa.kernels:")[1].split(".group_segment_fixed_size")[0]
    kinds = [kind for kind in re.findall(r"\.value_kind: +(\w+)", metadata) if not kind.startswith("hidden")]
    declared = ["global_buffer" if argument["type"].startswith("*") else "by_value" for argument in listed["arguments"]]
    assert kinds == declared + ["global_buffer"] * len(TRAILING_ARGUMENTS)
    assert listed["launch"]["threads"] == int(re.search(r"\.max_flat_workgroup_size: +(\d+)", report.assembly)[1])


def test_compile_error_becomes_a_failed_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_entry: CatalogEntry) -> None:
        raise KeyError("block_n")

    monkeypatch.setattr(CatalogEntry, "spec", broken)
    (failed,) = compile_all([merge_entry_unspecified()], jobs=1)
    assert not failed.ok
    assert failed.error == "KeyError: 'block_n'"


def merge_entry_unspecified() -> CatalogEntry:
    """An entry that need not exist."""
    return CatalogEntry(operation="decode", solution="triton", sample="any", kernel="any", target="gfx950")


def test_spill_breaks_a_limit(tmp_path: Path) -> None:
    entry = merge_entry()
    report = compile_kernel(entry.spec(), GFX950)
    assert row.row_of(entry, report).ok
    spilled = row.row_of(entry, attrs.evolve(report, spills=3))
    assert not spilled.ok
    assert spilled.broken == ("3 spilled registers or bytes",)
    assert not row.row_of(entry, attrs.evolve(report, shared_bytes=GFX950.shared_bytes + 1)).ok


def test_processes_compile_as_this_one_does(tmp_path: Path) -> None:
    entries = [entry for entry in catalog(GFX950, ["decode"]).entries if "merge" in entry.kernel][:2]
    assert len(entries) == 2
    here = {found.entry: found.registers for found in compile_all(entries, jobs=1)}
    there = {found.entry: found.registers for found in compile_all(entries, jobs=2, out=tmp_path)}
    assert here == there
    assert len(list(tmp_path.iterdir())) == 6


def test_ceiling_of_the_loop_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = next(entry for entry in catalog(GFX950, ["prefill"], ["triton"]).entries)
    report = compile_kernel(entry.spec(), GFX950)
    assert row.row_of(entry, report).loop_total > 100
    tight = {"target": "gfx950", "kernel": "prefill-triton-*", "loop_per_matrix": 1.5, "loop": 100, "registers": 512}
    monkeypatch.setattr(limits, "all_limits", lambda: (tight, {**tight, "target": "sm_90", "registers": 1}))
    broken = row.row_of(entry, report).broken
    assert len(broken) == 2
    assert any(line.startswith("loop_per_matrix") for line in broken)


def test_limits_file_names_kernels_that_exist() -> None:
    listed = limits.all_limits()
    names = {target: [entry.name for entry in catalog(Target.named(target)).entries] for target in ("gfx950", "sm_90")}
    for entry in listed:
        assert fnmatch.filter(names[entry["target"]], entry["kernel"]), entry
