"""The compilers of GPUs, which need no GPU: NVRTC and nvdisasm for NVIDIA, clang with hipRTC's own header for AMD."""

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import pytest

HIPRTC_HEADER = Path(__file__).parent.parent / "build" / "hiprtc_runtime.h"

# What CuPy gives NVRTC, but for its -I: no header is included.
CUPY_OPTIONS = ("--std=c++17", "-ftz=true", "--device-as-default-execution-space")

# What CuPy gives hipRTC, and what makes clang take hipRTC's header for its own.
HIP_OPTIONS = (
    *("-x", "hip", "--std=c++17", "-O3", "-fcuda-flush-denormals-to-zero", "--cuda-device-only"),
    *("-nogpuinc", "-nogpulib", "-nostdinc", "-D__HIPCC_RTC__", "-S"),
)

# ROCm's device library has these; without it they would be calls, and the registers those of a call.
HIP_DEVICE_LIBRARY = """\
#define GIVES(name, value) \\
  extern "C" __attribute__((device)) inline size_t __ockl_get_##name(unsigned) { return value; }
GIVES(local_id, __builtin_amdgcn_workitem_id_x())
GIVES(group_id, __builtin_amdgcn_workgroup_id_x())
GIVES(num_groups, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x())
"""

NVIDIA_TRAITS = {
    "wide loads": r"LDG\.E\S*\.128",
    "wide stores": r"STG\.E\S*\.128",
    "local memory": r"(LDL|STL)\b",
    "barriers": r"BAR\.",
    "shuffles": r"SHFL\.",
}
AMD_TRAITS = {
    "wide loads": r"global_load_(dwordx4|b128)",
    "wide stores": r"global_store_(dwordx4|b128)",
    "local memory": r"(scratch|buffer)_(load|store)",
    "barriers": r"s_barrier",
    "shuffles": r"ds_bpermute_b32",
}

LOCK = threading.Lock()

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Compiled:
    """A kernel's cost in registers and bytes, and the kinds of instruction that it has, if that was asked."""

    registers: int
    spilled: int
    local: int
    shared: int
    traits: frozenset[str] | None


def refuse(name: str, reason: str) -> None:
    """Ends a test for want of a compiler: a failure where it has to be there."""
    (pytest.fail if name in os.environ.get("ROWGRAD_EXPECT", "").split() else pytest.skip)(reason)


def in_parallel(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(work, items)


def need_nvrtc() -> None:
    missing = [name for name in ("cupy", "nvidia.cu13") if find_spec(name.split(".")[0]) is None or not find_spec(name)]
    if missing or not nvdisasm().exists():
        refuse("nvrtc", "CuPy, NVRTC or nvdisasm is missing: on Linux on x86-64 pip install 'rowgrad-wgpu[test]'")


def nvdisasm() -> Path:
    return Path(next(iter(find_spec("nvidia.cu13").submodule_search_locations))) / "bin" / "nvdisasm"


def nvrtc(
    text: str, architecture: int, options: tuple[str, ...] = CUPY_OPTIONS, instructions: bool = False
) -> Compiled:
    """`text` for sm_`architecture`; looking at the instructions takes longer than to compile.

    **Raises:** `RuntimeError` with the compiler's words.
    """
    from cupy.cuda import nvrtc as library

    program = library.createProgram(text, "kernel.cu", (), ())
    try:
        library.compileProgram(program, (*options, f"-arch=sm_{architecture}", "--ptxas-options=-v"))
        log, cubin = library.getProgramLog(program), library.getCUBIN(program)
    except library.NVRTCError:
        raise RuntimeError(library.getProgramLog(program)) from None
    finally:
        library.destroyProgram(program)
    return Compiled(
        registers=figure(log, r"Used (\d+) registers"),
        spilled=figure(log, r"(\d+) bytes spill stores") + figure(log, r"(\d+) bytes spill loads"),
        local=figure(log, r"(\d+) bytes stack frame"),
        shared=figure(log, r"(\d+) bytes smem", 0),
        traits=traits(disassembled(cubin), NVIDIA_TRAITS) if instructions else None,
    )


def disassembled(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin + b"\0")  # CuPy cuts the last byte off, which is a zero
        file.flush()
        return run([str(nvdisasm()), "-c", file.name])


def need_clang() -> None:
    if shutil.which("clang++-19") is None or not HIPRTC_HEADER.exists():
        refuse("clang-19", "clang-19 or hipRTC's header is missing: sh tools/amd_compiler.sh PYTHON")


def clang(text: str, architecture: str) -> Compiled:
    """`text` for AMD's `architecture`. **Raises:** `RuntimeError` with the compiler's words."""
    header = precompiled_header(architecture)
    options = (*HIP_OPTIONS, f"--offload-arch={architecture}", "-Xclang", "-include-pch", "-Xclang", str(header))
    assembly = run(["clang++-19", *options, "-o", "-", "-"], HIP_DEVICE_LIBRARY + text)
    return Compiled(
        registers=figure(assembly, r"\.vgpr_count:\s+(\d+)"),
        spilled=figure(assembly, r"\.vgpr_spill_count:\s+(\d+)"),  # scalar ones go to lanes of vector registers
        local=figure(assembly, r"\.private_segment_fixed_size:\s+(\d+)"),
        shared=figure(assembly, r"\.group_segment_fixed_size:\s+(\d+)"),
        traits=traits(assembly, AMD_TRAITS),
    )


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="rowgrad")


def precompiled_header(architecture: str) -> Path:
    """hipRTC's header as clang reads it faster: most of a kernel's time goes into it."""
    with LOCK:  # two threads that ask first would make two folders, and the one that is not kept goes at once
        header = Path(folder().name) / f"{architecture}.pch"
        if not header.exists():
            options = (*HIP_OPTIONS, f"--offload-arch={architecture}", "-Xclang", "-emit-pch")
            run(["clang++-19", *options, "-o", str(header), str(HIPRTC_HEADER)])
    return header


def run(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=280)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def figure(text: str, pattern: str, otherwise: int | None = None) -> int:
    """The one number that `pattern` finds, or `otherwise`."""
    found = re.findall(pattern, text)
    if not found and otherwise is not None:
        return otherwise
    (number,) = found
    return int(number)


def traits(assembly: str, known: dict[str, str]) -> frozenset[str]:
    return frozenset(name for name, pattern in known.items() if re.search(pattern, assembly))
