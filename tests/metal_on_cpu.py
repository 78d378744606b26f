"""A back end that runs naga's Metal shaders as C++ on the CPU: the translation's arithmetic, not Apple's compiler."""

import ctypes
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rowgrad_wgpu.backends.cpu import CPUBackend
from rowgrad_wgpu.contract import KERNELS
from rowgrad_wgpu.plan import CELL_BYTES, Limits, Plan, Variant

STANDARD_LIBRARY = Path(__file__).parent / "metal"

BUILTINS = {
    "threadgroup_position_in_grid": "group",
    "threadgroups_per_grid": "groups",
    "thread_index_in_threadgroup": "index",
}

FLAGS = ("-std=c++17", "-fsingle-precision-constant", "-w", "-shared", "-fPIC")
EACH_ROUNDED = ("-O1", "-ffp-contract=off")
FAST = ("-O2", "-ffast-math", "-fno-finite-math-only")
"""How float arithmetic may be compiled: each operation by itself, or as Metal does by default, by fast mathematics."""


class MetalOnCPU(CPUBackend):
    """Buffers in the host's memory; kernels in shared libraries in `folder`, out of the Metal text of their variant."""

    shares_memory = False

    def __init__(
        self,
        limits: Limits,
        metal_text: Callable[[Variant], str],
        folder: Path,
        mathematics: Sequence[str] = EACH_ROUNDED,
    ) -> None:
        super().__init__()
        self._mathematics = mathematics
        self.limits = limits
        self._metal_text = metal_text
        self._folder = folder
        self._compiled: dict[Variant, Any] = {}

    def allocate(self, nbytes: int) -> np.ndarray:
        return super().allocate(-(-nbytes // CELL_BYTES) * CELL_BYTES)

    def launch(self, plan: Plan, buffers: Mapping[str, Any]) -> None:
        kernel, variant = KERNELS[plan.variant.kernel], plan.variant
        if variant not in self._compiled:
            text = as_cpp(self._metal_text(variant), variant)
            path = self._folder / f"{len(self._compiled):03}.cpp"
            self._compiled[variant] = compile_cpp(text, path, self._mathematics)
        for dispatch in plan.dispatches:
            slices = [(buffers[one.name], dispatch.slices[one.name]) for one in kernel.buffers]
            bound = [buffer[part.offset : part.offset + part.nbytes] for buffer, part in slices]
            bound.append(np.array(dispatch.fields, np.uint32))
            pointers = (ctypes.c_void_p * len(bound))(*(one.ctypes.data for one in bound))
            sizes = (ctypes.c_size_t * len(bound))(*(one.nbytes for one in bound))
            wrong = self._compiled[variant](pointers, sizes, *dispatch.grid)
            assert not wrong, f"{variant}: {wrong.decode()}"


def compile_cpp(text: str, path: Path, mathematics: Sequence[str]) -> Any:
    """The function `run(bindings, nbytes, width, height)`; it gives the text of what went wrong, or nothing."""
    path.write_text(text, encoding="utf-8")
    library = path.with_suffix(".so")
    command = ["c++", *FLAGS, *mathematics, "-I", STANDARD_LIBRARY, "-o", library, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = ctypes.CDLL(str(library)).run
    run.restype = ctypes.c_char_p
    return run


def as_cpp(metal: str, variant: Variant) -> str:
    """The Metal text with arrays that know their size, and a function for the host that runs the kernel over a grid."""
    text = re.sub(r"typedef ([\w:]+) (\w+)\[1\];", r"typedef metal::bound_array<\1> \2;", metal)
    (parameters,) = re.findall(rf"kernel void {variant.kernel}\((.*?)\) {{", text, flags=re.DOTALL)
    lines, arguments, binding = [], [], 0
    for parameter in parameters.split("\n,"):
        builtin = re.search(r"\[\[(\w+)\]\]", parameter)
        if builtin and builtin[1] in BUILTINS:
            arguments.append(BUILTINS[builtin[1]])
            continue
        space, kind, name = re.findall(r"(device|constant|threadgroup) (\w+)(?: const)?& (\w+)", parameter)[0]
        arguments.append(name)
        if space == "threadgroup":
            lines.append(f"static {kind} {name};")
        elif name == "_buffer_sizes":
            lines.append(f"{kind} {name}{{}};")
        else:
            lines.append(
                f"{kind} {name}(bindings[{binding}], nbytes[{binding}]);"
                if space == "device"
                else f"{kind} {name} = *static_cast<{kind}*>(bindings[{binding}]);"
            )
            binding += 1
    body = "\n  ".join(lines)
    return f"""{text}
extern "C" const char* run(void** bindings, std::size_t* nbytes, uint width, uint height) {{
  {body}
  return metal::run_grid({variant.threads}u, width, height, [&](uint3 group, uint3 groups, uint index) {{
    {variant.kernel}({", ".join(arguments)});
  }});
}}
"""
