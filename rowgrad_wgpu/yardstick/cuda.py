"""The yardstick of a GPU through CuPy: the seed's kernels in CUDA C++, in `shaders/yardstick`, and CuPy's copy.

Blocks and buffers are the seed's; the sum of the partials, which its host does, is a kernel of one thread a column.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, cast

import numpy as np

from ..backends.cuda import CUDABackend
from ..contract import chunk_count, storage_name
from ..device import Array, Device
from ..source import shader_text
from ..yardstick import Launch

NT: Final = 256
"""Threads of a block, whatever d."""


class _Step(NamedTuple):
    function: Any
    blocks: int
    arguments: tuple[Any, ...]


class SeedPort:
    """The seed's kernels on a GPU through CuPy."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._backend = cast(CUDABackend, device._backend)
        self._cupy = self._backend._cupy

    def copy(self, source: Array, target: Array) -> Launch:
        """A copy within the GPU's memory."""
        to, given = (one._buffer[: source.nbytes] for one in (target, source))

        def launch() -> None:
            with self._backend._on_device("copying"):
                self._cupy.copyto(to, given)

        return launch

    def softmax_back(self, y: Array, dy: Array, dx: Array) -> Launch:
        """A block for each row."""
        rows, d = y.shape
        function = self._function("softmax_back", storage_name(y.dtype))
        return partial(self._run, [_Step(function, rows, (*_buffers(y, dy, dx), np.int32(d)))])

    def layer_norm_back(
        self, x: Array, dy: Array, alpha: Array, eps: float, dx: Array, dalpha: Array, dbeta: Array
    ) -> Launch:
        """dx and the statistics, the partials, their sum."""
        rows, d = x.shape
        storage = storage_name(x.dtype)
        chunks = chunk_count(rows)
        across = math.ceil(d / NT)
        stats = self._device.empty((rows, 2), np.float32)
        partials = self._device.empty((chunks, 2, d), np.float32)
        added = self._device.asarray(np.array([eps], np.float32))
        sizes = (np.int64(rows), np.int32(d), np.int64(math.ceil(rows / chunks)))
        steps = [
            _Step(
                self._function("layer_norm_back", storage),
                rows,
                (*_buffers(x, dy, alpha, added, dx, stats), np.int32(d)),
            ),
            _Step(
                self._function("layer_norm_params", storage),
                across * chunks,
                (*_buffers(x, dy, stats, partials), *sizes),
            ),
            _Step(
                self._function("sum_partials", "float32"),
                across,
                (*_buffers(partials, dalpha, dbeta), np.int32(chunks), np.int32(d)),
            ),
        ]
        return partial(self._run, steps)

    def clock(self) -> "Events":
        """CUDA's events."""
        return Events(self._backend)

    def _function(self, kernel: str, storage: str) -> Any:
        parts = ["lib/gpu.cuh", f"lib/storage/{storage}.cuh", "lib/cell.cuh", "yardstick/total.cuh"]
        constants = f"constexpr int THREADS = {NT}, WIDTH = 1;"
        code = "\n".join([constants, *map(shader_text, [*parts, f"yardstick/{kernel}.cu"])])
        with self._backend._on_device(f"compiling {kernel}"):
            return self._cupy.RawModule(code=code).get_function(kernel)

    def _run(self, steps: list[_Step]) -> None:
        with self._backend._on_device("launching the yardstick"):
            for step in steps:
                step.function((step.blocks,), (NT,), step.arguments)


class Events:
    """Events on the current stream, before and after what is queued."""

    def __init__(self, backend: CUDABackend) -> None:
        self._backend, self._cuda = backend, backend._cupy.cuda

    def ms(self, run: Callable[[], None]) -> float:
        """Milliseconds between the two events."""
        with self._backend._on_device("timing"):
            begin, end = self._cuda.Event(), self._cuda.Event()
            begin.record()
            run()
            end.record()
            end.synchronize()
            return float(self._cuda.get_elapsed_time(begin, end))


def _buffers(*arrays: Array) -> tuple[Any, ...]:
    return tuple(array._buffer for array in arrays)
