"""Compiling a kernel for a named target on any machine, without a driver, and reading what it costs.

spec = program.kernels()[0]
report = compile_kernel(spec, Target.named("gfx950"))
report.registers, report.spills, report.shared_bytes, report.warnings
"""

from __future__ import annotations

import inspect
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from mla_core import triton_support
from mla_core.errors import CompileError
from mla_core.problem import COPY_BYTES
from mla_core.target import Target


@attrs.frozen(kw_only=True)
class KernelSpec:
    """One kernel of a Program, as much of it as a compiler needs.

    Attributes:
        name: unique among the kernels of the Program, for tables and file names.
        fn: the `@triton.jit` or `@gluon.jit` function.
        signature: Triton type of every run-time argument by name, such as `*bf16`, `i32`, `fp32`.
        constexprs: value of every constexpr argument by name.
        divisible: run-time arguments that are multiples of 16 (pointers: bytes), which wide copies need.
        num_warps: warps of a workgroup.
        options: further options of the back end.
    """

    name: str
    fn: Any
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any] = attrs.field(factory=dict)
    divisible: tuple[str, ...] = ()
    num_warps: int = 4
    options: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class CompiledReport:
    """What a compiled kernel costs.

    Attributes:
        name, target: what was compiled, for which architecture.
        registers: vector registers of a lane (gfx950: VGPRs and AccVGPRs of the unified file).
        scalar_registers: SGPRs of a wave (gfx950 only).
        spills: vector registers (gfx950) or bytes (sm_90) spilled to memory.
        scalar_spills: SGPRs spilled to vector registers (gfx950 only).
        shared_bytes: LDS or shared memory of a workgroup.
        occupancy: waves of a SIMD that the registers allow (gfx950), workgroups of an SM that registers, shared
            memory and warps allow (sm_90).
        num_warps: warps of a workgroup, with those of specialised partitions.
        seconds: wall time of the compilation; a cache hit counts as such.
        warnings: what the assembler warned of, such as serialised matrix instructions.
        asm: every stage's text or binary by its Triton name.
        entry: name of the kernel in the binary.
    """

    name: str
    target: str
    registers: int
    scalar_registers: int
    spills: int
    scalar_spills: int
    shared_bytes: int
    occupancy: int
    num_warps: int
    seconds: float
    warnings: tuple[str, ...]
    asm: Mapping[str, Any] = attrs.field(repr=False)
    entry: str

    @property
    def assembly(self) -> str:
        """Machine assembly: amdgcn text for gfx950, PTX for sm_90."""
        return self.asm["amdgcn"] if "amdgcn" in self.asm else self.asm["ptx"]

    @property
    def binary(self) -> bytes:
        """The loadable image: hsaco or cubin."""
        return self.asm["hsaco"] if "hsaco" in self.asm else self.asm["cubin"]

    def broken_limits(self, target: Target, spills: float = 0) -> list[str]:
        """What makes this kernel unfit to ship: spills, serialised matrix instructions, too much shared memory.

        `spills`: how many registers or bytes it may spill, where an exception has been made for it.
        """
        broken = []
        if self.spills > spills:
            broken.append(f"{self.spills} spilled registers or bytes")
        if self.scalar_spills:
            broken.append(f"{self.scalar_spills} spilled scalar registers")
        if self.shared_bytes > target.shared_bytes:
            broken.append(f"{self.shared_bytes} bytes of shared memory, and {target.arch} has {target.shared_bytes}")
        broken += [warning for warning in self.warnings if SERIALISED.search(warning)]
        return broken


SERIALISED = re.compile(r"C75\d\d|wgmma.*serializ", re.IGNORECASE)
"""ptxas messages that say that asynchronous matrix instructions run one after another."""


def compile_kernel(spec: KernelSpec, target: Target) -> CompiledReport:
    """Compiles `spec` for `target` and reads its resources.

    Raises:
        TritonUnavailableError: no usable Triton.
        CompileError: Triton or the assembler refused, with their message.
    """
    triton_support.require()
    import triton
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

    names = list(spec.fn.arg_names)
    undescribed = [name for name in names if name not in spec.signature and name not in spec.constexprs]
    if undescribed:
        raise CompileError(f"{spec.name}: arguments without a type or a value: {', '.join(undescribed)}")
    source_type = GluonASTSource if isinstance(spec.fn, GluonJITFunction) else ASTSource
    source = source_type(
        spec.fn,
        {name: "constexpr" if name in spec.constexprs else spec.signature[name] for name in names},
        constexprs={(names.index(name),): value for name, value in spec.constexprs.items()},
        attrs={(names.index(name),): [["tt.divisibility", COPY_BYTES]] for name in spec.divisible},
    )
    start = time.perf_counter()
    try:
        compiled = triton.compile(
            source, target=target.triton_target(), options={"num_warps": spec.num_warps, **spec.options}
        )
    except Exception as error:  # Triton raises many types, RuntimeError and its own among them
        raise CompileError(f"{spec.name} does not compile for {target.arch}: {error}") from error
    seconds = time.perf_counter() - start
    read = _read_amdgcn if target.backend == "hip" else _read_cubin
    return read(spec, target, compiled, seconds)


def _read_amdgcn(spec: KernelSpec, target: Target, compiled: Any, seconds: float) -> CompiledReport:
    asm = compiled.asm["amdgcn"]

    def number(pattern: str) -> int:
        found = re.search(pattern, asm)
        return int(found[1]) if found else 0

    return CompiledReport(
        name=spec.name,
        target=target.arch,
        registers=number(r"; TotalNumVgprs: +(\d+)") or number(r"; NumVgprs: +(\d+)"),
        scalar_registers=number(r"; (?:TotalNumSgprs|NumSgprs): +(\d+)"),
        spills=number(r"\.vgpr_spill_count: +(\d+)"),
        scalar_spills=number(r"\.sgpr_spill_count: +(\d+)"),
        shared_bytes=compiled.metadata.shared,
        occupancy=number(r"; Occupancy: +(\d+)"),
        num_warps=compiled.metadata.num_warps,
        seconds=seconds,
        warnings=(),
        asm=dict(compiled.asm),
        entry=compiled.metadata.name,
    )


REGISTERS_PER_SM = 65536
"""32-bit registers of an SM of compute capability 7.0 to 9.0 (CUDA C++ Programming Guide, technical specifications)."""

WARPS_PER_SM = 64
"""Resident warps of an SM of compute capability 9.0 (same source)."""


def _read_cubin(spec: KernelSpec, target: Target, compiled: Any, seconds: float) -> CompiledReport:
    messages = _assemble_verbosely(compiled.asm["ptx"], target)

    def number(pattern: str) -> int:
        return sum(int(found) for found in re.findall(pattern, messages))

    registers, shared = number(r"Used (\d+) registers"), compiled.metadata.shared
    # A kernel with specialised partitions launches more warps than num_warps; its PTX states the thread count.
    threads = re.search(r"\.(?:reqntid|maxntid) +(\d+)", compiled.asm["ptx"])
    warps = int(threads[1]) // target.warp_size if threads else compiled.metadata.num_warps
    limits = [WARPS_PER_SM // warps, REGISTERS_PER_SM // (max(registers, 1) * warps * target.warp_size)]
    if shared:
        limits.append(target.shared_bytes // shared)
    return CompiledReport(
        name=spec.name,
        target=target.arch,
        registers=registers,
        scalar_registers=0,
        spills=number(r"(\d+) bytes spill stores"),
        scalar_spills=0,
        shared_bytes=shared,
        occupancy=min(limits),
        num_warps=warps,
        seconds=seconds,
        warnings=tuple(line.strip() for line in messages.splitlines() if re.search(r"warning|C75\d\d", line, re.I)),
        asm=dict(compiled.asm),
        entry=compiled.metadata.name,
    )


def nvidia_tool(name: str) -> Path:
    """A binary that Triton ships for NVIDIA GPUs (`ptxas`, `nvdisasm`, `cuobjdump`). Raises CompileError without it."""
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    if not path.exists():
        raise CompileError(f"this Triton ships no {name}")
    return path


def _assemble_verbosely(ptx: str, target: Target) -> str:
    """ptxas' report on a PTX text; `a` names the variant with the architecture's own instructions, as Triton does."""
    from triton.backends.nvidia import compiler

    gpu = f"{target.arch}a" if target.arch == "sm_90" else target.arch
    allocation = "--regAllocOptLevel=2"  # what later releases call it with
    options = [allocation] if allocation in inspect.getsource(compiler) else []
    ptxas = compiler.get_ptxas(int(target.arch[3:])).path  # some releases ship two, and choose by architecture
    done = subprocess.run(
        [ptxas, "-v", *options, f"--gpu-name={gpu}", "-", "-o", "/dev/null"],
        input=ptx, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise CompileError(f"ptxas: {done.stderr.strip()[-2000:]}")
    return done.stdout + done.stderr
