"""The WebGPU back end: WGSL through wgpu-py on Metal, Vulkan, DX12, and on OpenGL by name.

A validation error inside `queue.submit` ends the process (wgpu-native #588), so what causes one cannot arise here: only
private staging buffers are ever mapped, nothing is destroyed explicitly, nothing of size 0 is made or bound, and a
command buffer is submitted where it is finished.
"""

import gc
import os
import sys
import tempfile
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import wgpu
import wgpu.backends.wgpu_native as native

from ..contract import KERNELS, Kernel
from ..device import KIND_RANK, WAIT_SECONDS, Adopted, Candidate, DeviceInfo, Missing, logger
from ..errors import DeviceLost, DeviceTimeout, DeviceUnavailable, DTypeError, Error, OutOfMemory
from ..plan import CELL_BYTES, SOFTWARE_TEAM, WEBGPU, Dispatch, Plan, Variant
from ..source import assemble_probe, assemble_wgsl

STAGING_BYTES: Final = 32 << 20
"""Bytes of an upload or a download that are under way at once: wgpu keeps an upload's copy until a submission."""

POOL_BYTES: Final = 256 << 20
"""Bytes of buffers that nobody holds any more and that are kept for the next of their size."""

UNHEARD_SECONDS: Final = 0.5
"""How long a Ctrl-C that comes just before Python begins to wait may not be heard: it does not end that wait."""

LEAST_UPLOAD_BLOCK: Final = 1 << 16
LEAST_BUFFER: Final = 32
MOST_PIPELINES: Final = 512
"""Beside those that bind groups are kept with."""

MOST_UNIFORMS: Final = 1024
MOST_BIND_GROUPS: Final = 1024

SUBGROUP_FEATURES: Final = ("subgroup", "subgroups")
"""wgpu-native's name of the feature, and WebGPU's."""

SUBGROUP_HEADERS: Final = ("", "enable subgroups; ")
"""What goes in front of a shader with subgroup operations: wgpu-native refuses what WebGPU demands."""

_APIS: Final = {"Vulkan": "vulkan", "Metal": "metal", "D3D12": "dx12", "OpenGL": "gl", "OpenGLES": "gl"}
_KINDS: Final = {"DiscreteGPU": "discrete", "IntegratedGPU": "integrated", "CPU": "software"}

_process: int | None = None
_known: list[Any] = []
_looking = threading.Lock()
"""Held while adapters are looked for or opened."""


def survey() -> tuple[list[Candidate], list[Missing]]:
    """Every adapter, and the reason if there is none."""
    adapters = _adapters()
    if not adapters:
        return [], [Missing("wgpu", "no Vulkan, Metal, DX12 or OpenGL driver answers")]
    best_first = sorted(adapters, key=lambda one: KIND_RANK[_kind(one)])
    return [_candidate(adapter, best_first) for adapter in best_first], []


def _adapters() -> list[Any]:
    """This process's adapters, looked for once: OpenGL ends the process where a thread looks while another computes."""
    global _process
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        raise DeviceUnavailable("wgpu was used before this process was forked and would hang: use 'spawn'")
    with _looking, _quiet_runtime_folder():
        if not _known:
            _look()
        return list(_known)


def _release_nothing() -> None:
    """In a forked child: the driver's threads are not there, and letting go of what it made waits for them for ever."""
    for kind in (wgpu.GPUAdapter, wgpu.GPUObjectBase):
        kind.__del__ = lambda self: None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_nothing)


def _look() -> None:
    _known[:] = [one for one in wgpu.gpu.enumerate_adapters_sync() if one.info["backend_type"] in _APIS]


def _request_device(adapter: Any) -> Any:
    """A device of the adapter; of a new one like it where it is spent: Dawn's are good for one device."""
    features = [name for name in (*SUBGROUP_FEATURES, "timestamp-query") if name in adapter.features]
    wanted = {"label": "rowgrad_wgpu", "required_features": features, "required_limits": {}}
    with _looking, _quiet_runtime_folder():
        try:
            return adapter.request_device_sync(**wanted)
        except RuntimeError:
            _look()
            again = next((one for one in _known if one.info == adapter.info), adapter)
            return again.request_device_sync(**wanted)


@contextmanager
def _quiet_runtime_folder() -> Iterator[None]:
    """Mesa's EGL writes to stderr where XDG_RUNTIME_DIR is not set."""
    if "XDG_RUNTIME_DIR" in os.environ or os.name == "nt":
        yield
        return
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        del os.environ["XDG_RUNTIME_DIR"]


def _kind(adapter: Any) -> str:
    return _KINDS.get(adapter.info["adapter_type"], "virtual")


def _candidate(adapter: Any, best_first: list[Any]) -> Candidate:
    info, kind = adapter.info, _kind(adapter)
    api = _APIS[info["backend_type"]]
    name = info["device"] or info["description"] or info["vendor"] or "unnamed adapter"
    first = next(one for one in best_first if _APIS[one.info["backend_type"]] == api)
    spec = f"wgpu:{api}" if first is adapter else f"wgpu:{api}:{name}"
    return Candidate(DeviceInfo(spec, "webgpu", api, name, kind), lambda: WebGPUBackend(adapter, kind == "software"))


class StorageBuffer:
    """A buffer of wgpu's, lent to an Array; it goes back to the pool when nobody holds this any more."""

    __slots__ = ("_returned", "native", "size")

    def __init__(self, buffer: Any, returned: "deque[int]") -> None:
        self.native = buffer
        self.size: int = buffer.size
        self._returned = returned

    def __del__(self) -> None:
        self._returned.append(id(self.native))  # in whatever thread collects: a deque takes that


class BufferPool:
    """Buffers that nobody holds, by their size; `dropped` is told when the oldest go because there are too many bytes.

    What is queued on a buffer runs before what its next holder queues, so it may be lent at once. The pool holds what
    it has lent: Python would end a buffer that is nobody else's together with the cycle that its holder was part of.
    """

    def __init__(self, dropped: Callable[[], None]) -> None:
        self._returned: deque[int] = deque()
        self._lent: dict[int, Any] = {}
        self._dropped = dropped
        self._free: OrderedDict[int, list[Any]] = OrderedDict()
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        self._collect()
        return self._nbytes

    def lend(self, buffer: Any) -> StorageBuffer:
        """The buffer for a holder; it comes back when nobody holds that any more."""
        self._lent[id(buffer)] = buffer
        return StorageBuffer(buffer, self._returned)

    def take(self, size: int) -> Any:
        """A buffer of `size` bytes, or None."""
        self._collect()
        free = self._free.get(size)
        if not free:
            return None
        self._nbytes -= size
        return free.pop()

    def close(self) -> None:
        """Lets go of every buffer, and takes none back."""
        self.clear()
        self._lent.clear()

    def clear(self) -> None:
        """Lets go of every buffer that nobody holds."""
        self._collect()
        self._free.clear()
        self._nbytes = 0
        self._dropped()

    def _collect(self) -> None:
        """Takes in what has come back; the sizes that were asked for longest ago go first."""
        while self._returned:
            buffer = self._lent.pop(self._returned.popleft(), None)
            if buffer is None:  # lent before the pool was closed
                continue
            self._free.setdefault(buffer.size, []).append(buffer)
            self._free.move_to_end(buffer.size)
            self._nbytes += buffer.size
        if self._nbytes > POOL_BYTES:
            while self._nbytes > POOL_BYTES:
                size, free = self._free.popitem(last=False)
                self._nbytes -= size * len(free)
            self._dropped()


class WebGPUBackend:
    """A WebGPU device: commands are recorded into one encoder until they are submitted."""

    shares_memory = False

    def __init__(self, adapter: Any, software: bool) -> None:
        with _Translated("opening the adapter", DeviceUnavailable):
            self._device = _request_device(adapter)
        self._adapter = adapter
        known = self._device.limits
        self.limits = replace(
            WEBGPU,  # a shader that stays below these runs on every adapter
            binding_bytes=int(known["max-storage-buffer-binding-size"]),
            binding_alignment=int(known["min-storage-buffer-offset-alignment"]),
            groups_per_dimension=min(int(known["max-compute-workgroups-per-dimension"]), WEBGPU.groups_per_dimension),
            threads_per_group=min(int(known["max-compute-invocations-per-workgroup"]), WEBGPU.threads_per_group),
            shared_bytes=min(int(known["max-compute-workgroup-storage-size"]), WEBGPU.shared_bytes),
            software=software,
        )
        self._buffer_bytes = int(known["max-buffer-size"])
        self._layouts: dict[str, Any] = {}
        self._pipelines: OrderedDict[Variant, Any] = OrderedDict()
        self._uniforms: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        self._bindings: OrderedDict[tuple[int, ...], tuple[Plan, Any, Any]] = OrderedDict()
        self._pool = BufferPool(self._bindings.clear)
        self._encoder: Any = None
        self._pass: Any = None
        self._recorded = 0
        self._unsubmitted_bytes = 0
        self._staging: Any = None
        self._waiter: _Waiter | _Here | None = None
        self._subgroup_header = ""
        if software:
            self.limits = replace(self.limits, subgroup=self._probed_subgroup(SOFTWARE_TEAM))

    def allocate(self, nbytes: int) -> Any:
        """A storage buffer, whole cells long."""
        size = max(LEAST_BUFFER, -(-nbytes // CELL_BYTES) * CELL_BYTES)
        if size > self._buffer_bytes:
            raise OutOfMemory(
                f"expected an array of at most {self._buffer_bytes:,} bytes, this adapter's largest buffer,"
                f" got {nbytes:,}: pass host arrays, which are streamed, or split the rows"
            )
        free = self._pool.take(size)
        if free is None:
            usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
            free = self._claim(size, usage)
        return self._pool.lend(free)

    def write(self, buffer: Any, data: npt.NDArray[np.uint8]) -> None:
        """Uploads in pieces, each handed over before the next."""
        self.submit()
        with _Translated("writing a buffer"):
            for start in range(0, data.nbytes, STAGING_BYTES):
                piece = data[start : start + STAGING_BYTES]
                if piece.nbytes % 4:
                    piece = np.concatenate([piece, np.zeros(-piece.nbytes % 4, np.uint8)])
                self._make_sure_of_room(piece.nbytes)
                self._device.queue.write_buffer(buffer.native, start, piece)
                self._unsubmitted_bytes += piece.nbytes
                if self._unsubmitted_bytes >= STAGING_BYTES:
                    self.wait(time.monotonic() + WAIT_SECONDS)

    def _make_sure_of_room(self, nbytes: int) -> None:
        """Fails as an allocation does: where `write_buffer` has no room for its copy, wgpu gives the device up.

        Small copies share a block that is already there.
        """
        if nbytes >= LEAST_UPLOAD_BLOCK:
            self._claim(nbytes, wgpu.BufferUsage.MAP_WRITE | wgpu.BufferUsage.COPY_SRC)

    def read(self, buffer: Any, out: npt.NDArray[np.uint8], deadline: float) -> None:
        """Downloads in pieces through a staging buffer."""
        for start in range(0, out.nbytes, STAGING_BYTES):
            piece = out[start : start + STAGING_BYTES]
            size = -(-piece.nbytes // 4) * 4
            staging = self._staging_buffer(size)
            with _Translated("reading a buffer"):
                self._copy_encoder().copy_buffer_to_buffer(buffer.native, start, staging, 0, size)
            self.submit()
            self._map(staging, size, deadline)
            with _Translated("reading a buffer"):
                piece[:] = np.frombuffer(staging.read_mapped(0, size, copy=False), np.uint8)[: piece.nbytes]
                staging.unmap()

    def launch(self, plan: Plan, buffers: Mapping[str, Any]) -> None:
        """Records the dispatches; one that would make a submission too long for a watchdog sends it first."""
        kernel = KERNELS[plan.variant.kernel]
        natives = [buffers[one.name].native for one in kernel.buffers]
        with _Translated(f"launching {kernel.name}"):
            for dispatch in plan.dispatches:
                if self._recorded and self._recorded + dispatch.elements > self.limits.dispatch_elements:
                    self.submit()
                self._dispatch(*self._bound(plan, dispatch, natives), dispatch.grid)
                self._recorded += dispatch.elements

    def submit(self) -> None:
        """Ends the encoder, if there is one, and submits it."""
        encoder, compute_pass = self._encoder, self._pass
        self._encoder = self._pass = None
        self._recorded = 0
        if encoder is None:
            return
        with _Translated("submitting"):
            if compute_pass is not None:
                compute_pass.end()
            self._device.queue.submit([encoder.finish()])
        self._unsubmitted_bytes = 0

    def wait(self, deadline: float) -> None:
        """Reads four bytes back: wgpu 0.32's `on_submitted_work_done` raises."""
        staging = self._staging_buffer(CELL_BYTES)
        with _Translated("waiting"):
            self._copy_encoder().clear_buffer(staging)
        self.submit()
        self._map(staging, CELL_BYTES, deadline)
        with _Translated("waiting"):
            staging.unmap()

    def adopt(self, value: Any) -> Adopted:
        """Nothing of a GPU's memory can be used here."""
        raise DTypeError(
            f"expected a NumPy array or an Array, got {type(value).__name__} in a GPU's memory: copy it first"
        )

    def export(self, buffer: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """No other library can read the buffer."""
        raise BufferError("expected an Array on CUDA or ROCm, got one that lies in a buffer of wgpu: use .numpy()")

    def describe(self) -> dict[str, Any]:
        """The adapter's limits and features that matter."""
        features = ("shader-f16", *SUBGROUP_FEATURES, "timestamp-query")
        return {
            "adapter": self._adapter.summary,
            "driver": self._adapter.info["description"],
            "wgpu": wgpu.__version__,
            "wgpu_native": ".".join(map(str, native.lib_version_info)),
            "max_buffer_bytes": self._buffer_bytes,
            "max_binding_bytes": self.limits.binding_bytes,
            "binding_alignment": self.limits.binding_alignment,
            "features": sorted(name for name in features if name in self._adapter.features),
        }

    def close(self) -> None:
        """Drops every reference: explicit destruction could end the process if work were pending.

        A device and its queue refer to each other, so that its memory and its thread stay until Python collects.
        """
        self._encoder = self._pass = self._staging = None
        if self._waiter is not None:
            self._waiter.stop()
            self._waiter = None
        self._pool.close()
        self._pipelines.clear()
        self._uniforms.clear()
        self._layouts.clear()
        self._device = None
        gc.collect()

    def _claim(self, size: int, usage: int) -> Any:
        """A new buffer; where there is no room, once more when the launches that hold what was let go of are done."""
        try:
            return self._create_buffer(size, usage)
        except OutOfMemory:
            self.wait(time.monotonic() + WAIT_SECONDS)
            return self._create_buffer(size, usage)

    def _create_buffer(self, size: int, usage: int) -> Any:
        """A new buffer; where there is no room, once more without those that the pool keeps."""
        try:
            return self._try_to_create(size, usage)
        except OutOfMemory:
            self._pool.clear()
            return self._try_to_create(size, usage)

    def _try_to_create(self, size: int, usage: int) -> Any:
        with _Translated(f"allocating {size:,} bytes"):
            return self._device.create_buffer(size=size, usage=usage)

    def _pipeline(self, variant: Variant) -> Any:
        pipeline = self._pipelines.get(variant)
        if pipeline is None:
            with _Translated(f"compiling {variant}"):
                pipeline = self._compile(variant)
            self._pipelines[variant] = pipeline
            if len(self._pipelines) > MOST_PIPELINES:
                self._pipelines.popitem(last=False)
        return pipeline

    def _probed_subgroup(self, threads: int) -> int:
        """`threads` where a workgroup of so many is one subgroup, else 0; finds the header that the compiler takes.

        On GPUs barriers cost little and a workgroup has more than one row, so subgroups wait until they are measured.
        """
        if not any(name in self._device.features for name in SUBGROUP_FEATURES):
            return 0
        for header in SUBGROUP_HEADERS:
            try:
                found = self._probe(header + assemble_probe(threads), threads)
            except (wgpu.GPUError, RuntimeError) as error:
                logger.debug("subgroups: %s", error)
                continue
            self._subgroup_header = header
            return threads if (found == (1 << threads) - 1).all() else 0
        return 0

    def _probe(self, text: str, threads: int) -> npt.NDArray[np.uint32]:
        """What each thread of one workgroup of a shader stores."""
        module = self._device.create_shader_module(label="probe", code=text)
        stage = {"module": module, "entry_point": "probe"}
        pipeline = self._device.create_compute_pipeline(layout="auto", compute=stage)
        buffer = self.allocate(4 * threads)
        resource = {"buffer": buffer.native, "offset": 0, "size": 4 * threads}
        group = self._device.create_bind_group(
            layout=pipeline.get_bind_group_layout(0), entries=[{"binding": 0, "resource": resource}]
        )
        self._dispatch(pipeline, group, (1, 1))
        found = np.empty(threads, np.uint32)
        self.read(buffer, found.view(np.uint8), time.monotonic() + WAIT_SECONDS)
        return found

    def _compile(self, variant: Variant) -> Any:
        header = self._subgroup_header if variant.subgroup else ""
        module = self._device.create_shader_module(label=variant.kernel, code=header + assemble_wgsl(variant))
        layout = self._device.create_pipeline_layout(bind_group_layouts=[self._layout(KERNELS[variant.kernel])])
        return self._device.create_compute_pipeline(
            label=variant.kernel, layout=layout, compute={"module": module, "entry_point": variant.kernel}
        )

    def _layout(self, kernel: Kernel) -> Any:
        if kernel.name not in self._layouts:
            kinds = ["storage" if buffer.written else "read-only-storage" for buffer in kernel.buffers] + ["uniform"]
            entries = [
                {"binding": index, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                for index, kind in enumerate(kinds)
            ]
            self._layouts[kernel.name] = self._device.create_bind_group_layout(entries=entries)
        return self._layouts[kernel.name]

    def _dispatch(self, pipeline: Any, group: Any, grid: tuple[int, int]) -> None:
        if self._pass is None:
            self._encoder = self._encoder or self._device.create_command_encoder()
            self._pass = self._encoder.begin_compute_pass()
        self._pass.set_pipeline(pipeline)
        self._pass.set_bind_group(0, group)
        self._pass.dispatch_workgroups(*grid)

    def _bound(self, plan: Plan, dispatch: Dispatch, natives: list[Any]) -> tuple[Any, Any]:
        """The pipeline and the bind group, kept for the next time.

        The plan is kept beside them, so that the key's ids are of no other plan or dispatch; it is part of the key
        because another plan may share its dispatches. Every buffer of a bind group is held by somebody or lies in the
        pool.
        """
        key = (id(plan), id(dispatch), *map(id, natives))
        kept = self._bindings.get(key)
        if kept is None:
            group = self._create_group(KERNELS[plan.variant.kernel], dispatch, natives)
            kept = self._bindings[key] = plan, self._pipeline(plan.variant), group
            if len(self._bindings) > MOST_BIND_GROUPS:
                self._bindings.popitem(last=False)
        return kept[1:]

    def _create_group(self, kernel: Kernel, dispatch: Dispatch, natives: list[Any]) -> Any:
        resources = []
        for buffer, one in zip(natives, kernel.buffers, strict=True):
            part = dispatch.slices[one.name]
            size = min(part.nbytes, buffer.size - part.offset)
            resources.append({"buffer": buffer, "offset": part.offset, "size": size})
        uniform = self._uniform(dispatch.fields)
        resources.append({"buffer": uniform, "offset": 0, "size": uniform.size})
        return self._device.create_bind_group(
            layout=self._layout(kernel),
            entries=[{"binding": index, "resource": resource} for index, resource in enumerate(resources)],
        )

    def _uniform(self, fields: tuple[int, ...]) -> Any:
        uniform = self._uniforms.get(fields)
        if uniform is None:
            data = np.zeros(-(-len(fields) // 4) * 4, np.uint32)
            data[: len(fields)] = fields
            uniform = self._device.create_buffer_with_data(data=data, usage=wgpu.BufferUsage.UNIFORM)
            self._uniforms[fields] = uniform
            if len(self._uniforms) > MOST_UNIFORMS:
                self._uniforms.popitem(last=False)
        return uniform

    def _copy_encoder(self) -> Any:
        """The encoder, its compute pass ended: copies lie outside of passes."""
        if self._pass is not None:
            self._pass.end()
            self._pass = None
        self._encoder = self._encoder or self._device.create_command_encoder()
        return self._encoder

    def _staging_buffer(self, size: int) -> Any:
        if self._staging is None or self._staging.size < size:
            usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
            self._staging = self._create_buffer(1 << (max(size, LEAST_BUFFER) - 1).bit_length(), usage)
        return self._staging

    def _map(self, staging: Any, size: int, deadline: float) -> None:
        """Maps for reading; a buffer whose mapping does not come in time is left behind, never bound again.

        wgpu's own waits have no limit, so another thread waits: this one keeps the deadline and hears Ctrl-C.
        """
        waiter = _Here() if sys.is_finalizing() else self._waiter or _new_waiter()
        self._waiter, self._staging = None, None
        failure = waiter.failure_of(lambda: staging.map_sync(wgpu.MapMode.READ, 0, size), deadline)
        self._waiter = waiter
        if isinstance(failure, MemoryError):
            raise _translation("waiting", failure, Error) from failure
        if failure is not None:
            raise DeviceLost(f"the device stopped while it was waited for ({failure}): open a new one")
        self._staging = staging


class _Waiter:
    """A thread that calls what waits without a limit. It is started once: a start that finds no memory never returns.

    A waiter that was given up, its call still under way, is dropped. An executor of the library's would be waited for
    when the interpreter ends, a call without end too.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._answers: SimpleQueue[Exception | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=_answer, args=(self._asked, self._answers), name="rowgrad_wgpu waiter", daemon=True
        )
        self._thread.start()

    def failure_of(self, action: Callable[[], None], deadline: float) -> Exception | None:
        """What `action` raised, if it did. **Raises:** `DeviceTimeout`."""
        self._asked.put(action)
        while True:
            left = deadline - time.monotonic()
            with suppress(Empty):
                return self._answers.get(timeout=max(0.0, min(left, UNHEARD_SECONDS)))
            if left <= UNHEARD_SECONDS:
                raise DeviceTimeout("the device did not finish in the time given: wait longer or launch less at once")

    def stop(self) -> None:
        """Ends the thread, which waits for nothing."""
        self._asked.put(None)
        if not sys.is_finalizing():
            self._thread.join()

    def __del__(self) -> None:
        self._asked.put(None)


class _Here:
    """In a waiter's place while the interpreter ends: no thread is started then, none goes on."""

    def failure_of(self, action: Callable[[], None], deadline: float) -> Exception | None:
        return _failure(action)

    def stop(self) -> None:
        pass


def _new_waiter() -> _Waiter | _Here:
    try:
        return _Waiter()
    except RuntimeError:  # Python 3.12, while it runs exit handlers
        return _Here()


def _answer(asked: "SimpleQueue[Callable[[], None] | None]", answers: "SimpleQueue[Exception | None]") -> None:
    """Calls what it is asked to and answers with what that raised, until it is asked for nothing."""
    while (action := asked.get()) is not None:
        answers.put(_failure(action))
        del action  # with the buffer that it holds


def _failure(action: Callable[[], None]) -> Exception | None:
    try:
        action()
    except Exception as error:
        return error
    return None


class _Translated:
    """Turns what wgpu raises into this package's errors. A class: it lies on every call's way, as `device._Hold`."""

    __slots__ = ("_action", "_default")

    def __init__(self, action: str, default: type[Error] = Error) -> None:
        self._action, self._default = action, default

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, Error):
            raise _translation(self._action, error, self._default) from error


def _translation(action: str, error: Exception, default: type[Error]) -> Error:
    text = f"{action}: {type(error).__name__}: {error}"
    error.__traceback__ = None  # a frame of wgpu's holds its error, a cycle that would hold the arrays of the call
    logger.debug("wgpu failed: %s", text)
    if isinstance(error, MemoryError) or "not enough memory" in text.lower():
        return OutOfMemory(f"the device has no room: free Arrays or use fewer rows ({text})")
    if "lost" in text.lower():
        return DeviceLost(f"{text}; open a new Device")
    return default(text)
