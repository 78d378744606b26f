"""Every variant of the shaders that the plan can ask a WebGPU adapter for."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

from grids import takes, whole

from rowgrad_wgpu.contract import MOST_CHUNKS, STORAGE, Kernel
from rowgrad_wgpu.errors import ShapeError
from rowgrad_wgpu.plan import (
    CELL,
    HARDWARE_KEPT_OF_ONE,
    HARDWARE_TEAM,
    LOOP_ITERATIONS,
    SOFTWARE_EASY,
    SOFTWARE_KEPT,
    SOFTWARE_TEAM,
    WEBGPU,
    WIDEST_TEAM,
    Extent,
    Limits,
    Variant,
    choose_variant,
)

ADAPTERS = (replace(WEBGPU, software=True), WEBGPU)
WITH_SUBGROUPS = (*ADAPTERS, replace(WEBGPU, software=True, subgroup=SOFTWARE_TEAM))

# A chunk of rows that fits a thread's loops, and one that does not.
ROWS = (64, MOST_CHUNKS * (LOOP_ITERATIONS + 1))

LONGEST = 1 << 22  # cells of a row, more than the plan takes


@cache
def every_variant(kernel: Kernel, adapters: tuple[Limits, ...] = ADAPTERS) -> list[Variant]:
    """The variants of `kernel` on adapters of those limits, in a fixed order."""
    found: dict[Variant, None] = {}
    for limits, storage in product(adapters, STORAGE):
        for alpha, rows, d in product(alphas_of(kernel, storage), ROWS, widths(limits)):
            found |= dict.fromkeys(variant_for(kernel, storage, alpha, whole(rows, d), limits))
    return list(found)


def alphas_of(kernel: Kernel, storage: str) -> list[str]:
    return sorted({storage, "float32"}) if any(buffer.element == "A" for buffer in kernel.buffers) else [storage]


def variant_for(kernel: Kernel, storage: str, alpha: str, extent: Extent, limits: Limits) -> list[Variant]:
    """The variant of a launch; none where the plan takes no such rows."""
    try:
        if not takes(kernel, storage, extent, limits):
            return []
        return [choose_variant(kernel, storage, alpha, extent, limits)]
    except ShapeError:
        return []


def widths(limits: Limits) -> Iterator[int]:
    """Lengths of rows that come to every team and every number of cells: full, whole but not full, odd, even."""
    for cells in _cells(limits):
        yield from (CELL * cells, CELL * cells - CELL, CELL * cells - 3, CELL * cells - 6)


def _cells(limits: Limits) -> Iterator[int]:
    team = SOFTWARE_TEAM if limits.software else HARDWARE_TEAM
    kept = SOFTWARE_TEAM * SOFTWARE_KEPT if limits.software else WIDEST_TEAM * HARDWARE_KEPT_OF_ONE
    yield from range(team, kept // CELL + team + 1, team)
    cells = kept // CELL
    if limits.software:  # wider teams
        for team in (4 * SOFTWARE_TEAM, 8 * SOFTWARE_TEAM, 16 * SOFTWARE_TEAM, WIDEST_TEAM):
            most = SOFTWARE_KEPT if team == WIDEST_TEAM else SOFTWARE_EASY
            yield from range(team * SOFTWARE_EASY // CELL // 2 + team, team * most // CELL + 1, team)
        cells = WIDEST_TEAM * SOFTWARE_KEPT // CELL
    while cells < LONGEST:  # a row twice as long needs a team twice as wide, if it needs one
        cells *= 2
        yield cells
