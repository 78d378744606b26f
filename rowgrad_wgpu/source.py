"""Kernel texts: a kernel's file, the parts of `shaders/lib` that its variant needs, its constants.

What differs between variants is put around the file as text, so that files on disk are whole WGSL or CUDA C++. A
compiler's message about a kernel keeps the line numbers of its file: WGSL's module scope has no order, so the rest
comes behind; in CUDA C++ it comes in front and `#line` names each file.
"""

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from .contract import KERNELS
from .plan import Variant

PROBE: Final = "lib/team/probe.wgsl"


@cache
def shader_folder() -> Traversable:
    """The folder `shaders`: inside the installed package, or beside it in a working copy."""
    installed = resources.files(__package__) / "shaders"
    if installed.is_dir():
        return installed
    return Path(__file__).resolve().parent.parent / "shaders"


@cache
def shader_text(name: str) -> str:
    """The text of a file of `shaders`, such as `softmax_back.wgsl` or `lib/row.wgsl`."""
    text = shader_folder()
    for step in name.split("/"):
        text = text / step
    return text.read_text(encoding="utf-8")


def assemble_wgsl(variant: Variant) -> str:
    """The WGSL text of a variant."""
    parts = [text for name in part_files(variant) for text in _for_each_input(variant, shader_text(name))]
    return "\n".join([shader_text(f"{variant.kernel}.wgsl"), *parts, *_wgsl_constants(variant)]) + "\n"


def _for_each_input(variant: Variant, text: str) -> list[str]:
    """A part's text; one about `SOURCE` once for each input of rows, since WGSL passes no pointers to bindings."""
    inputs = [one.name for one in KERNELS[variant.kernel].buffers if one.element == "F" and not one.written]
    return [text.replace("SOURCE", name) for name in inputs] if "SOURCE" in text else [text]


def assemble_probe(threads: int) -> str:
    """The WGSL text that tells which threads of a workgroup of so many a sum by subgroups reaches."""
    return "\n".join([shader_text(PROBE), shader_text("lib/team/subgroup.wgsl"), f"const TEAM = {threads}u;"]) + "\n"


def part_files(variant: Variant) -> list[str]:
    """The WGSL files of `shaders/lib` that a variant needs."""
    parts = KERNELS[variant.kernel].parts
    if not parts:
        return []
    return [_part_file(part, variant) for part in ("storage", "read", *parts)]


def _part_file(part: str, variant: Variant) -> str:
    unit = "cells" if variant.aligned else "words" if variant.storage == "float32" else "pairs"
    any_half = variant.begin == "half" and "row" not in KERNELS[variant.kernel].parts
    choices = {
        "storage": variant.storage,
        "read": "halves" if any_half else unit,
        "store": unit,
        "team": "subgroup" if variant.subgroup else "shared",
        "turns": "single" if variant.teams == 1 else "shared",
        "partial": "quads" if variant.aligned else "single",
        "alpha": "float32" if variant.alpha == "float32" else "storage",
    }
    return f"lib/{part}/{choices[part]}.wgsl" if part in choices else f"lib/{part}.wgsl"


def _wgsl_constants(variant: Variant) -> list[str]:
    stored = [f"alias Stored = {'Cell' if variant.aligned else 'Word'};"] if KERNELS[variant.kernel].parts else []
    return [
        *stored,
        f"const THREADS = {variant.threads}u;",
        f"const TEAM = {variant.team}u;",
        f"const TEAMS = {variant.teams}u;",
        f"const ROWS_IN_TURN = {variant.rows_in_turn}u;",
        f"const QUADS = {variant.cells}u;",
        f"const KEPT = {max(variant.cells, 1)}u;",
        f"const KEPT_BESIDE = {variant.cells if variant.kept == 2 else 1}u;",
        f"const BOTH = {str(variant.kept == 2).lower()};",
        f"const LOOPED = {str(variant.looped).lower()};",
        f"const FULL = {str(variant.full).lower()};",
        f"const ALIGNED = {str(variant.aligned).lower()};",
        f"const PHASES = {KERNELS[variant.kernel].phases}u;",
    ]


CUDA_PARTS: Final = ("row", "team", "part", "statistics", "part_statistics", "alpha", "gradient", "turns")
"""The parts that CUDA C++ has too, each before those that need it."""


def assemble_cuda(variant: Variant) -> str:
    """The CUDA C++ text of a variant, for NVRTC, nvcc, hipRTC, hipcc or a host compiler."""
    first, *rest = cuda_files(variant)
    return "".join([_numbered(first), *_cuda_constants(variant), *map(_numbered, rest)])


def cuda_files(variant: Variant) -> list[str]:
    """The files of a variant's CUDA C++ in order: what differs between compilers, the parts, the kernel."""
    parts = KERNELS[variant.kernel].parts
    shared = [f"lib/storage/{variant.storage}.cuh", "lib/cell.cuh"] if parts else []
    alpha = f"alpha/{'storage' if variant.alpha == variant.storage else 'float32'}"
    needed = [alpha if part == "alpha" else part for part in CUDA_PARTS if part in parts]
    return ["lib/gpu.cuh", *shared, *(f"lib/{part}.cuh" for part in needed), f"{variant.kernel}.cu"]


def _numbered(name: str) -> str:
    return f'#line 1 "{name}"\n{shader_text(name)}'


def _cuda_constants(variant: Variant) -> list[str]:
    values = {
        "THREADS": variant.threads,
        "TEAM": variant.team,
        "TEAMS": variant.teams,
        "WIDTH": variant.width,
        "CELLS": variant.cells,
        "KEPT": variant.kept,
        "PHASES": KERNELS[variant.kernel].phases,
    }
    return [f"constexpr int {name} = {value};\n" for name, value in values.items()]
