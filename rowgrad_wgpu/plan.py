"""The plan: how a launch is cut up, by arithmetic alone.

From a kernel's record, the types, the rows and d, and a device's limits, `plan_launch` works out the variant of the
shader (threads a row, cells a thread, alignment) and the dispatches (windows of rows or chunks, the part of each buffer
they bind, the workgroup grid, the integer fields). Every limit of a device is met here and nowhere else, so all of it
is tested without a GPU.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from .contract import KERNELS, STORAGE, Buffer, Kernel, chunk_count
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
"""Threads a row on a CPU adapter: llvmpipe runs eight lanes at once, and barriers between more cost."""

SOFTWARE_EASY: Final = 64
"""Elements of a row a thread takes in a wider team, where SOFTWARE_TEAM would have to read a row again: llvmpipe goes
through each load lane by lane. Half of what a thread may keep, for half the time to compile."""

SOFTWARE_UNROLLED: Final = 8
"""Cells of a row over which a CPU adapter's compiler may unroll the long loops of a LayerNorm: over more it takes two
or three times as long, seconds, for less than a tenth of the time they run. There is room for a multiple of these, so
that rows of many lengths share a shader."""

HARDWARE_TEAM: Final = 32
HARDWARE_GROUP: Final = 128
WIDEST_TEAM: Final = 256

EASY_ELEMENTS: Final = 32
"""Elements of a row a thread takes before the row's team is made wider."""

SOFTWARE_KEPT: Final = 128
HARDWARE_KEPT: Final = 64
"""Elements a thread keeps of both operands, at most."""

HARDWARE_KEPT_OF_ONE: Final = 72
"""Elements a thread keeps of one operand, where it reads the other again, at most: AMD's compiler spills 80."""

HARDWARE_CELLS: Final = 32
"""Cells a thread keeps on a GPU, at most: each has a condition of its own, and AMD's compiler spills more of them."""

SUMMED_ELEMENTS: Final = {True: 128, False: 32}
"""Columns whose dα and dβ a thread keeps beside a row in the one-pass kernel, on CPU adapters and on GPUs, at most."""

SUMMED_CELLS: Final = 16
"""Cells of a row a thread keeps beside those on a GPU, at most: AMD's compiler keeps an address for each."""

LOOPS_PER_ROW: Final = 4
"""Times a thread goes round its row at most: the mean, the variance, the two sums, the write."""

COLUMN_THREADS: Final = 64

FEW_ROWS: Final = {True: 8, False: 64}
LONG_D: Final = 32_768
"""Fewer rows than these, on CPU adapters and on GPUs, of so many elements or more are cut into parts: with a team a row
most of the device would be idle."""

PART: Final = {True: 16_384, False: 1024}
"""Elements of a part, on CPU adapters and on GPUs, where rows have no more than MOST_PARTS of them: on a GPU a few for
each thread, so that 32,768 elements come to 32 workgroups and 131,072 to 128."""

MOST_PARTS: Final = 256
"""Parts of a row at most: each workgroup adds the sums of all of its row's."""

CHUNK_GROUP: Final = 256
"""Threads of a workgroup that takes a chunk of rows, on a GPU: with 256 chunks at most, they have to be many."""


@dataclass(frozen=True)
class Limits:
    """What a device allows.

    - `binding_bytes`, `binding_alignment`: bytes a binding, and what its offset is a multiple of.
    - `groups_per_dimension`, `threads_per_group`, `shared_bytes`: of a grid, and of a workgroup.
    - `loop_iterations`: iterations of a thread; `dispatch_elements`: elements a dispatch may cover.
    - `pointers`: kernels address single elements of whole arrays; there are no bindings and no shared words.
    - `software`: a CPU runs it.
    - `subgroup`: threads of a workgroup that is one subgroup, 0 where none is or where barriers cost little.
    """

    binding_bytes: int
    binding_alignment: int
    groups_per_dimension: int
    threads_per_group: int
    shared_bytes: int
    loop_iterations: int
    dispatch_elements: int
    pointers: bool
    software: bool
    subgroup: int


UNLIMITED: Final = Limits(
    binding_bytes=1 << 62,
    binding_alignment=1,
    groups_per_dimension=(1 << 31) - 1,
    threads_per_group=1024,
    shared_bytes=48 << 10,
    loop_iterations=1 << 62,
    dispatch_elements=1 << 62,
    pointers=True,
    software=False,
    subgroup=0,
)
"""The limits of a GPU that addresses memory by 64-bit pointers."""

WEBGPU: Final = Limits(
    binding_bytes=128 << 20,
    binding_alignment=256,
    groups_per_dimension=65_535,
    threads_per_group=256,
    shared_bytes=16 << 10,
    loop_iterations=LOOP_ITERATIONS,
    dispatch_elements=DISPATCH_ELEMENTS,
    pointers=False,
    software=False,
    subgroup=0,
)
"""The limits that every WebGPU adapter has; a GPU's."""


@dataclass(frozen=True)
class Extent:
    """What a launch covers: rows `start` … `stop` of an array of `rows` rows of `d`; its buffers hold just those.

    The whole array's rows are summed in `chunks` partial rows, whatever part is at hand. Kernels of several phases cut
    a row into `parts`.
    """

    rows: int
    d: int
    chunks: int
    start: int
    stop: int
    parts: int = 1

    @property
    def per(self) -> int:
        """The rows of a chunk: chunk c holds rows c·per … min((c + 1)·per, rows)."""
        return math.ceil(self.rows / self.chunks)

    @property
    def part(self) -> int:
        """The elements of a part: part p holds columns p·part … min((p + 1)·part, d).

        A multiple of eight: where rows begin with a cell, so do parts.
        """
        return 8 * math.ceil(self.d / (8 * self.parts))


@lru_cache(maxsize=256)
def whole(rows: int, d: int) -> Extent:
    """All rows of an array, in the chunks that the contract gives them; kept, since every call asks for it."""
    return Extent(rows, d, chunk_count(rows), 0, rows)


@dataclass(frozen=True)
class Variant:
    """All that a compiled kernel depends on.

    - `kernel`; `storage` and `alpha`, the names of their types.
    - `begin`: what rows begin with: a `cell`, a `word`, or a `half` of one that two rows of 16 bits share.
    - `width`: elements of a cell, which a thread takes at once.
    - `team`: threads that share a row, or columns a workgroup takes; `teams`: how many of them in a workgroup.
    - `cells`: cells of a row a thread has room to keep, 0 for none; `kept`: of how many operands, 0, 1 or 2.
    - `looped`: the loops over those cells stay loops, which a compiler may not unroll.
    - `full`: every thread of the team has as many cells: none has to ask whether a cell is the row's.
    - `subgroup`: a team is a workgroup and a subgroup: its threads' sums need no barrier.
    """

    kernel: str
    storage: str
    alpha: str
    begin: str
    width: int
    team: int
    teams: int
    cells: int = 0
    kept: int = 0
    looped: bool = False
    full: bool = False
    subgroup: bool = False

    @property
    def aligned(self) -> bool:
        """Whether rows are whole cells."""
        return self.begin == "cell"

    @property
    def rows_in_turn(self) -> int:
        """Rows that a team takes one after the other because they share a word."""
        return 2 if self.begin == "half" else 1

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


def plan_launch(kernel: Kernel, storage: str, alpha: str, extent: Extent, limits: Limits, aligned: bool = True) -> Plan:
    """The variant and the dispatches of `kernel` over `extent`.

    **Arguments:** `storage` and `alpha` are names of storage types; `alpha` is `storage` where there is no alpha.
    `aligned` says that every buffer begins at a multiple of a cell.

    **Raises:** `ShapeError` if a row is longer than the device can take.
    """
    if "sums" in kernel.parts and not one_pass(storage, extent, limits, aligned):
        raise ShapeError(
            f"[{kernel.name}] expected rows that a thread can keep beside its columns' sums,"
            f" got {extent.rows:,} × {extent.d:,}: use layer_norm_back and layer_norm_params"
        )
    variant = choose_variant(kernel, storage, alpha, extent, limits, aligned)
    windows = _WINDOWS.get(kernel.name, _row_windows)(kernel, variant, extent, limits)
    phases = range(kernel.phases)
    dispatches = tuple(
        _dispatch(kernel, variant, extent, window, phase, limits) for window in windows for phase in phases
    )
    return Plan(variant, extent, dispatches)


def choose_variant(
    kernel: Kernel, storage: str, alpha: str, extent: Extent, limits: Limits, aligned: bool = True
) -> Variant:
    """The variant for rows of `extent.d`; it depends on the rows only where a chunk of them does not fit a window."""
    if "row" not in kernel.parts:
        return _column_variant(kernel, storage, alpha, extent, limits, aligned)
    if kernel.phases > 1:
        return _part_variant(kernel, storage, alpha, extent, limits, aligned)
    shape = _row_shape(storage, extent.d, limits, aligned)
    if "sums" in kernel.parts:
        teams = chunk_turns(storage, extent, limits)
    else:
        teams = 1 if limits.software else max(1, min(HARDWARE_GROUP, _most_threads(limits)) // shape.team)
    kept = _kept_operands(shape, limits)
    cells = shape.thread_cells if kept else 0
    full = shape.begin == "cell" and cells * shape.team == shape.cells
    looped = limits.software and "gradient" in kernel.parts and cells > SOFTWARE_UNROLLED
    if looped:
        cells = SOFTWARE_UNROLLED * math.ceil(cells / SOFTWARE_UNROLLED)
    return Variant(
        kernel=kernel.name,
        storage=storage,
        alpha=alpha,
        begin=shape.begin,
        width=shape.width,
        team=shape.team,
        teams=teams,
        cells=cells,
        kept=kept,
        looped=looped,
        full=full,
        subgroup=teams == 1 and shape.team == limits.subgroup,
    )


def _column_variant(kernel: Kernel, storage: str, alpha: str, extent: Extent, limits: Limits, aligned: bool) -> Variant:
    """The variant of a kernel whose threads take columns."""
    width, begin = _cell_width(storage, extent.d, limits, aligned)
    turns = chunk_turns(storage, extent, limits) if "partial" in kernel.parts else 1
    team = CHUNK_GROUP // turns if turns > 1 else min(COLUMN_THREADS, _most_threads(limits))
    return Variant(kernel.name, storage, alpha, begin, width, team, turns)


def _part_variant(kernel: Kernel, storage: str, alpha: str, extent: Extent, limits: Limits, aligned: bool) -> Variant:
    """The variant of a kernel whose workgroups take parts of rows: one team, which keeps nothing."""
    if _whole_words(storage, extent.d, limits) > 1:
        raise ShapeError(
            f"[{kernel.name}] expected rows of 16-bit elements that share no word, an even d, got {extent.d:,}:"
            f" use {kernel.name.removesuffix('_parts')}"
        )
    width, begin = _cell_width(storage, extent.d, limits, aligned)
    rounds = math.ceil(extent.part / width) + extent.parts  # its cells, then its row's parts
    team = SOFTWARE_TEAM if limits.software else min(HARDWARE_GROUP, _most_threads(limits))
    team = _widened(team, rounds, width, 1, limits)
    return Variant(kernel.name, storage, alpha, begin, width, team, 1, subgroup=team == limits.subgroup)


def split(storage: str, extent: Extent, limits: Limits) -> int:
    """The parts that a row is cut into, so that few long rows use the whole device; 1 for any others.

    A device has one number for a d. Not 16-bit rows of odd d on bindings: two of them share a word. Nor rows on the CPU
    device: NumPy loses more by one pass more over a row than a second core gains.
    """
    if extent.d < LONG_D or extent.rows >= FEW_ROWS[limits.software]:
        return 1
    if (limits.software and limits.pointers) or _whole_words(storage, extent.d, limits) > 1:
        return 1
    return min(math.ceil(extent.d / PART[limits.software]), MOST_PARTS)


def one_pass(storage: str, extent: Extent, limits: Limits, aligned: bool = True) -> bool:
    """Whether `layer_norm_grads` may give all of a LayerNorm's gradients at once.

    Its rows are not so long that a thread would spill its columns' sums, and a chunk of them not so many that a
    thread's loops would have to be cut. Rows that share a word go one after another, which would leave a GPU's teams
    idle. Few long rows are cut into parts instead.
    """
    if split(storage, extent, limits) > 1:
        return False
    shape = _row_shape(storage, extent.d, limits, aligned)
    if shape.elements > SUMMED_ELEMENTS[limits.software] or (shape.begin == "half" and not limits.software):
        return False
    if shape.thread_cells > SUMMED_CELLS and not limits.software:
        return False
    return extent.per * _iterations(shape.cells, shape.team, 1) <= limits.loop_iterations


def chunk_turns(storage: str, extent: Extent, limits: Limits) -> int:
    """How many teams walk a chunk's rows by turns: team t sums rows t, t + turns …, and then their sums are added in
    order. One where a window may end inside a chunk, whose sums then go on from what is there."""
    if limits.software:
        return 1
    step = math.lcm(_whole_words(storage, extent.d, limits), max(extent.per, 1))
    room = limits.binding_bytes - limits.binding_alignment - CELL_BYTES
    longest = max(extent.d, 2) * STORAGE["float32"].itemsize  # a row, or its (mean, r)
    if step * longest > room or step * extent.d > limits.dispatch_elements or step > limits.loop_iterations:
        return 1
    return max(1, min(CHUNK_GROUP, _most_threads(limits)) // _row_shape(storage, extent.d, limits, True).team)


@dataclass(frozen=True)
class _RowShape:
    begin: str
    width: int
    cells: int
    team: int

    @property
    def thread_cells(self) -> int:
        """Cells of a row that a thread takes."""
        return math.ceil(self.cells / self.team)

    @property
    def elements(self) -> int:
        """Elements of a row that a thread takes."""
        return self.thread_cells * self.width


def _row_shape(storage: str, d: int, limits: Limits, aligned: bool) -> _RowShape:
    width, begin = _cell_width(storage, d, limits, aligned)
    cells = math.ceil(d / width)  # as many where a row begins one element inside its first: d is odd there
    return _RowShape(begin, width, cells, _team(cells, width, _whole_words(storage, d, limits), limits))


def _whole_words(storage: str, d: int, limits: Limits) -> int:
    """The rows that make up whole words, which one team has to write: windows and blocks are a multiple of these."""
    return 2 if not limits.pointers and d % 2 == 1 and STORAGE[storage].itemsize == 2 else 1


def _cell_width(storage: str, d: int, limits: Limits, aligned: bool) -> tuple[int, str]:
    """The elements of a cell, and what rows begin with."""
    if limits.pointers:
        whole = CELL_BYTES // STORAGE[storage].itemsize
        return (whole, "cell") if aligned and d % whole == 0 else (1, "word")
    if d % CELL == 0:
        return CELL, "cell"
    return CELL, "word" if _whole_words(storage, d, limits) == 1 else "half"


def _kept_operands(shape: _RowShape, limits: Limits) -> int:
    """Operands of a row that stay in a thread's registers, by its elements of each."""
    if limits.software:
        return 2 if shape.elements <= SOFTWARE_KEPT else 0
    if shape.elements > HARDWARE_KEPT_OF_ONE or shape.thread_cells > HARDWARE_CELLS:
        return 0
    return 2 if shape.elements <= HARDWARE_KEPT else 1


def _team(cells: int, width: int, rows_in_turn: int, limits: Limits) -> int:
    widest = min(WIDEST_TEAM, _most_threads(limits))
    team, easy = (SOFTWARE_TEAM, SOFTWARE_EASY) if limits.software else (HARDWARE_TEAM, EASY_ELEMENTS)
    elements = cells * width
    # A CPU adapter's team is wider only where that keeps a row that would have to be read again.
    grows = not limits.software or SOFTWARE_TEAM * SOFTWARE_KEPT < elements <= widest * SOFTWARE_KEPT
    while grows and elements > team * easy and team < widest:
        team *= 2
    return _widened(team, cells, width, rows_in_turn, limits)


def _widened(team: int, cells: int, width: int, rows_in_turn: int, limits: Limits) -> int:
    """`team`, or one so wide that no thread goes round too often."""
    widest = min(WIDEST_TEAM, _most_threads(limits))
    while _iterations(cells, team, rows_in_turn) > limits.loop_iterations and team < widest:
        team *= 2
    if _iterations(cells, team, rows_in_turn) > limits.loop_iterations:
        longest = limits.loop_iterations // (LOOPS_PER_ROW * rows_in_turn) * widest * width
        raise ShapeError(
            f"expected rows of at most about {longest:,} elements, got {cells * width:,}: split the last axis"
        )
    return team


def _most_threads(limits: Limits) -> int:
    """Threads of a workgroup at most: each has half a vec4f in each of two arrays (team/shared, turns/shared), and a
    word for its team."""
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


_WINDOWS: Final = {
    "layer_norm_grads": _params_windows,
    "layer_norm_params": _params_windows,
    "sum_partials": _chunk_windows,
}


def _most_rows(kernel: Kernel, variant: Variant, extent: Extent, limits: Limits) -> int:
    room = limits.binding_bytes - limits.binding_alignment - CELL_BYTES
    longest = max(_step_bytes(buffer, variant, extent) for buffer in kernel.buffers if buffer.axes[0] == "rows")
    for buffer in kernel.buffers:
        if buffer.axes == ("d",) and _step_bytes(buffer, variant, extent) > room:
            raise ShapeError(
                f"expected {buffer.name} to fit a binding of {limits.binding_bytes:,} bytes, got d = {extent.d:,}"
            )
    most = min(room // longest, max(limits.dispatch_elements // extent.d, 1))
    if "per" in kernel.meta:
        rounds = _iterations(math.ceil(extent.d / variant.width), variant.team, 1) if "row" in kernel.parts else 1
        if extent.per * rounds > limits.loop_iterations:
            most = min(most, max(1, limits.loop_iterations // rounds))
    step = row_step(variant.storage, extent, limits) if "per" in kernel.meta else variant.rows_in_turn
    most = max(most, step) // step * step
    if most * longest > room:
        raise ShapeError(
            f"expected rows of which {step} fit a binding of {limits.binding_bytes:,} bytes,"
            f" got {longest:,} bytes a row: split the last axis"
        )
    return most


def row_step(storage: str, extent: Extent, limits: Limits) -> int:
    """Blocks of an array's rows are a multiple of this many, so that they change no bit of a sum.

    Each begins with a word, and with a chunk where teams walk a chunk's rows by turns.
    """
    turns = chunk_turns(storage, extent, limits)
    return math.lcm(_whole_words(storage, extent.d, limits), max(extent.per, 1) if turns > 1 else 1)


def _most_chunks(d: int, limits: Limits) -> int:
    room = limits.binding_bytes - limits.binding_alignment - CELL_BYTES
    if 8 * d > room:
        raise ShapeError(
            f"expected 2 × d float32 sums to fit a binding of {limits.binding_bytes:,} bytes, got d = {d:,}"
        )
    return min(room // (8 * d), limits.loop_iterations)


def _dispatch(
    kernel: Kernel, variant: Variant, extent: Extent, window: _Window, phase: int, limits: Limits
) -> Dispatch:
    slices = {}
    values = {
        "rows": extent.rows,
        "d": extent.d,
        "per": extent.per,
        "part": extent.part,
        "parts": extent.parts,
        "phase": phase,
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
    grid = _fold(_group_count(kernel, variant, extent, window), limits)
    return Dispatch(grid, slices, fields, max(window.row_count, 2 * window.chunk_count) * extent.d)


def _bound_part(buffer: Buffer, variant: Variant, extent: Extent, window: _Window, limits: Limits) -> tuple[Slice, int]:
    """The part of a buffer that `window` needs, and the element of it at which the window begins."""
    step = _step_bytes(buffer, variant, extent)
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


def _step_bytes(buffer: Buffer, variant: Variant, extent: Extent) -> int:
    """Bytes of one step along the first axis; of the whole buffer where that is neither rows nor chunks."""
    tail = buffer.axes[1:] if buffer.axes[0] in ("rows", "chunks") else buffer.axes
    lengths = {"d": extent.d, "parts": extent.parts}
    count = math.prod(axis if isinstance(axis, int) else lengths[axis] for axis in tail)
    return count * element_bytes(buffer, variant)


def element_name(buffer: Buffer, variant: Variant) -> str:
    """The name of the type of `buffer`'s elements."""
    return {"F": variant.storage, "A": variant.alpha}.get(buffer.element, buffer.element)


def element_bytes(buffer: Buffer, variant: Variant) -> int:
    """Bytes of an element of `buffer`."""
    return STORAGE[element_name(buffer, variant)].itemsize


def _group_count(kernel: Kernel, variant: Variant, extent: Extent, window: _Window) -> int:
    if "sums" in kernel.parts:
        return window.chunk_count
    if kernel.phases > 1:
        return window.row_count * extent.parts
    if "row" in kernel.parts:
        return math.ceil(window.row_count / (variant.teams * variant.rows_in_turn))
    if "partial" in kernel.parts:
        units = window.chunk_count * math.ceil(extent.d / variant.width)
        return math.ceil(units / variant.team)
    return math.ceil(extent.d / variant.threads)


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
