"""Which Triton is installed, and what is said where it is not enough."""

import sys

import pytest

from mla_core import TritonUnavailableError, triton_support


@pytest.fixture
def fresh():
    triton_support.version.cache_clear()
    yield
    triton_support.version.cache_clear()


def test_none_installed(monkeypatch, fresh):
    monkeypatch.setattr(triton_support.importlib.util, "find_spec", lambda name: None)
    assert triton_support.version() is None
    assert (
        triton_support.missing() == "needs Triton 3.6 or newer, and none is installed (pip install 'mla-core[triton]')"
    )
    with pytest.raises(TritonUnavailableError, match="none is installed"):
        triton_support.require()


@pytest.mark.parametrize(("version", "found"), [("3.6.0", (3, 6)), ("3.9.0+git1234", (3, 9)), ("3.10.1", (3, 10))])
def test_version_is_that_of_the_module(monkeypatch, fresh, version, found):
    pytest.importorskip("triton")
    monkeypatch.setattr(sys.modules["triton"], "__version__", version)
    assert triton_support.version() == found
    assert triton_support.missing() == ""


def test_too_old(monkeypatch):
    monkeypatch.setattr(triton_support, "version", lambda: (3, 5))
    assert triton_support.missing() == "needs Triton 3.6 or newer, and 3.5 is installed"
    monkeypatch.setattr(triton_support, "version", lambda: (3, 8))
    assert triton_support.missing((3, 9)) == "needs Triton 3.9 or newer, and 3.8 is installed"
    assert triton_support.missing((3, 8)) == ""


def test_importing_the_packages_does_not_import_triton():
    import subprocess

    check = "import sys, mla_core, mla_decode, mla_prefill; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
