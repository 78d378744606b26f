"""The CPU back end: the kernels' twins in NumPy, block by block on a pool of threads.

It runs the same calls as a GPU does, on the same layouts. A new buffer is full of NaN, so that an element that a kernel
forgets shows. Blocks are sized to stay in a core's cache; NumPy lets go of the interpreter while it computes.
"""

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..contract import KERNELS, STORAGE
from ..device import Adopted, Candidate, DeviceInfo, Missing
from ..errors import DTypeError, OutOfMemory
from ..plan import UNLIMITED, Extent, Limits, Plan, element_name

BLOCK_ELEMENTS: Final = 1 << 16
"""Elements of a block: a few float32 temporaries of it fit a second-level cache."""

Singles = npt.NDArray[np.float32]
Operands = Mapping[str, npt.NDArray[Any]]

_SMALL: Final = np.float32(2.0**-80)
_OVERFLOWING: Final = np.float32(2.0**120)


def survey() -> tuple[list[Candidate], list[Missing]]:
    """The processor, always there."""
    name = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, NumPy {np.__version__}"
    return [Candidate(DeviceInfo("cpu", "cpu", "numpy", name, "cpu"), CPUBackend)], []


class CPUBackend:
    """The processor: launches are done when they return."""

    shares_memory = True
    limits: Limits = replace(UNLIMITED, software=True)

    def __init__(self) -> None:
        self._workers = os.cpu_count() or 1
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
        lengths = {"rows": extent.stop - extent.start, "d": extent.d, "chunks": extent.chunks}
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

    def layer_norm_grads(self, operands: Operands, extent: Extent) -> None:
        """Twin of layer_norm_grads.wgsl; the chunks are shared out over the pool."""
        self._by_chunks(_grads_chunk, operands, extent)

    def layer_norm_stats(self, operands: Operands, extent: Extent) -> None:
        """Twin of layer_norm_stats.wgsl."""
        self._by_rows(_stats_block, operands, extent)

    def layer_norm_params(self, operands: Operands, extent: Extent) -> None:
        """Twin of layer_norm_params.wgsl; the chunks are shared out over the pool."""
        self._by_chunks(_params_chunk, operands, extent)

    def sum_partials(self, operands: Operands, extent: Extent) -> None:
        """Twin of sum_partials.wgsl."""
        partial = operands["partial"]
        for index, name in enumerate(("dalpha", "dbeta")):
            total = operands[name]
            total[:] = 0
            with np.errstate(all="ignore"):
                for chunk in range(extent.chunks):
                    total += partial[chunk, index]

    def _by_rows(self, block: Callable[[Operands], None], operands: Operands, extent: Extent) -> None:
        """Runs `block` on slices of the operands that have rows."""
        rows = extent.stop - extent.start
        step = max(1, BLOCK_ELEMENTS // extent.d)
        whole = {name: array for name, array in operands.items() if name in ("alpha", "eps")}

        def run(start: int) -> None:
            part = slice(start, start + step)
            block({name: array if name in whole else array[part] for name, array in operands.items()})

        self._share_out(run, range(0, rows, step))

    def _by_chunks(
        self, chunk_sums: Callable[[Operands, Extent, int], None], operands: Operands, extent: Extent
    ) -> None:
        """Runs `chunk_sums` on every chunk that has rows in `extent`, and at the array's end on those without rows."""
        first = extent.start // extent.per if extent.per else 0
        last = extent.chunks if extent.stop == extent.rows else -(-extent.stop // extent.per)
        self._share_out(lambda chunk: chunk_sums(operands, extent, chunk), range(first, last))

    def _share_out(self, task: Callable[[int], None], items: range) -> None:
        def run(item: int) -> None:
            with np.errstate(all="ignore"):  # the thread's own; Inf and NaN are results like any other
                task(item)

        if len(items) == 1:
            run(items[0])
            return
        futures = []
        for item in items:
            try:
                futures.append(self._pool.submit(run, item))
            except RuntimeError:  # the interpreter is ending, and so has the pool
                run(item)
        for future in futures:
            future.result()


_TWINS: Final = {name: getattr(CPUBackend, name) for name in KERNELS}


def _softmax_block(block: Operands) -> None:
    y, dy = _widen(block["y"]), _widen(block["dy"])
    inner = _row_sum(y * dy)
    result = dy - inner
    result *= y
    block["dx"][...] = result


def _layer_norm_block(block: Operands) -> None:
    xhat, r = _normalised(block)
    dy = _widen(block["dy"])
    _input_gradient(block, dy, xhat, r)


def _input_gradient(block: Operands, dy: Singles, xhat: Singles, r: Singles) -> None:
    """Sets dx; `xhat` is used up."""
    u = dy * _widen(block["alpha"])
    u_mean = _row_mean(u).astype(np.float32)
    ux_mean = _row_mean(u * xhat).astype(np.float32)
    u -= u_mean
    xhat *= ux_mean
    u -= xhat
    u *= r
    block["dx"][...] = u


def _stats_block(block: Operands) -> None:
    _normalised(block)


def _normalised(block: Operands) -> tuple[Singles, Singles]:
    """x̂ and r; sets `stats`. The corrected two-pass algorithm of lib/statistics.wgsl, row scalars in float64."""
    x = _widen(block["x"])
    near = _row_sum(x) / np.float32(x.shape[1])
    centred = x - near
    rest = _row_mean(centred)
    square = _row_mean(centred * centred)
    eps = float(block["eps"][0])
    deviation = np.sqrt(np.maximum(square - rest**2, 0) + eps)
    overflowing = ~(square + eps < _OVERFLOWING)
    if overflowing.any():
        small = centred * _SMALL
        small_square = np.maximum(_row_mean(small * small) - (rest * _SMALL) ** 2, 2.0**-100)
        small_deviation = np.sqrt(small_square + eps * float(_SMALL) ** 2)
        deviation = np.where(overflowing, small_deviation / _SMALL, deviation)
    r = (1 / deviation).astype(np.float32)
    block["stats"][:, :1] = near + rest
    block["stats"][:, 1:] = r
    centred -= rest.astype(np.float32)
    centred *= r
    return centred, r


def _params_chunk(operands: Operands, extent: Extent, chunk: int) -> None:
    """Goes on with a chunk's sums over those of its rows that are at hand, block by block, row after row."""
    partial = operands["partial"][chunk]
    for rows in _chunk_blocks(partial, extent, chunk):
        _add_to_sums(partial, _widen(operands["x"][rows]), _widen(operands["dy"][rows]), operands["stats"][rows])


def _add_to_sums(partial: Singles, x: Singles, dy: Singles, stats: Singles) -> None:
    """Goes on with Σ dy x̂ and Σ dy, row after row."""
    xhat = x - stats[:, :1]
    xhat *= stats[:, 1:]
    xhat *= dy
    _add_rows(partial[0], xhat)
    _add_rows(partial[1], dy)


def _grads_chunk(operands: Operands, extent: Extent, chunk: int) -> None:
    """A chunk's dx and stats besides its sums, all from one look at a block."""
    partial = operands["partial"][chunk]
    for rows in _chunk_blocks(partial, extent, chunk):
        block = {name: operands[name][rows] for name in ("x", "dy", "dx", "stats")}
        block |= {name: operands[name] for name in ("alpha", "eps")}
        xhat, r = _normalised(block)
        dy = _widen(block["dy"])
        _add_to_sums(partial, _widen(block["x"]), dy, block["stats"])
        _input_gradient(block, dy, xhat, r)


def _chunk_blocks(partial: Singles, extent: Extent, chunk: int) -> Iterator[slice]:
    """Blocks of a chunk's rows in the buffers; sets `partial` to 0 where the chunk begins."""
    begin = chunk * extent.per
    start, stop = max(begin, extent.start), min(begin + extent.per, extent.stop)
    if begin == start or start >= stop:
        partial[...] = 0
    step = max(1, BLOCK_ELEMENTS // extent.d)
    for first in range(start - extent.start, stop - extent.start, step):
        yield slice(first, min(first + step, stop - extent.start))


def _add_rows(total: Singles, rows: Singles) -> None:
    """total += each row, in order."""
    if total.size == 1:  # NumPy would sum a single column pairwise
        total[...] = np.add.accumulate(np.concatenate([total[None], rows]), axis=0)[-1]
    else:
        total[...] = np.add.reduce(np.concatenate([total[None], rows]), axis=0)


def _row_sum(block: Singles) -> Singles:
    """The sum of each row as a column; NumPy sums the last axis pairwise."""
    return np.add.reduce(block, axis=1, keepdims=True)


def _row_mean(block: Singles) -> npt.NDArray[np.float64]:
    """The mean of each row as a column: a float32 sum, divided in float64."""
    mean: npt.NDArray[np.float64] = _row_sum(block).astype(np.float64) / block.shape[1]
    return mean


def _widen(array: npt.NDArray[Any]) -> Singles:
    return array.astype(np.float32, copy=False)
