"""Shader texts: a kernel's file, the parts of `shaders/lib` that its variant needs, its constants.

What differs between variants is put behind the file as text. WGSL's module scope has no order, so a compiler's message
about a kernel keeps the line numbers of its file.
"""

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from .contract import KERNELS
from .plan import Variant


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
    files = [f"{variant.kernel}.wgsl", *part_files(variant)]
    return "\n".join([*map(shader_text, files), *_constants(variant)]) + "\n"


def part_files(variant: Variant) -> list[str]:
    """The files of `shaders/lib` that a variant needs."""
    parts = KERNELS[variant.kernel].parts
    if not parts:
        return []
    return [_part_file(part, variant) for part in ("storage", *parts)]


def _part_file(part: str, variant: Variant) -> str:
    narrow = variant.storage != "float32"
    place = "aligned" if variant.aligned else "shifted"
    choices = {
        "storage": variant.storage,
        "store": "aligned" if variant.aligned else "pairs" if narrow else "words",
        "columns": "aligned" if variant.aligned else "halves" if narrow else "words",
        "alpha": f"{'storage' if variant.alpha != 'float32' else 'float32'}_{place}",
    }
    return f"lib/{part}/{choices[part]}.wgsl" if part in choices else f"lib/{part}.wgsl"


def _constants(variant: Variant) -> list[str]:
    return [
        f"const THREADS = {variant.threads}u;",
        f"const TEAM = {variant.team}u;",
        f"const TEAMS = {variant.teams}u;",
        f"const ROWS_IN_TURN = {variant.rows_in_turn}u;",
        f"const QUADS = {variant.quads}u;",
        f"const KEPT = {max(variant.quads, 1)}u;",
        f"const ALIGNED = {str(variant.aligned).lower()};",
    ]
