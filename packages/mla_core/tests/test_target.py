"""Targets: their figures, their sources, detection and override."""

import attrs
import pytest
import torch

from mla_core import ArgumentError, Target
from mla_core.target import active_override, interpreting, override


def test_every_named_gpu_states_the_source_of_its_figures():
    for name in ("gfx950", "sm_90"):
        target = Target.named(name)
        assert target.arch == name
        figures = {
            field.name
            for field in attrs.fields(Target)
            if field.name not in ("arch", "backend", "sources") and getattr(target, field.name) != field.default
        }
        assert figures <= set(target.sources), f"{name} has figures without a source"


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ArgumentError, match=r"target is 'gfx9999'; allowed: one of .*gfx950.*sm_90") as caught:
        Target.named("gfx9999")
    assert caught.value.argument == "target"


def test_names_are_those_that_named_accepts():
    assert {"gfx950", "sm_90", "generic", "cpu"} <= set(Target.names())
    for name in Target.names():
        assert Target.named(name).is_gpu == (name != "cpu")


def test_targets_are_values():
    assert Target.named("sm_90") == Target.named("sm_90")
    assert hash(Target.named("sm_90")) == hash(Target.named("sm_90"))
    assert Target.named("sm_90") != Target.named("gfx950")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Target.named("sm_90").warp_size = 64


def test_cpu_tensors_run_on_the_cpu_target():
    assert Target.current(torch.empty(1).device) == Target.named("cpu")


def test_override_serves_cpu_tensors_and_ends_with_its_block():
    gfx950 = Target.named("gfx950")
    assert active_override() is None
    with override(gfx950):
        assert Target.current("cpu") is gfx950
        assert Target.current(torch.device("cpu")) is gfx950
        with override(None):
            assert Target.current("cpu").arch == "cpu"
        assert active_override() is gfx950
    assert Target.current("cpu").arch == "cpu"


def test_override_ends_on_an_error():
    with pytest.raises(RuntimeError), override(Target.named("gfx950")):
        raise RuntimeError
    assert active_override() is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_current_reads_the_gpu():
    properties = torch.cuda.get_device_properties(0)
    target = Target.current("cuda:0")
    assert target.is_gpu and target.compute_units == properties.multi_processor_count
    with override(Target.named("gfx950")):
        assert Target.current("cuda:0") == target, "an override is for CPU tensors only"


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("true", True), ("0", False), ("", False), (None, False)])
def test_interpreting_reads_the_environment(monkeypatch, value, expected):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    if value is not None:
        monkeypatch.setenv("TRITON_INTERPRET", value)
    assert interpreting() is expected


def test_triton_target_names_the_architecture():
    pytest.importorskip("triton")
    hip, cuda = Target.named("gfx950").triton_target(), Target.named("sm_90").triton_target()
    assert (hip.backend, hip.arch, hip.warp_size) == ("hip", "gfx950", 64)
    assert (cuda.backend, cuda.arch, cuda.warp_size) == ("cuda", 90, 32)
    for name in ("cpu", "generic"):
        with pytest.raises(ArgumentError, match="target is"):
            Target.named(name).triton_target()
