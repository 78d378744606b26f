"""Builds kernels and the runtime with g++, each text once: results lie in `build/hostgpu` by their hash."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "hostgpu"

COMMON = ("-std=c++17", "-fPIC", "-shared", "-w")
FLAVOURS = {
    "plain": ("-O1",),
    "address": ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-O1", "-g1", "-fsanitize=thread"),
    "trace": ("-O1", "-fno-tree-sra"),  # a cell is copied as a whole, as the GPU compilers do
}
# Calls back every access of the kernel's to memory, by its size.
TRACE = (
    "-fsanitize=kernel-address",
    *("--param", "asan-instrumentation-with-call-threshold=0"),
    *("--param", "asan-stack=0", "--param", "asan-globals=0"),
)


def runtime(flavour: str = "plain") -> Path:
    """The library that runs kernels; traced kernels bring their counter along."""
    text = (HERE / "runtime.cpp").read_text()
    if flavour == "trace":
        text += (HERE / "trace.cpp").read_text()
    return _built(text, FLAVOURS[flavour])


def kernel(text: str, warp: int, flavour: str = "plain") -> Path:
    """The library of one kernel's text, linked to its runtime: a process may hold the runtimes of several flavours."""
    flags = (*FLAVOURS[flavour], f"-DWARP={warp}", *(TRACE if flavour == "trace" else ()))
    return _built((HERE / "prologue.h").read_text() + text, flags, (str(runtime(flavour)),))


def _built(text: str, flags: tuple[str, ...], libraries: tuple[str, ...] = ()) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        raise RuntimeError("g++ is missing, which runs the CUDA kernels here: apt-get install g++")
    name = hashlib.sha256(repr((text, flags, libraries, COMMON)).encode()).hexdigest()[:24]
    library = BUILD / f"{name}.so"
    if not library.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        made = library.with_suffix(f".{os.getpid()}")
        command = [compiler, *COMMON, *flags, "-x", "c++", "-", "-x", "none", *libraries, "-o", str(made)]
        result = subprocess.run(command, input=text, text=True, capture_output=True)
        if result.returncode:
            raise RuntimeError(f"g++ refused a kernel: {result.stderr}")
        made.replace(library)
    return library


def preload(flavour: str) -> str:
    """The sanitizers' libraries, which have to be in a process from its start."""
    names = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}[flavour]
    found = [subprocess.run(["g++", f"-print-file-name={one}"], text=True, capture_output=True) for one in names]
    return " ".join(one.stdout.strip() for one in found)
