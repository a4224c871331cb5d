"""Every task of the repository. `nox -l` lists them; `nox -s demo` and `nox -s tests` are where to start.

All sessions share one environment, made on first use under `.nox/` and made again only when what it holds changes.
`MLA_PYTHON=/path/to/python nox -s ...` uses that interpreter as it is instead (a ROCm build of torch, say), and
installs nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PACKAGES = ("mla_core", "mla_decode", "mla_prefill", "mla_testing")

TORCH = "torch==2.13.0"
TRITON = "triton==3.9.0"  # newer than the one that torch 2.13 pins, so it is installed behind torch's back
OLD_TRITON = "triton==3.6.0"  # what torch 2.11 brings: the oldest one supported
DEVELOPMENT = ("pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100", "ruff==0.14.6", "mypy==1.18.2", "rich>=13")
DOCS = ("mkdocs-material>=9.5",)

nox.options.sessions = ["tests"]
nox.options.default_venv_backend = "none"


def environment() -> dict[str, str]:
    """Variables that every session runs with: what a default of Triton's may change, and where the packages lie."""
    path = os.pathsep.join(str(ROOT / "packages" / package / "src") for package in PACKAGES)
    return {
        "TRITON_DEFAULT_FP_FUSION": "1",
        "PYTHONPATH": os.pathsep.join(part for part in (path, os.environ.get("PYTHONPATH", "")) if part),
    }


def python(session: nox.Session, *extra: str) -> str:
    """The interpreter of the shared environment, made first where it is missing or out of date.

    `extra` are packages that a session needs beside the common ones. MLA_PYTHON overrides everything.
    """
    given = os.environ.get("MLA_PYTHON")
    if given:
        return given
    if sys.version_info < (3, 11):  # noqa: UP036  (nox may run on an older one)
        session.error(f"Python 3.11 or newer is needed, and nox runs on {sys.version.split()[0]}")
    home = ROOT / ".nox" / "dev"
    interpreter = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not _is_current(home, "base", sys.version, TORCH, TRITON, *DEVELOPMENT, _dependencies()):
        session.run(sys.executable, "-m", "venv", "--clear", str(home), external=True)
        _install(session, interpreter, TORCH)
        _install(session, interpreter, *DEVELOPMENT, *_requirements())
        if sys.platform == "linux":  # elsewhere Triton has no build, and the torch solution serves
            _install(session, interpreter, "--no-deps", TRITON)
        _mark(home, "base", sys.version, TORCH, TRITON, *DEVELOPMENT, _dependencies())
    if extra and not _is_current(home, extra[0], *extra):
        _install(session, interpreter, *extra)
        _mark(home, extra[0], *extra)
    return str(interpreter)


def run(session: nox.Session, interpreter: str, *arguments: str, env: dict[str, str] | None = None) -> None:
    """Runs the environment's Python with the packages importable."""
    session.run(interpreter, *arguments, env={**environment(), **(env or {})}, external=True)


@nox.session
def demo(session: nox.Session) -> None:
    """A decode step and a prefill of a DeepSeek-V3-shaped layer on what this machine has, with errors and times."""
    run(session, python(session), "-m", "mla_testing.demo", *session.posargs)


@nox.session
@nox.parametrize("package", PACKAGES, ids=PACKAGES)
def tests(session: nox.Session, package: str) -> None:
    """Tests of all packages, or of one: nox -s "tests(mla_core)". Further arguments go to pytest."""
    arguments = session.posargs or ["-n", str(min(os.cpu_count() or 1, 8))]
    run(session, python(session), "-m", "pytest", f"packages/{package}/tests", *arguments)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types."""
    interpreter = python(session)
    run(session, interpreter, "-m", "ruff", "check", ".")
    run(session, interpreter, "-m", "ruff", "format", "--check", ".")
    run(session, interpreter, "-m", "mypy")


@nox.session
def compile(session: nox.Session) -> None:
    """Compiles every kernel for gfx950 and sm_90 with the newest Triton, sm_90 with the oldest too; needs no GPU."""
    interpreter = python(session)
    run(session, interpreter, "-m", "mla_testing.cli", "compile", "--target", "all", *session.posargs)
    if os.environ.get("MLA_PYTHON"):
        return
    old = ROOT / ".nox" / "old-triton"
    if not _is_current(old, "triton", sys.version, OLD_TRITON):
        _install(session, Path(interpreter), "--no-deps", "--target", str(old), "--upgrade", OLD_TRITON)
        _mark(old, "triton", sys.version, OLD_TRITON)
    path = os.pathsep.join((str(old), environment()["PYTHONPATH"]))
    run(
        session, interpreter, "-m", "mla_testing.cli", "compile", "--target", "sm_90", *session.posargs,
        env={"PYTHONPATH": path},
    )  # fmt: skip


@nox.session
def bench(session: nox.Session) -> None:
    """Benchmarks of both operations on this machine's GPU; arguments as of `mla bench`."""
    run(session, python(session), "-m", "mla_testing.cli", "bench", *(session.posargs or ["decode"]))


@nox.session
def mutation(session: nox.Session) -> None:
    """Damages compiled gfx950 kernels, one instruction at a time, and counts what the emulator's checks notice."""
    run(session, python(session), "-m", "mla_testing.gfx950.mutation", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Builds the documentation into site/; a broken link fails."""
    run(session, python(session, *DOCS), "-m", "mkdocs", "build", "--strict", *session.posargs)


def _requirements() -> list[str]:
    """What the packages require of others, read from their pyproject files."""
    import tomllib

    names: set[str] = set()
    for package in PACKAGES:
        project = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]
        names.update(project["dependencies"])
    return sorted(name for name in names if not name.startswith(("mla-", "torch")))


def _dependencies() -> str:
    return " ".join(_requirements())


def _install(session: nox.Session, interpreter: Path, *arguments: str) -> None:
    session.run(
        str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments, external=True
    )


def _fingerprint(*contents: str) -> str:
    return hashlib.sha256("\n".join(contents).encode()).hexdigest()


def _is_current(home: Path, part: str, *contents: str) -> bool:
    mark = home / f".installed-{part}"
    return mark.exists() and mark.read_text() == _fingerprint(*contents)


def _mark(home: Path, part: str, *contents: str) -> None:
    (home / f".installed-{part}").write_text(_fingerprint(*contents))
