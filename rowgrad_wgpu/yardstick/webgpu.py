"""The yardstick of a WebGPU device: the seed's kernels in WGSL, in `shaders/yardstick`, and a copy by the queue.

Grids, workgroups and buffers are the seed's; the sum of the partials, which its host does, is a kernel of one thread a
column. Rows that cannot be bound at once go out in windows. WGSL stores whole words, so 16-bit rows of odd d, whose
neighbours share one, are not taken.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

import numpy as np
import wgpu
import wgpu.backends.wgpu_native as native

from ..backends.webgpu import WebGPUBackend
from ..contract import chunk_count, storage_name
from ..device import Array, Device
from ..source import shader_text
from ..yardstick import Launch

NT: Final = 256
"""Threads of a workgroup, whatever d."""


class _Dispatch(NamedTuple):
    pipeline: Any
    group: Any
    grid: tuple[int, int]


class SeedPort:
    """The seed's kernels on a WebGPU device."""

    def __init__(self, device: Device) -> None:
        self._device, self._limits = device, device.limits
        self._gpu = cast(WebGPUBackend, device._backend)._device

    def copy(self, source: Array, target: Array) -> Launch:
        """The queue's copy of a buffer."""

        def launch() -> None:
            encoder = self._gpu.create_command_encoder()
            encoder.copy_buffer_to_buffer(
                source._buffer.native, 0, target._buffer.native, 0, math.ceil(source.nbytes / 4) * 4
            )
            self._gpu.queue.submit([encoder.finish()])

        return launch

    def softmax_back(self, y: Array, dy: Array, dx: Array) -> Launch | None:
        """A workgroup for each row."""
        rows, d = y.shape
        row = d * y.dtype.itemsize
        if row % 4:
            return None
        pipeline = self._pipeline("softmax_back", storage_name(y.dtype))
        dispatches = []
        for part in self._windows(rows, [row]):
            bindings = [_bound(one, part, row) for one in (y, dy, dx)]
            dispatches.append(self._dispatch(pipeline, bindings, [d], (len(part), 1)))
        return partial(self._run, dispatches)

    def layer_norm_back(
        self, x: Array, dy: Array, alpha: Array, eps: float, dx: Array, dalpha: Array, dbeta: Array
    ) -> Launch | None:
        """dx and the statistics, the partials, their sum: one submission."""
        if x.shape[1] * x.dtype.itemsize % 4:
            return None
        rows, d = x.shape
        stats = self._device.empty((rows, 2), np.float32)
        partials = self._device.empty((chunk_count(rows), 2, d), np.float32)
        dispatches = [
            *self._rows(x, dy, alpha, self._device.asarray(np.array([eps], np.float32)), dx, stats),
            *self._columns(x, dy, stats, partials),
            self._dispatch(
                self._pipeline("sum_partials", "float32"),
                [_whole(one) for one in (partials, dalpha, dbeta)],
                [len(partials), d],
                (math.ceil(d / NT), 1),
            ),
        ]
        return partial(self._run, dispatches)

    def clock(self) -> "Timestamps | None":
        """Timestamps of the queue, where the adapter has them and they run."""
        if "timestamp-query" not in self._gpu.features:
            return None
        clock = Timestamps(self._device, self._gpu)
        return clock if clock.runs() else None

    def _rows(self, x: Array, dy: Array, alpha: Array, eps: Array, dx: Array, stats: Array) -> Iterator[_Dispatch]:
        """A workgroup for each row."""
        rows, d = x.shape
        row = d * x.dtype.itemsize
        pipeline = self._pipeline("layer_norm_back", storage_name(x.dtype))
        for part in self._windows(rows, [row, 8]):
            bindings = [
                *(_bound(one, part, row) for one in (x, dy)),
                *(_whole(one) for one in (alpha, eps)),
                _bound(dx, part, row),
                _bound(stats, part, 8),
            ]
            yield self._dispatch(pipeline, bindings, [d], (len(part), 1))

    def _columns(self, x: Array, dy: Array, stats: Array, partials: Array) -> Iterator[_Dispatch]:
        """A thread for each column of each chunk."""
        rows, d = x.shape
        chunks = len(partials)
        per = math.ceil(rows / chunks)
        chunk = per * d * x.dtype.itemsize
        pipeline = self._pipeline("layer_norm_params", storage_name(x.dtype))
        for part in self._windows(chunks, [chunk, 8 * per, 8 * d]):
            bindings = [
                *(_bound(one, part, chunk) for one in (x, dy)),
                _bound(stats, part, 8 * per),
                _bound(partials, part, 8 * d),
            ]
            left = rows - part.start * per
            yield self._dispatch(pipeline, bindings, [left, d, per], (math.ceil(d / NT), len(part)))

    def _windows(self, count: int, steps: Sequence[int]) -> Iterator[range]:
        """Ranges of what a dispatch can bind, where one more of them takes `steps` bytes more of the buffers."""
        alignment = self._limits.binding_alignment
        aligned = max(alignment // math.gcd(alignment, step) for step in steps)
        most = min(self._limits.groups_per_dimension, *(self._limits.binding_bytes // step for step in steps))
        most = most // aligned * aligned
        for start in range(0, count, most):
            yield range(start, min(start + most, count))

    def _pipeline(self, kernel: str, storage: str) -> Any:
        parts = ("total", "words" if storage == "float32" else "halves")
        names = [*(f"yardstick/{one}.wgsl" for one in (kernel, *parts)), f"lib/storage/{storage}.wgsl"]
        module = self._gpu.create_shader_module(code="\n".join(map(shader_text, names)))
        return self._gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": kernel})

    def _dispatch(
        self, pipeline: Any, bindings: list[dict[str, Any]], meta: list[int], grid: tuple[int, int]
    ) -> _Dispatch:
        fields = np.zeros(4, np.uint32)
        fields[: len(meta)] = meta
        uniform = self._gpu.create_buffer_with_data(data=fields, usage=wgpu.BufferUsage.UNIFORM)
        resources = [*bindings, {"buffer": uniform, "offset": 0, "size": uniform.size}]
        entries = [{"binding": index, "resource": resource} for index, resource in enumerate(resources)]
        group = self._gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
        return _Dispatch(pipeline, group, grid)

    def _run(self, dispatches: list[_Dispatch]) -> None:
        encoder = self._gpu.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        for one in dispatches:
            compute_pass.set_pipeline(one.pipeline)
            compute_pass.set_bind_group(0, one.group)
            compute_pass.dispatch_workgroups(*one.grid)
        compute_pass.end()
        self._gpu.queue.submit([encoder.finish()])


class Timestamps:
    """Two passes that do nothing but note the time, before and after what is queued."""

    def __init__(self, device: Device, gpu: Any) -> None:
        self._device, self._gpu = device, gpu
        self._marks = gpu.create_query_set(type=wgpu.QueryType.timestamp, count=2)
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        self._ticks = gpu.create_buffer(size=16, usage=usage)
        self._tick_ms = _tick_ms(gpu.queue)

    def runs(self) -> bool:
        """Whether the clock goes on while the host waits."""
        return self.ms(lambda: time.sleep(1e-3)) > 0

    def ms(self, run: Callable[[], None]) -> float:
        """Milliseconds between the two passes."""
        self._gpu.queue.submit([self._mark(0).finish()])
        run()
        cast(WebGPUBackend, self._device._backend).submit()
        encoder = self._mark(1)
        encoder.resolve_query_set(self._marks, 0, 2, self._ticks, 0)
        self._gpu.queue.submit([encoder.finish()])
        self._device.synchronize()
        begin, end = np.frombuffer(self._gpu.queue.read_buffer(self._ticks), np.uint64).tolist()
        return float((end - begin) * self._tick_ms)

    def _mark(self, index: int) -> Any:
        encoder = self._gpu.create_command_encoder()
        noted = {"query_set": self._marks, "beginning_of_pass_write_index": index}
        encoder.begin_compute_pass(timestamp_writes=noted).end()
        return encoder


def _tick_ms(queue: Any) -> float:
    """Milliseconds a tick: WebGPU's is a nanosecond, wgpu-native's the adapter's own, which wgpu-py does not tell."""
    if type(queue).__module__.startswith("wgpu.backends.wgpu_native"):
        return float(native._api.libf.wgpuQueueGetTimestampPeriod(queue._internal)) / 1e6
    return 1e-6


def _bound(array: Array, part: range, step: int) -> dict[str, Any]:
    """The part of an Array that a window binds, `step` bytes each."""
    offset = part.start * step
    return {
        "buffer": array._buffer.native,
        "offset": offset,
        "size": min(len(part) * step, array._buffer.size - offset),
    }


def _whole(array: Array) -> dict[str, Any]:
    return {"buffer": array._buffer.native, "offset": 0, "size": array._buffer.size}
