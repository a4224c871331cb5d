"""What `mla compile --out` writes is enough to launch a kernel: files in, right result out, nothing of Triton in between.

The kernel is the merge of the portable decode; its arguments are taken from the manifest in the manifest's order.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch

from mla_core import triton_support
from mla_core.target import Target
from mla_testing.aot import catalog, compile_all

pytestmark = pytest.mark.skipif(bool(triton_support.missing()), reason=triton_support.missing())

SPLITS = 3


@attrs.frozen(kw_only=True)
class Loaded:
    """A kernel's manifest and the files it names, and inputs to launch it with."""

    manifest: dict[str, Any]
    folder: Path
    tensors: dict[str, torch.Tensor]

    @property
    def grid(self) -> tuple[int, int]:
        constants = self.manifest["constants"]
        return constants["rows"], constants["columns"] // constants["column_tile"]

    def file(self, ending: str) -> Path:
        return self.folder / next(name for name in self.manifest["files"] if name.endswith(ending))

    def values(self) -> list[int]:
        """Arguments in the manifest's order: addresses, numbers, and null for the trailing scratch pointers."""
        numbers = {"num_splits": SPLITS}
        listed = []
        for argument in self.manifest["arguments"]:
            name = argument["name"]
            if argument["type"].startswith("*"):
                assert self.tensors[name].data_ptr() % argument["multiple_of"] == 0
                listed.append(self.tensors[name].data_ptr())
            else:
                listed.append(numbers[name])
        return listed + [0] * len(self.manifest["trailing_arguments"])

    def check(self) -> None:
        """out is the mean of the partial results weighted by exp(lse)."""
        partial, lse = self.tensors["partial_out_ptr"].double(), self.tensors["partial_lse_ptr"].double()
        weights = torch.softmax(lse, 0)
        expected = (weights[..., None] * partial).sum(0)
        assert torch.allclose(self.tensors["out_ptr"].double(), expected, rtol=2**-8, atol=2**-8)
        assert torch.allclose(self.tensors["lse_ptr"].double(), torch.logsumexp(lse, 0), atol=1e-5)


def load(arch: str, folder: Path, device: str) -> Loaded:
    """Compiles the kernel, forgets everything but the files, and makes inputs for one request."""
    entries = catalog(Target.named(arch), ["decode"], ["triton"]).entries
    (row,) = compile_all([next(entry for entry in entries if "merge" in entry.kernel)], out=folder)
    assert row.ok, row
    manifest = json.loads((folder / next(name for name in row.files if name.endswith(".json"))).read_text())
    rows, columns = manifest["constants"]["rows"], manifest["constants"]["columns"]
    generator = torch.Generator(device).manual_seed(1)
    types = {argument["name"]: argument["type"] for argument in manifest["arguments"]}
    dtype = {"*bf16": torch.bfloat16, "*fp16": torch.float16}[types["out_ptr"]]
    tensors = {
        "partial_out_ptr": torch.randn((SPLITS, rows, columns), generator=generator, device=device),
        "partial_lse_ptr": torch.randn((SPLITS, rows), generator=generator, device=device),
        "out_ptr": torch.full((rows, columns), float("nan"), dtype=dtype, device=device),
        "lse_ptr": torch.full((rows,), float("nan"), device=device),
    }
    if "lse_ptr" not in types:
        tensors["lse_ptr"] = torch.logsumexp(tensors["partial_lse_ptr"], 0)
    return Loaded(manifest=manifest, folder=folder, tensors=tensors)


def test_gfx950_files_run_in_the_emulator(tmp_path: Path) -> None:
    from mla_testing.gfx950.checks import Checks
    from mla_testing.gfx950.kernel import Kernel
    from mla_testing.gfx950.launch import execute
    from mla_testing.gfx950.memory import Memory
    from mla_testing.gfx950.session import Session

    loaded = load("gfx950", tmp_path, "cpu")
    session, memory = Session(Checks.of("all"), False), Memory()
    for name, tensor in loaded.tensors.items():
        memory.add(session.region(name, tensor))
    launch = loaded.manifest["launch"]
    kernel = Kernel.load(loaded.file(".s").read_text(), loaded.manifest["entry_point"])
    execute(
        kernel, (*loaded.grid, 1), launch["num_warps"], loaded.values(), memory, launch["shared_bytes"], session.checks
    )  # fmt: skip
    loaded.check()


@pytest.mark.skipif(
    not torch.cuda.is_available() or bool(torch.version.hip) or Target.current("cuda").arch != "sm_90",
    reason="needs a Hopper GPU",
)
def test_sm_90_files_run_by_the_driver(tmp_path: Path) -> None:
    loaded = load("sm_90", tmp_path, "cuda")
    driver = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuModuleLoadData(ctypes.byref(module), loaded.file(".cubin").read_bytes()) == 0
    entry = loaded.manifest["entry_point"].encode()
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, entry) == 0
    kinds = [ctypes.c_void_p if argument["type"].startswith("*") else ctypes.c_int32
             for argument in loaded.manifest["arguments"]]  # fmt: skip
    kinds += [ctypes.c_void_p] * len(loaded.manifest["trailing_arguments"])
    held = [kind(value) for kind, value in zip(kinds, loaded.values(), strict=True)]
    addresses = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
    launch = loaded.manifest["launch"]
    status = driver.cuLaunchKernel(
        function, *loaded.grid, 1, launch["threads"], 1, 1, launch["shared_bytes"], None, addresses, None
    )
    assert status == 0
    torch.cuda.synchronize()
    loaded.check()
