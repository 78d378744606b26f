"""The plan: how a launch is cut up, by arithmetic alone.

From a kernel's record, the types, the rows and d, and a device's limits, `plan_launch` works out the variant of the
shader (threads a row, quads a thread, alignment) and the dispatches (windows of rows or chunks, the part of each buffer
they bind, the workgroup grid, the uint32 fields). Every limit of WebGPU is met here and nowhere else, so all of it is
tested without a GPU.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from .contract import KERNELS, STORAGE, Buffer, Kernel
from .errors import ShapeError

LOOP_ITERATIONS: Final = 60_000
"""Iterations a thread may spend in all its loops: llvmpipe silently stops at 65,535 (LP_MAX_TGSI_LOOP_ITERATIONS)."""

DISPATCH_ELEMENTS: Final = 1 << 26
"""Elements a dispatch may cover: about 0.1 s on a small integrated GPU, far from the 2 s of Windows' watchdog."""

CELL: Final = 4
"""Elements that are read at once."""

CELL_BYTES: Final = 16
"""Bindings end on a multiple of this, so that the last cell is whole."""

SOFTWARE_TEAM: Final = 8
"""Threads a row on a CPU adapter: llvmpipe runs eight lanes at once."""

HARDWARE_TEAM: Final = 32
HARDWARE_GROUP: Final = 128
WIDEST_TEAM: Final = 256

SOFTWARE_QUADS: Final = 32
HARDWARE_QUADS: Final = 16
EASY_QUADS: Final = 8
"""Quads of each operand a thread keeps: at most, and at most before the team is made wider."""

LOOPS_PER_ROW: Final = 4
"""Times a thread goes round its row at most: the mean, the variance, the two sums, the write."""

COLUMN_THREADS: Final = 64


@dataclass(frozen=True)
class Limits:
    """What a device allows: bytes a binding, bytes of its offset's alignment, workgroups a dimension, threads and bytes
    of shared memory a workgroup; whether a CPU runs it."""

    binding_bytes: int
    binding_alignment: int
    groups_per_dimension: int
    threads_per_group: int
    shared_bytes: int
    software: bool


UNLIMITED: Final = Limits(
    binding_bytes=1 << 62,
    binding_alignment=1,
    groups_per_dimension=(1 << 31) - 1,
    threads_per_group=1024,
    shared_bytes=48 << 10,
    software=False,
)
"""The limits of a back end that addresses memory by 64-bit pointers."""


@dataclass(frozen=True)
class Extent:
    """What a launch covers: rows `start` … `stop` of an array of `rows` rows of `d`; its buffers hold just those.

    The whole array's rows are summed in `chunks` partial rows, whatever part is at hand.
    """

    rows: int
    d: int
    chunks: int
    start: int
    stop: int

    @property
    def per(self) -> int:
        """The rows of a chunk: chunk c holds rows c·per … min((c + 1)·per, rows)."""
        return math.ceil(self.rows / self.chunks)


@dataclass(frozen=True)
class Variant:
    """All that a compiled kernel depends on; never the number of rows."""

    kernel: str
    storage: str
    alpha: str
    aligned: bool
    team: int
    teams: int
    quads: int
    rows_in_turn: int

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.team * self.teams


@dataclass(frozen=True)
class Slice:
    """The part of a buffer that a dispatch binds, in bytes."""

    offset: int
    nbytes: int


@dataclass(frozen=True)
class Dispatch:
    """One dispatch: its grid of workgroups, the part of each buffer it binds, the values of the record's fields."""

    grid: tuple[int, int]
    slices: Mapping[str, Slice]
    fields: tuple[int, ...]
    elements: int


@dataclass(frozen=True)
class Plan:
    """A launch: one variant, one dispatch after another."""

    variant: Variant
    extent: Extent
    dispatches: tuple[Dispatch, ...]


@dataclass(frozen=True)
class _Window:
    first_row: int
    row_count: int
    first_chunk: int
    chunk_count: int


def plan_launch(kernel: Kernel, storage: str, alpha: str, extent: Extent, limits: Limits) -> Plan:
    """The variant and the dispatches of `kernel` over `extent`.

    **Arguments:** `storage` and `alpha` are names of storage types; `alpha` is `storage` where there is no alpha.

    **Raises:** `ShapeError` if a row is longer than the device can take.
    """
    variant = choose_variant(kernel, storage, alpha, extent.d, limits)
    windows = _WINDOWS.get(kernel.name, _row_windows)(kernel, variant, extent, limits)
    dispatches = tuple(_dispatch(kernel, variant, extent, window, limits) for window in windows)
    return Plan(variant, extent, dispatches)


def choose_variant(kernel: Kernel, storage: str, alpha: str, d: int, limits: Limits) -> Variant:
    """The variant for rows of `d`."""
    aligned = d % CELL == 0
    if "row" not in kernel.parts:
        threads = min(COLUMN_THREADS, _most_threads(limits))
        return Variant(kernel.name, storage, alpha, aligned, threads, 1, 0, 1)
    rows_in_turn = 2 if d % 2 and STORAGE[storage].itemsize == 2 else 1
    cells = most_cells(d)
    team = _team(cells, rows_in_turn, limits)
    teams = 1 if limits.software else max(1, min(HARDWARE_GROUP, _most_threads(limits)) // team)
    quads = math.ceil(cells / team)
    if quads > (SOFTWARE_QUADS if limits.software else HARDWARE_QUADS):
        quads = 0
    return Variant(kernel.name, storage, alpha, aligned, team, teams, quads, rows_in_turn)


def most_cells(d: int) -> int:
    """The most cells that hold some of a row of `d`: one more where rows begin inside a cell."""
    return d // CELL if d % CELL == 0 else (CELL - 1 + d + CELL - 1) // CELL


def _team(cells: int, rows_in_turn: int, limits: Limits) -> int:
    team = SOFTWARE_TEAM if limits.software else HARDWARE_TEAM
    widest = min(WIDEST_TEAM, _most_threads(limits))
    while not limits.software and cells > team * EASY_QUADS and team < widest:
        team *= 2
    while _iterations(cells, team, rows_in_turn) > LOOP_ITERATIONS and team < widest:
        team *= 2
    if _iterations(cells, team, rows_in_turn) > LOOP_ITERATIONS:
        longest = LOOP_ITERATIONS // (LOOPS_PER_ROW * rows_in_turn) * widest * CELL
        raise ShapeError(
            f"expected rows of at most about {longest:,} elements, got {cells * CELL:,}: split the last axis"
        )
    return team


def _most_threads(limits: Limits) -> int:
    """Threads of a workgroup at most: each has four floats of shared memory, and a word for its team."""
    return min(limits.threads_per_group, limits.shared_bytes // 20)


def _iterations(cells: int, team: int, rows_in_turn: int) -> int:
    """Iterations of a thread: its rounds of the row and the levels of the trees of three sums."""
    return (LOOPS_PER_ROW * math.ceil(cells / team) + 3 * team.bit_length()) * rows_in_turn


def _row_windows(kernel: Kernel, variant: Variant, extent: Extent, limits: Limits) -> Iterator[_Window]:
    """Windows of as many rows as fit."""
    most = _most_rows(kernel, variant, extent, limits)
    for start in range(extent.start, extent.stop, most):
        yield _Window(start, min(most, extent.stop - start), 0, 0)


def _params_windows(kernel: Kernel, variant: Variant, extent: Extent, limits: Limits) -> Iterator[_Window]:
    """Windows of as many rows as fit whose chunks fit too; then, at the array's end, the chunks without rows."""
    most_rows = _most_rows(kernel, variant, extent, limits)
    most_chunks = _most_chunks(extent.d, limits)
    start, chunk = extent.start, 0
    while start < extent.stop:
        first_chunk = start // extent.per
        stop = min(start + most_rows, extent.stop, (first_chunk + most_chunks) * extent.per)
        chunk = math.ceil(stop / extent.per)
        yield _Window(start, stop - start, first_chunk, chunk - first_chunk)
        start = stop
    if extent.stop == extent.rows:
        yield from (
            _Window(extent.start, 0, first, count) for first, count in _pieces(chunk, extent.chunks, most_chunks)
        )


def _chunk_windows(kernel: Kernel, variant: Variant, extent: Extent, limits: Limits) -> Iterator[_Window]:
    """Windows of as many chunks as fit."""
    for first, count in _pieces(0, extent.chunks, _most_chunks(extent.d, limits)):
        yield _Window(0, 0, first, count)


def _pieces(start: int, stop: int, most: int) -> Iterator[tuple[int, int]]:
    for first in range(start, stop, most):
        yield first, min(most, stop - first)


_WINDOWS: Final = {"layer_norm_params": _params_windows, "sum_partials": _chunk_windows}


def _most_rows(kernel: Kernel, variant: Variant, extent: Extent, limits: Limits) -> int:
    room = limits.binding_bytes - limits.binding_alignment - CELL_BYTES
    longest = max(_step_bytes(buffer, variant, extent.d) for buffer in kernel.buffers if buffer.axes[0] == "rows")
    for buffer in kernel.buffers:
        if buffer.axes == ("d",) and _step_bytes(buffer, variant, extent.d) > room:
            raise ShapeError(
                f"expected {buffer.name} to fit a binding of {limits.binding_bytes:,} bytes, got d = {extent.d:,}"
            )
    most = min(room // longest, max(DISPATCH_ELEMENTS // extent.d, 1))
    if "per" in kernel.meta and extent.per > LOOP_ITERATIONS:
        most = min(most, LOOP_ITERATIONS)
    step = row_step(extent.d)
    most = max(most, step) // step * step
    if most * longest > room:
        raise ShapeError(
            f"expected rows of which {step} fit a binding of {limits.binding_bytes:,} bytes,"
            f" got {longest:,} bytes a row: split the last axis"
        )
    return most


def row_step(d: int) -> int:
    """Windows and blocks are a multiple of this many rows: each then begins with a cell.

    Where d is no multiple of a cell, the order of a row's sum depends on where in a cell the row begins; so it is the
    same in every window, and two 16-bit rows that share a word are never parted.
    """
    return 1 if d % CELL == 0 else CELL


def _most_chunks(d: int, limits: Limits) -> int:
    room = limits.binding_bytes - limits.binding_alignment - CELL_BYTES
    if 8 * d > room:
        raise ShapeError(
            f"expected 2 × d float32 sums to fit a binding of {limits.binding_bytes:,} bytes, got d = {d:,}"
        )
    return min(room // (8 * d), LOOP_ITERATIONS)


def _dispatch(kernel: Kernel, variant: Variant, extent: Extent, window: _Window, limits: Limits) -> Dispatch:
    slices = {}
    values = {
        "rows": extent.rows,
        "d": extent.d,
        "per": extent.per,
        "first_row": window.first_row,
        "row_count": window.row_count,
        "first_chunk": window.first_chunk,
        "chunk_count": window.chunk_count,
    }
    for buffer in kernel.buffers:
        part, origin = _bound_part(buffer, variant, extent, window, limits)
        slices[buffer.name] = part
        values["origin" if buffer.element == "F" else f"{buffer.name}_origin"] = origin
    fields = tuple(values[name] for name in kernel.meta + kernel.window)
    grid = _fold(_group_count(kernel, variant, extent.d, window), limits)
    return Dispatch(grid, slices, fields, max(window.row_count, 2 * window.chunk_count) * extent.d)


def _bound_part(buffer: Buffer, variant: Variant, extent: Extent, window: _Window, limits: Limits) -> tuple[Slice, int]:
    """The part of a buffer that `window` needs, and the element of it at which the window begins."""
    step = _step_bytes(buffer, variant, extent.d)
    if buffer.axes[0] == "rows":
        first, count = window.first_row - extent.start, window.row_count
    elif buffer.axes[0] == "chunks":
        first, count = window.first_chunk, window.chunk_count
    else:
        first, count = 0, 1
    begin = first * step
    offset = begin // limits.binding_alignment * limits.binding_alignment
    nbytes = math.ceil((begin + count * step - offset) / CELL_BYTES) * CELL_BYTES
    return Slice(offset, max(nbytes, CELL_BYTES)), (begin - offset) // element_bytes(buffer, variant)


def _step_bytes(buffer: Buffer, variant: Variant, d: int) -> int:
    """Bytes of one step along the first axis; of the whole buffer where that is neither rows nor chunks."""
    tail = buffer.axes[1:] if buffer.axes[0] in ("rows", "chunks") else buffer.axes
    count = math.prod(d if axis == "d" else int(axis) for axis in tail)
    return count * element_bytes(buffer, variant)


def element_name(buffer: Buffer, variant: Variant) -> str:
    """The name of the type of `buffer`'s elements."""
    return {"F": variant.storage, "A": variant.alpha}.get(buffer.element, buffer.element)


def element_bytes(buffer: Buffer, variant: Variant) -> int:
    """Bytes of an element of `buffer`."""
    return STORAGE[element_name(buffer, variant)].itemsize


def _group_count(kernel: Kernel, variant: Variant, d: int, window: _Window) -> int:
    if "row" in kernel.parts:
        return math.ceil(window.row_count / (variant.teams * variant.rows_in_turn))
    if "columns" in kernel.parts:
        units = window.chunk_count * (d // CELL if variant.aligned else d)
        return math.ceil(units / variant.threads)
    return math.ceil(d / variant.threads)


def _fold(groups: int, limits: Limits) -> tuple[int, int]:
    """A grid of two dimensions with at least `groups` workgroups and few to spare."""
    if groups <= limits.groups_per_dimension:
        return groups, 1
    height = math.ceil(groups / limits.groups_per_dimension)
    return math.ceil(groups / height), height


def kernel_named(name: str) -> Kernel:
    """The record of the kernel called `name`.

    **Raises:** `ShapeError` naming the kernels there are.
    """
    if not isinstance(name, str) or name not in KERNELS:
        raise ShapeError(f"expected one of the kernels {', '.join(KERNELS)}, got {name!r}")
    return KERNELS[name]
