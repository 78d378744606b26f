"""The CPU back end: the kernels' twins in NumPy, block by block on a pool of threads.

It runs the same calls as a GPU does, on the same layouts. A new buffer is full of NaN, so that an element that a kernel
forgets shows. Blocks are about a cache's size; NumPy lets go of the interpreter while it computes.
"""

import functools
import os
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..contract import KERNELS, STORAGE
from ..device import Adopted, Candidate, DeviceInfo, Missing
from ..errors import DTypeError, OutOfMemory
from ..plan import UNLIMITED, Extent, Limits, Plan, element_name

BLOCK_ELEMENTS: Final = 1 << 17
"""Elements of a block: the few float32 arrays of it that a thread works on stay in a cache, and what NumPy's calls cost
besides their work does not weigh."""

CHUNK_BLOCK_ELEMENTS: Final = 2 * BLOCK_ELEMENTS
"""The same where chunks are summed and every thread has as many: LayerNorm in one pass takes twenty calls of NumPy's a
block, and each gives the interpreter back and waits for it again, which costs two threads more than arrays that leave a
cache."""

LONG_ROW: Final = 512
"""From this d on NumPy's buffer is as short as this. Where rows are shorter than the buffer, NumPy copies each scalar
of a column through it before it is broadcast over a row; for long rows that costs more than it saves."""

Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Operands = Mapping[str, npt.NDArray[Any]]

_SMALL: Final = np.float32(2.0**-80)
_OVERFLOWING: Final = np.float32(2.0**120)


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def survey() -> tuple[list[Candidate], list[Missing]]:
    """The processor, always there."""
    name = f"{platform.processor() or platform.machine()}, {cores()} cores, NumPy {np.__version__}"
    return [Candidate(DeviceInfo("cpu", "cpu", "numpy", name, "cpu"), CPUBackend)], []


class CPUBackend:
    """The processor: launches are done when they return."""

    shares_memory = True
    limits: Limits = replace(UNLIMITED, software=True)

    def __init__(self) -> None:
        self._workers = cores()
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="rowgrad_wgpu")

    def allocate(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """A buffer full of NaN, whatever type it is read as."""
        try:
            return np.full(nbytes, 0xFF, np.uint8)
        except MemoryError as error:
            raise OutOfMemory(f"the host has no room for {nbytes:,} bytes: use fewer rows") from error

    def write(self, buffer: npt.NDArray[np.uint8], data: npt.NDArray[np.uint8]) -> None:
        """Copies."""
        buffer[: data.nbytes] = data

    def read(self, buffer: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8], deadline: float) -> None:
        """Copies."""
        out[:] = buffer[: out.nbytes]

    def launch(self, plan: Plan, buffers: Mapping[str, Any]) -> None:
        """Runs the twin of the kernel."""
        kernel = KERNELS[plan.variant.kernel]
        extent = plan.extent
        rows = extent.stop - extent.start
        lengths = {"rows": rows, "d": extent.d, "chunks": extent.chunks, "parts": extent.parts}
        operands = {}
        for buffer in kernel.buffers:
            shape = tuple(lengths.get(str(axis), axis) for axis in buffer.axes)
            dtype = STORAGE[element_name(buffer, plan.variant)]
            count = int(np.prod(shape, dtype=np.int64))  # type: ignore[arg-type]
            operands[buffer.name] = buffers[buffer.name][: count * dtype.itemsize].view(dtype).reshape(shape)
        try:
            _TWINS[kernel.name](self, operands, extent)
        except MemoryError as error:
            raise OutOfMemory("the host has no room for a block's temporaries") from error

    def submit(self) -> None:
        """Nothing waits."""

    def wait(self, deadline: float) -> None:
        """Nothing is under way."""

    def adopt(self, value: Any) -> Adopted:
        """Nothing of a GPU's memory can be used here."""
        raise DTypeError(
            f"expected a NumPy array or an Array, got {type(value).__name__} in a GPU's memory: copy it first"
        )

    def export(self, buffer: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """No other library can read the buffer."""
        raise BufferError("expected an Array on CUDA or ROCm, got one that lies in the host's memory: use .numpy()")

    def describe(self) -> dict[str, Any]:
        """The pool's size and NumPy's version."""
        return {"threads": self._workers, "numpy": np.__version__}

    def close(self) -> None:
        """Ends the pool."""
        self._pool.shutdown(wait=True)

    def softmax_back(self, operands: Operands, extent: Extent) -> None:
        """Twin of softmax_back.wgsl."""
        self._by_rows(_softmax_block, operands, extent)

    def layer_norm_back(self, operands: Operands, extent: Extent) -> None:
        """Twin of layer_norm_back.wgsl."""
        self._by_rows(_layer_norm_block, operands, extent)

    def softmax_back_parts(self, operands: Operands, extent: Extent) -> None:
        """Twin of softmax_back_parts.wgsl."""
        self._by_parts((_sum_products, _write_softmax), operands, extent)

    def layer_norm_back_parts(self, operands: Operands, extent: Extent) -> None:
        """Twin of layer_norm_back_parts.wgsl."""
        self._by_parts((_sum_x, _sum_missed, _sum_gradient, _write_gradient), operands, extent)

    def layer_norm_stats_parts(self, operands: Operands, extent: Extent) -> None:
        """Twin of layer_norm_stats_parts.wgsl."""
        self._by_parts((_sum_x, _sum_missed, _write_statistics), operands, extent)

    def layer_norm_grads(self, operands: Operands, extent: Extent) -> None:
        """Twin of layer_norm_grads.wgsl; the chunks are shared out over the pool."""
        self._by_chunks(_grads_block, operands, extent)

    def layer_norm_stats(self, operands: Operands, extent: Extent) -> None:
        """Twin of layer_norm_stats.wgsl."""
        self._by_rows(_stats_block, operands, extent)

    def layer_norm_params(self, operands: Operands, extent: Extent) -> None:
        """Twin of layer_norm_params.wgsl; the chunks are shared out over the pool."""
        self._by_chunks(_params_block, operands, extent)

    def rms_norm_back(self, operands: Operands, extent: Extent) -> None:
        """Twin of rms_norm_back.wgsl."""
        self._by_rows(_rms_norm_block, operands, extent)

    def sum_partials(self, operands: Operands, extent: Extent) -> None:
        """Twin of sum_partials.wgsl."""
        with np.errstate(all="ignore"):
            operands["dalpha"][:], operands["dbeta"][:] = np.add.reduce(operands["partial"], axis=0)

    def _by_rows(self, block: Callable[[Operands], None], operands: Operands, extent: Extent) -> None:
        """Runs `block` on blocks of rows."""
        step = _block_rows(BLOCK_ELEMENTS, extent.d)

        def run(start: int) -> None:
            block(_part(operands, slice(start, start + step)))

        self._share_out(run, range(0, extent.stop - extent.start, step), extent.d)

    def _by_parts(self, phases: Sequence[Callable[["_RowPart"], None]], operands: Operands, extent: Extent) -> None:
        """Runs one phase after the other, each on every part of every row; the parts are shared out over the pool."""
        operands["sums"][...] = 0
        parts = [_RowPart(operands, extent, unit) for unit in range((extent.stop - extent.start) * extent.parts)]

        def run(unit: int, phase: Callable[[_RowPart], None]) -> None:
            phase(parts[unit])

        for phase in phases:
            self._share_out(functools.partial(run, phase=phase), range(len(parts)), extent.part)

    def _by_chunks(
        self, block: Callable[[Operands], tuple[Singles, Singles]], operands: Operands, extent: Extent
    ) -> None:
        """Adds up what `block` gives of the rows of each chunk; a chunk without rows is 0.

        A thread takes as many chunks as a block holds, or one chunk block by block.
        """
        partial, per = operands["partial"], max(extent.per, 1)
        if extent.stop == extent.rows:
            partial[-(-extent.rows // per) :] = 0
        share = (extent.stop - extent.start) * extent.d // self._workers
        step = _block_rows(min(max(share, BLOCK_ELEMENTS), CHUNK_BLOCK_ELEMENTS), extent.d)
        chunks = max(1, step // per)

        def run(chunk: int) -> None:
            stop = min((chunk + chunks) * per, extent.stop)
            for first in range(max(chunk * per, extent.start), stop, step):
                rows = slice(first - extent.start, min(first + step, stop) - extent.start)
                for index, terms in enumerate(block(_part(operands, rows))):
                    _add_up(terms, partial[:, index], first, per)

        self._share_out(run, range(extent.start // per, -(-extent.stop // per), chunks), extent.d)

    def _share_out(self, task: Callable[[int], None], items: range, d: int) -> None:
        """Runs `task` on every item; a thread that is done takes the next. All have ended when it returns or raises."""
        left, lock = iter(items), threading.Lock()

        def take() -> int | None:
            with lock:
                return next(left, None)

        def work() -> None:
            with np.errstate(all="ignore"):  # the thread's own, the buffer too; Inf and NaN are results like any other
                if d >= LONG_ROW:
                    np.setbufsize(LONG_ROW)
                while (item := take()) is not None:
                    task(item)

        if len(items) == 1:
            work()
            return
        workers = []
        try:
            for _ in range(min(self._workers, len(items))):
                workers.append(self._pool.submit(work))
        except RuntimeError:  # the interpreter is ending, and so has the pool
            work()
        wait(workers)
        for worker in workers:
            worker.result()


_TWINS: Final = {name: getattr(CPUBackend, name) for name in KERNELS}


def _block_rows(elements: int, d: int) -> int:
    return max(1, elements // d)


def _part(operands: Operands, rows: slice) -> Operands:
    """The operands with those rows alone, the inputs widened."""
    block = {name: array if name in ("alpha", "eps") else array[rows] for name, array in operands.items()}
    return block | {name: _widened(block[name]) for name in block.keys() & {"y", "x", "dy", "alpha"}}


def _widened(array: npt.NDArray[Any]) -> Singles:
    if array.dtype != STORAGE["bfloat16"]:
        return array.astype(np.float32, copy=False)
    bits = array.view(np.uint16).astype(np.uint32)  # the upper half of a float32's: twice as fast as a cast
    bits <<= 16
    return bits.view(np.float32)


def _softmax_block(block: Operands) -> None:
    y, dy = block["y"], block["dy"]
    products = y * dy
    difference = np.subtract(dy, _row_sums(products), out=products)
    np.multiply(difference, y, out=block["dx"])


def _layer_norm_block(block: Operands) -> None:
    xhat, r = _normalised(block)
    _input_gradient(block, xhat, r)


def _rms_norm_block(block: Operands) -> None:
    x = block["x"]
    r = _inverse_deviation(x, np.zeros(1), _row_means(x * x), float(block["eps"][0]))
    block["stats"][:, :1] = 0
    block["stats"][:, 1:] = r
    _input_gradient(block, x * r, r, centred=False)


def _input_gradient(block: Operands, xhat: Singles, r: Singles, centred: bool = True) -> None:
    """Sets dx; `xhat` is used up. The mean of u is taken off where the layer is `centred`."""
    dx = block["dx"]
    u = np.multiply(block["dy"], block["alpha"], out=dx if dx.dtype == np.float32 else None)
    u_mean = _row_means(u).astype(np.float32) if centred else np.float32(0)
    ux_mean = _row_means(u * xhat).astype(np.float32)
    u -= u_mean
    xhat *= ux_mean
    u -= xhat
    np.multiply(u, r, out=dx)


class _RowPart:
    """A part of a row: what it holds of the operands, and the sums of all the row's parts."""

    def __init__(self, operands: Operands, extent: Extent, unit: int) -> None:
        row, number = divmod(unit, extent.parts)
        columns = slice(number * extent.part, (number + 1) * extent.part)
        here: dict[str, Any] = {"alpha": columns, "eps": slice(None), "stats": row}
        self.block = {name: array[here.get(name, (row, columns))] for name, array in operands.items() if name != "sums"}
        self.sums = operands["sums"][row].reshape(extent.parts, -1, 4)  # by part, phase and place
        self.own = self.sums[number]
        self.is_first = number == 0
        self.d = extent.d

    def mean(self, phase: int, place: int) -> np.float64:
        """What `phase` summed, over all parts of the row and divided by d."""
        return np.float64(np.add.reduce(self.sums[:, phase, place])) / self.d

    def statistics(self) -> tuple[np.float32, np.float32, np.float32]:
        """The first mean, what it missed, and r, as lib/statistics.wgsl has them."""
        rest, square, small_square = (self.mean(1, place) for place in range(3))
        eps = float(self.block["eps"][0])
        if square + eps < _OVERFLOWING:
            deviation = _deviation(rest, square, eps)
        else:
            deviation = _scaled_deviation(rest, small_square, eps)
        return np.float32(self.mean(0, 0)), np.float32(rest), np.float32(1 / deviation)

    def gradients(self) -> tuple[Singles, Singles, np.float32]:
        """u, x̂ and r."""
        near, rest, r = self.statistics()
        xhat = ((_widened(self.block["x"]) - near) - rest) * r
        return _widened(self.block["dy"]) * _widened(self.block["alpha"]), xhat, r


def _sum_products(part: _RowPart) -> None:
    part.own[0, 0] = np.add.reduce(_widened(part.block["y"]) * _widened(part.block["dy"]))


def _write_softmax(part: _RowPart) -> None:
    inner = np.add.reduce(part.sums[:, 0, 0])
    part.block["dx"][...] = (_widened(part.block["dy"]) - inner) * _widened(part.block["y"])


def _sum_x(part: _RowPart) -> None:
    part.own[0, 0] = np.add.reduce(_widened(part.block["x"]))


def _sum_missed(part: _RowPart) -> None:
    centred = _widened(part.block["x"]) - np.float32(part.mean(0, 0))
    small = centred * _SMALL
    part.own[1, :3] = [np.add.reduce(one) for one in (centred, centred * centred, small * small)]


def _sum_gradient(part: _RowPart) -> None:
    u, xhat, _ = part.gradients()
    part.own[2, :2] = np.add.reduce(u), np.add.reduce(u * xhat)


def _write_gradient(part: _RowPart) -> None:
    u, xhat, r = part.gradients()
    u_mean, ux_mean = np.float32(part.mean(2, 0)), np.float32(part.mean(2, 1))
    part.block["dx"][...] = r * (u - u_mean - xhat * ux_mean)
    _write_statistics(part)


def _write_statistics(part: _RowPart) -> None:
    if part.is_first:
        near, rest, r = part.statistics()
        part.block["stats"][...] = near + rest, r


def _stats_block(block: Operands) -> None:
    _normalised(block)


def _grads_block(block: Operands) -> tuple[Singles, Singles]:
    """dy x̂ and dy; sets dx and stats besides."""
    _layer_norm_block(block)
    return _params_block(block)


def _params_block(block: Operands) -> tuple[Singles, Singles]:
    """dy x̂ and dy."""
    dy, stats = block["dy"], block["stats"]
    terms = block["x"] - stats[:, :1]
    terms *= stats[:, 1:]
    terms *= dy
    return terms, dy


def _normalised(block: Operands) -> tuple[Singles, Singles]:
    """x̂ and r; sets `stats`. The corrected two-pass algorithm of lib/statistics.wgsl, row scalars in float64."""
    x = block["x"]
    near = _row_sums(x) / np.float32(x.shape[1])
    centred = x - near
    rest = _row_means(centred)
    r = _inverse_deviation(centred, rest, _row_means(centred * centred), float(block["eps"][0]))
    block["stats"][:, :1] = near + rest
    block["stats"][:, 1:] = r
    centred -= rest.astype(np.float32)
    centred *= r
    return centred, r


def _inverse_deviation(centred: Singles, rest: Doubles, square: Doubles, eps: float) -> Singles:
    """r of rows that are `centred` but for `rest`; of the scaled rows where their mean `square` overflows."""
    deviation = _deviation(rest, square, eps)
    overflowing = ~(square + eps < _OVERFLOWING)
    if overflowing.any():
        small = centred * _SMALL
        deviation = np.where(overflowing, _scaled_deviation(rest, _row_means(small * small), eps), deviation)
    r: Singles = (1 / deviation).astype(np.float32)
    return r


def _deviation(rest: Any, square: Any, eps: float) -> Any:
    """1 / r, of a row's scalars or of a column of them."""
    return np.sqrt(np.maximum(square - rest**2, 0) + eps)


def _scaled_deviation(rest: Any, small_square: Any, eps: float) -> Any:
    """The same by the mean square of the scaled row."""
    return np.sqrt(np.maximum(small_square - (rest * _SMALL) ** 2, 2.0**-100) + eps * float(_SMALL) ** 2) / _SMALL


def _add_up(terms: Singles, sums: Singles, first: int, per: int) -> None:
    """Adds rows to the sums of their chunks, one after another; `first` is the number of the first row."""
    if first % per == 0 and len(terms) % per == 0:  # whole chunks, in one call
        chunks = terms.reshape(-1, per, terms.shape[1])
        _sum_in_order(chunks, sums[first // per : first // per + len(chunks)])
        return
    for begin in range(first // per * per, first + len(terms), per):
        rows, total = terms[max(begin - first, 0) : begin + per - first], sums[begin // per]
        if begin < first:
            rows = np.concatenate([total[None], rows])
        _sum_in_order(rows, total)


def _sum_in_order(rows: Singles, out: Singles) -> None:
    """Sums columns one row after another; NumPy would sum a single column pairwise."""
    if rows.shape[-1] == 1:
        out[...] = np.add.accumulate(rows, axis=-2)[..., -1, :]
    else:
        np.add.reduce(rows, axis=-2, out=out)


def _row_sums(block: Singles) -> Singles:
    """The sum of each row as a column.

    NumPy sums the last axis pairwise. BLAS's inner products (`np.vecdot`) are faster on one thread, but were slower on
    a pool of two: softmax of 16384×1024 took 26 ms in place of 21.
    """
    return np.add.reduce(block, axis=1, keepdims=True)


def _row_means(block: Singles) -> npt.NDArray[np.float64]:
    """The mean of each row as a column: a float32 sum, divided in float64."""
    means: npt.NDArray[np.float64] = _row_sums(block).astype(np.float64) / block.shape[1]
    return means
