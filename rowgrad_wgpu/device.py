"""The device facade: `Device`, `Array`, `devices()`; everything about buffers is checked here, from the records.

A back end is a module of `backends` with a `survey()` of what it can open; it is imported when it is asked for.
"""

import importlib
import logging
import math
import operator
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from itertools import product
from types import TracebackType
from typing import Any, Final, NoReturn, ParamSpec, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from . import reference
from .contract import KERNELS, STORAGE, Buffer, Kernel, chunk_count, storage_name
from .errors import DeviceLost, DeviceUnavailable, DTypeError, Error, OutOfMemory, ShapeError
from .plan import CELL_BYTES, Extent, Limits, Plan, kernel_named, plan_launch, whole

logger = logging.getLogger("rowgrad_wgpu")

AnyArray = npt.NDArray[Any]

Given = ParamSpec("Given")
Result = TypeVar("Result")

BACKENDS: Final = ("cuda", "webgpu", "cpu")
WAIT_SECONDS: Final = 600.0
"""The deadline of every wait that is not given one."""

SELF_TEST_TEAM: Final = 64
"""Threads that the self-test sums over, on every device: WARP once summed 64 numbers to 3."""

LONGEST_WAIT: Final = 1e7
"""Seconds; what Python's locks take is limited."""

KIND_RANK: Final = {"discrete": 0, "integrated": 1, "virtual": 2, "software": 3, "cpu": 4}
_API_RANK: Final = {"cuda": 0, "rocm": 0, "metal": 1, "vulkan": 1, "dx12": 2, "numpy": 3, "gl": 9}


@dataclass(frozen=True)
class DeviceInfo:
    """What a device is.

    - `spec`: the text that opens it, as in `Device(spec)`; of several alike it opens the first.
    - `backend`: `webgpu`, `cuda` or `cpu`; `api`: `metal`, `vulkan`, `dx12`, `gl`, `cuda`, `rocm` or `numpy`.
    - `name`: what the driver calls it.
    - `kind`: `discrete`, `integrated`, `virtual`, `software` or `cpu`.
    """

    spec: str
    backend: str
    api: str
    name: str
    kind: str


@dataclass(frozen=True)
class Adopted:
    """Another library's array as a buffer; `aligned` says that it begins at a multiple of a cell."""

    buffer: Any
    shape: tuple[int, ...]
    dtype: np.dtype
    aligned: bool
    writable: bool


class Backend(Protocol):
    """What a back end does. A buffer is whatever `allocate` gives; nothing else looks into it.

    `shares_memory` says that a buffer may be a NumPy array of bytes of the host's own.
    """

    limits: Limits
    shares_memory: bool

    def allocate(self, nbytes: int) -> Any:
        """A new buffer of at least `nbytes` > 0 bytes. **Raises:** `OutOfMemory`."""

    def write(self, buffer: Any, data: npt.NDArray[np.uint8]) -> None:
        """Copies `data` to the beginning of `buffer`; `data` may be changed afterwards."""

    def read(self, buffer: Any, out: npt.NDArray[np.uint8], deadline: float) -> None:
        """Waits for what has been launched and copies the beginning of `buffer` to `out`."""

    def launch(self, plan: Plan, buffers: Mapping[str, Any]) -> None:
        """Records the dispatches of `plan`, in order after all earlier ones."""

    def submit(self) -> None:
        """Sends what has been recorded to the device."""

    def wait(self, deadline: float) -> None:
        """Returns when all that was submitted is done. **Raises:** `DeviceTimeout` once the monotonic clock passes."""

    def adopt(self, value: Any) -> Adopted:
        """A GPU array of another library as a buffer. **Raises:** `DTypeError` where it cannot be."""

    def export(self, buffer: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """An object with DLPack and `__cuda_array_interface__` over a buffer. **Raises:** `BufferError`."""

    def describe(self) -> dict[str, Any]:
        """Limits and features that matter, for `rowgrad info`."""

    def close(self) -> None:
        """Lets go of the device and all it holds."""


@dataclass(frozen=True)
class Candidate:
    """A device that could be opened, and how."""

    info: DeviceInfo
    open: Callable[[], Backend]


@dataclass(frozen=True)
class Missing:
    """A device that could not be opened, and why."""

    spec: str
    reason: str


def host_memory(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """A function that turns the host's own lack of memory into this package's error."""

    @wraps(function)
    def translated(*given: Given.args, **named: Given.kwargs) -> Result:
        try:
            return function(*given, **named)
        except Error:
            raise
        except MemoryError as error:
            raise OutOfMemory(f"the host has no room: {error or 'out of memory'}; use fewer rows") from error

    return translated


def survey() -> tuple[list[Candidate], list[Missing]]:
    """Every device that could be opened here, best first, and why each other one could not."""
    candidates: list[Candidate] = []
    missing: list[Missing] = []
    for name in BACKENDS:
        found, absent = _survey_backend(name)
        candidates += found
        missing += absent
    candidates.sort(key=_rank)
    return candidates, missing


def devices() -> list[DeviceInfo]:
    """Every device that could be opened here, best first. Never raises, never prints."""
    return [candidate.info for candidate in survey()[0]]


def _survey_backend(name: str) -> tuple[list[Candidate], list[Missing]]:
    try:
        module = importlib.import_module(f"{__package__}.backends.{name}")
        found: tuple[list[Candidate], list[Missing]] = module.survey()
    except Exception as error:  # a broken driver or package must not hide the other devices
        return [], [Missing(name, f"{type(error).__name__}: {error}")]
    return found


def _rank(candidate: Candidate) -> tuple[bool, bool, int, int]:
    info = candidate.info
    return info.api == "gl", info.backend != "cuda", KIND_RANK.get(info.kind, 2), _API_RANK.get(info.api, 5)


class Device:
    """A device, opened.

    **Arguments:**

    - `spec`: `auto`, or the environment's `ROWGRAD_DEVICE` if that is set; `wgpu`; `wgpu:metal`, `wgpu:vulkan`,
      `wgpu:dx12`, `wgpu:gl`; `wgpu:` or `wgpu:vulkan:` and a part of the adapter's name; `cuda`, `cuda:1`, `rocm`,
      `rocm:1`; `cpu`.

    `auto` takes a GPU through CuPy, else a hardware adapter (discrete before integrated), else a software adapter, else
    the CPU; the last two log one warning on `rowgrad_wgpu`. OpenGL is taken by name only. A device that computes
    wrongly is refused. A context manager: leaving it closes the device.

    **Raises:** `DeviceUnavailable`, which says what was tried and what is missing.
    """

    def __init__(self, spec: str = "auto") -> None:
        if not isinstance(spec, str):
            raise DTypeError(f"expected a device spec such as 'auto', 'wgpu' or 'cpu', got {type(spec).__name__}")
        wanted = spec
        if wanted == "auto":
            wanted = os.environ.get("ROWGRAD_DEVICE", "").strip() or "auto"
        self._take(*_open(wanted))

    @classmethod
    def _over(cls, info: DeviceInfo, backend: Backend) -> "Device":
        """A device over a back end that is open already, untested."""
        device = cls.__new__(cls)
        device._take(info, backend)
        return device

    def _take(self, info: DeviceInfo, backend: Backend) -> None:
        self._info, self._backend = info, backend
        self._lock = threading.RLock()
        self._batches = 0
        self._process = os.getpid()
        self._plans: dict[tuple[str, str, str, Extent, bool], Plan] = {}
        self._constants: dict[tuple[str, int, float], Array] = {}
        self._closed = False

    @property
    def info(self) -> DeviceInfo:
        """What the device is."""
        return self._info

    @property
    def limits(self) -> Limits:
        """The limits that launches are planned within."""
        return self._backend.limits

    def describe(self) -> dict[str, Any]:
        """Limits and features that matter, by name."""
        self._ready()
        return self._backend.describe()

    def __repr__(self) -> str:
        return f"<Device {self._info.spec!r}: {self._info.name}{', closed' if self._closed else ''}>"

    def __enter__(self) -> "Device":
        self._ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the device; its Arrays can no longer be used. A second call does nothing."""
        if os.getpid() != self._process:
            self._closed = True
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                self._plans.clear()
                self._constants.clear()
                self._backend.close()

    @host_memory
    def asarray(self, array: "npt.ArrayLike | Array | Any") -> "Array":
        """A copy of a NumPy array on the device; an `Array` of this device is returned as it is.

        On CUDA and ROCm an array of this GPU that offers DLPack or `__cuda_array_interface__` (CuPy, PyTorch, JAX,
        Numba) is not copied if it is dense: the `Array` is over its memory.

        **Raises:** `DTypeError` for a dtype other than float32, float16, bfloat16; `OutOfMemory`.
        """
        if isinstance(array, Array):
            self._own(array, "array")
            return array
        if is_gpu_array(array):
            return self._adopt(array)
        host = host_array(array)
        made = self.empty(host.shape, host.dtype)
        made._write(host)
        return made

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> "Array":
        """A new `Array` whose contents are not set.

        **Raises:** `DTypeError`, `ShapeError` for a negative length, `OutOfMemory`.
        """
        name = storage_name(dtype)
        lengths = _lengths(shape, STORAGE[name])
        with self._held():
            nbytes = math.prod(lengths) * STORAGE[name].itemsize
            buffer = self._backend.allocate(nbytes) if nbytes else None
        return Array(self, lengths, STORAGE[name], buffer)

    def synchronize(self, timeout: float | None = None) -> None:
        """Waits until all launches are done, `timeout` seconds at most.

        **Raises:** `DeviceTimeout` past it, `DeviceLost` if the device is gone.
        """
        deadline = _deadline(timeout)
        with self._held():
            self._backend.submit()
            self._backend.wait(deadline)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Launches inside go out in as few submissions as the watchdogs allow; batches may be nested."""
        with self._held():
            self._batches += 1
        try:
            yield
        finally:
            if os.getpid() == self._process:
                with self._lock:
                    self._batches -= 1
                    if not self._batches and not self._closed:
                        self._backend.submit()

    def launch(self, kernel: str, **buffers: "Array") -> None:
        """Runs a kernel on Arrays, its buffers by their names in the contract.

        Leading dimensions are free: rows are whatever lies before the axes a buffer ends with. The number of chunks
        comes from `partial`'s shape, that of the parts from `sums`'. Through WGSL kernels that cut rows into parts take
        no 16-bit rows of odd d, two of which share a word. Returns without waiting.

        **Raises:** `ShapeError`, `DTypeError`, `OutOfMemory`, `DeviceLost`.
        """
        record = kernel_named(kernel)
        _check_names(record, buffers)
        for name, array in buffers.items():
            if not isinstance(array, Array):
                raise DTypeError(
                    f"[{kernel}] expected {name} to be an Array of this device, got {type(array).__name__}"
                )
            self._own(array, name, kernel)
        storage, alpha = _storage_of(record, buffers)
        extent = _extent_of(record, buffers)
        _check_aliases(record, buffers)
        self._run(record, buffers, storage, alpha, extent)

    def _adopt(self, value: Any) -> "Array":
        with self._held():
            adopted = self._backend.adopt(value)
        return Array(self, adopted.shape, adopted.dtype, adopted.buffer, adopted.aligned, adopted.writable)

    def _run(self, record: Kernel, buffers: Mapping[str, "Array"], storage: str, alpha: str, extent: Extent) -> None:
        """Launches over `extent`; the buffers hold at least its rows, and have been checked."""
        bound, aligned = {}, True
        with self._held():
            for name, array in buffers.items():
                bound[name] = array._memory()
                aligned = aligned and array._aligned
            plan = self._plan(record, storage, alpha, extent, aligned)
            if plan.dispatches:
                for name, buffer in bound.items():
                    if buffer is None:  # an array without elements
                        bound[name] = self._backend.allocate(CELL_BYTES)
                self._backend.launch(plan, bound)
                if not self._batches:
                    self._backend.submit()

    def _plan(self, record: Kernel, storage: str, alpha: str, extent: Extent, aligned: bool) -> Plan:
        key = (record.name, storage, alpha, extent, aligned)
        plan = self._plans.get(key)
        if plan is None:
            plan = plan_launch(record, storage, alpha, extent, self._backend.limits, aligned)
            if len(self._plans) >= 256:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def _constant(self, storage: str, length: int, value: float) -> "Array":
        """An Array of one value, kept for the next call."""
        key = (storage, length, value)
        with self._held():
            array = self._constants.get(key)
            if array is None:
                array = self.asarray(np.full(length, value, STORAGE[storage]))
                if len(self._constants) >= 16:
                    self._constants.clear()
                self._constants[key] = array
        return array

    def _lend(self, host: AnyArray) -> "Array | None":
        """An Array over the memory of `host` itself, where the back end can and `host` is dense; else None.

        Nor where it is not aligned: NumPy sums that piece by piece, and the bits of a long row would be others.
        """
        if self._backend.shares_memory and host.flags.c_contiguous and host.flags.aligned and host.size:
            return Array(self, host.shape, host.dtype, host.reshape(-1).view(np.uint8))
        return None

    def _own(self, array: "Array", name: str, call: str | None = None) -> None:
        if array.device is not self:
            what = f"[{call}] {name}" if call else name
            raise DTypeError(f"{what}: expected an Array of {self!r}, got one of {array.device!r}")
        if self._closed or array._freed:  # a fork is told where the device is held
            array._alive()

    def _held(self) -> "_Hold":
        """The device for one thread, open."""
        return _Hold(self)

    def _ready(self) -> None:
        if self._closed:
            raise DeviceLost(f"expected an open device, got {self!r}: open a new one")
        if os.getpid() != self._process:
            raise DeviceLost(
                "expected the process that opened the device, got a forked child: GPU drivers do not survive a fork;"
                " use multiprocessing's 'spawn' and open the device in the child"
            )


class _Hold:
    """A device held by one thread. A class, since it lies on every call's way: a generator costs three times as much.

    A device that is lost meanwhile is closed, so that the next call by default opens another.
    """

    __slots__ = ("_device",)

    def __init__(self, device: Device) -> None:
        self._device = device

    def __enter__(self) -> None:
        device = self._device
        device._ready()  # before too: a fork may have copied the lock of another thread
        device._lock.acquire()
        if device._closed:
            device._lock.release()
            device._ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        device = self._device
        try:
            if isinstance(error, DeviceLost):
                device.close()
        finally:
            device._lock.release()


class Array:
    """A dense array in a device's memory.

    Read it back with `.numpy()` or `np.asarray(array)`, which wait for the launches before them.
    """

    __slots__ = ("_aligned", "_buffer", "_device", "_dtype", "_freed", "_shape", "_writable")

    def __init__(
        self,
        device: Device,
        shape: tuple[int, ...],
        dtype: np.dtype,
        buffer: Any,
        aligned: bool = True,
        writable: bool = True,
    ) -> None:
        self._device = device
        self._shape = shape
        self._dtype = dtype
        self._buffer = buffer
        self._aligned = aligned
        self._writable = writable
        self._freed = False

    @property
    def device(self) -> Device:
        """The device that holds it."""
        return self._device

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._shape

    @property
    def dtype(self) -> np.dtype:
        """float32, float16 or bfloat16."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """How many axes the array has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements the array has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes the elements take."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        state = ", freed" if self._freed else ""
        return f"<Array {self.shape} {self.dtype} on {self.device.info.spec!r}{state}>"

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("expected an Array with an axis, got one of shape ()")
        return self.shape[0]

    def __reduce__(self) -> NoReturn:
        raise DTypeError("expected a NumPy array to copy or to pickle, got an Array: take its .numpy()")

    @host_memory
    def numpy(self, timeout: float | None = None) -> AnyArray:
        """The contents as a new NumPy array; waits `timeout` seconds at most.

        **Raises:** `DeviceTimeout`, `DeviceLost`, `OutOfMemory`.
        """
        out = np.empty(self.shape, self.dtype)
        self._read(out, timeout)
        return out

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        if copy is False:
            raise ShapeError("expected copy=None or True: an Array lies in the device's memory and has to be copied")
        host = self.numpy()
        return host if dtype is None else host.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        """The array as DLPack for other libraries, without a copy; on CUDA and ROCm only."""
        return self._exported().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's number for the kind of device, and which one it is."""
        kind, number = self._exported().__dlpack_device__()
        return kind, number

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array as Numba, PyTorch and CuPy read it, without a copy; on CUDA and ROCm only."""
        try:
            interface: dict[str, Any] = self._exported().__cuda_array_interface__
        except BufferError as error:
            raise AttributeError(str(error)) from error
        return interface

    def _exported(self) -> Any:
        with self.device._held():
            return self.device._backend.export(self._memory() if self.size else None, self.shape, self.dtype)

    def free(self) -> None:
        """Lets go of the memory now. Using the Array raises `ShapeError` from then on; a second call does nothing."""
        self._freed = True
        self._buffer = None

    def _alive(self) -> None:
        self.device._ready()
        if self._freed:
            raise ShapeError(f"expected an Array that holds its memory, got {self!r}")

    def _memory(self) -> Any:
        """The buffer, None without elements, while the device is held; another thread may free it meanwhile."""
        buffer = self._buffer
        if self._freed:
            self._alive()
        return buffer

    def _write(self, host: AnyArray) -> None:
        """Copies `host`, of at most this size and of this dtype, to the beginning."""
        if not host.size:
            return
        data = np.ascontiguousarray(host).reshape(-1).view(np.uint8)
        with self.device._held():
            self.device._backend.write(self._memory(), data)

    def _read(self, out: AnyArray, timeout: float | None = None) -> None:
        """Copies the beginning to `out`, a dense array of this dtype."""
        deadline = _deadline(timeout)
        with self.device._held():
            self._alive()
            if out.size:
                self.device._backend.read(self._memory(), out.reshape(-1).view(np.uint8), deadline)


def is_gpu_array(value: Any) -> bool:
    """Whether `value` is another library's array in a GPU's memory."""
    if isinstance(value, (Array, np.ndarray, np.generic, list, tuple, int, float)):
        return False
    return bool(_cuda().is_gpu_array(value))


def spec_of_gpu_array(value: Any) -> str:
    """The spec of the device that another library's array lies on.

    **Raises:** `DeviceUnavailable` without CuPy, `DTypeError` for an array that cannot be shared.
    """
    spec: str = _cuda().spec_of(_cuda().gpu_array(value))
    return spec


def _cuda() -> Any:
    return importlib.import_module(f"{__package__}.backends.cuda")


def host_array(value: npt.ArrayLike) -> AnyArray:
    """`value` as a NumPy array.

    **Raises:** `DTypeError` for what is none: a ragged list, or a masked array, whose mask would be lost.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError("expected a plain NumPy array, got a masked one: fill it first, with .filled()")
    try:
        return np.asarray(value)
    except (Error, MemoryError):
        raise
    except Exception as error:  # whatever the object's own __array__ raises
        raise DTypeError(f"expected a NumPy array, got {type(value).__name__}: {error}") from error


def _deadline(timeout: float | None) -> float:
    if timeout is None:
        return time.monotonic() + WAIT_SECONDS
    if not isinstance(timeout, (int, float)):
        raise DTypeError(f"expected a timeout in seconds, got {type(timeout).__name__}")
    if not timeout >= 0:
        raise ShapeError(f"expected a timeout of 0 seconds or more, got {timeout}")
    return time.monotonic() + min(timeout, LONGEST_WAIT)


def _lengths(shape: int | Sequence[int], dtype: np.dtype) -> tuple[int, ...]:
    try:
        lengths = (operator.index(shape),) if not isinstance(shape, Sequence) else tuple(map(operator.index, shape))
    except TypeError as error:
        raise DTypeError(f"expected a shape, an int or a tuple of ints, got {shape!r}") from error
    if any(length < 0 for length in lengths):
        raise ShapeError(f"expected lengths of 0 or more, got {lengths}")
    try:
        np.broadcast_to(np.empty((), dtype), lengths)
    except ValueError as error:
        raise ShapeError(f"expected a shape that NumPy can hold too, got {lengths}: {error}") from error
    return lengths


def _check_names(record: Kernel, buffers: Mapping[str, object]) -> None:
    wanted = [buffer.name for buffer in record.buffers]
    if sorted(wanted) != sorted(buffers):
        raise DTypeError(
            f"[{record.name}] expected the buffers {', '.join(wanted)}, got {', '.join(buffers) or 'none'}"
        )


def _storage_of(record: Kernel, buffers: Mapping[str, Array]) -> tuple[str, str]:
    """The names of F and of alpha's type; checks every dtype."""
    named = {buffer.name: storage_name(buffers[buffer.name].dtype) for buffer in record.buffers}
    first = next((buffer.name for buffer in record.buffers if buffer.element == "F"), None)
    storage = named[first] if first else "float32"
    allowed = {"F": (storage,), "A": (storage, "float32"), "float32": ("float32",)}
    for buffer in record.buffers:
        if named[buffer.name] not in allowed[buffer.element]:
            raise DTypeError(
                f"[{record.name}] expected {buffer.name} in {' or '.join(dict.fromkeys(allowed[buffer.element]))},"
                f" got {named[buffer.name]}"
            )
    return storage, named.get("alpha", storage)


def _extent_of(record: Kernel, buffers: Mapping[str, Array]) -> Extent:
    """rows, d, chunks and parts; checks every shape."""
    lengths: dict[str, int] = {}
    for buffer in record.buffers:
        shape = buffers[buffer.name].shape
        for axis, length in zip(buffer.axes, _collapsed(record, buffer, shape), strict=True):
            if lengths.setdefault(str(axis), length) != length or (isinstance(axis, int) and axis != length):
                raise ShapeError(
                    f"[{record.name}] expected {buffer.name} of shape {_axes_text(buffer, lengths)}, got {shape}"
                )
    rows, d = lengths.get("rows", 0), lengths["d"]
    if d == 0:
        raise ShapeError(f"[{record.name}] expected d of at least 1, got 0")
    chunks, parts = lengths.get("chunks", chunk_count(rows)), lengths.get("parts", 1)
    if chunks == 0 or parts == 0:
        raise ShapeError(f"[{record.name}] expected at least 1 {'part' if chunks else 'chunk'}, got 0")
    return Extent(rows, d, chunks, 0, rows, parts)


def _collapsed(record: Kernel, buffer: Buffer, shape: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` with the leading dimensions multiplied into the rows."""
    tail = len(buffer.axes) - 1
    if buffer.axes[0] == "rows" and len(shape) >= tail:
        lead = shape[: len(shape) - tail]
        return (math.prod(lead), *shape[len(shape) - tail :])
    if len(shape) != len(buffer.axes):
        raise ShapeError(f"[{record.name}] expected {buffer.name} with axes {_axes_text(buffer, {})}, got {shape}")
    return shape


def _axes_text(buffer: Buffer, lengths: Mapping[str, int]) -> str:
    return "(" + ", ".join(str(lengths.get(str(axis), axis)) for axis in buffer.axes) + ",)"


def _check_aliases(record: Kernel, buffers: Mapping[str, Array]) -> None:
    for output in record.outputs:
        if not buffers[output.name]._writable:
            raise ShapeError(f"[{record.name}] expected {output.name} to be writeable, got a read-only array or a copy")
        for name, array in buffers.items():
            if name != output.name and array._buffer is not None and array._buffer is buffers[output.name]._buffer:
                raise ShapeError(f"[{record.name}] expected {output.name} apart from {name}, got the same Array")


def _open(spec: str) -> tuple[DeviceInfo, Backend]:
    matching, missing = _matching(spec)
    failures = [f"{entry.spec}: {entry.reason}" for entry in missing]
    for candidate in matching:
        try:
            backend = candidate.open()
            _self_test(candidate.info, backend)
        except Error as error:
            failures.append(f"{candidate.info.spec} ({candidate.info.name}): {error}")
            continue
        if spec == "auto":
            _warn_of_fallback(candidate.info, failures)
        return candidate.info, backend
    raise DeviceUnavailable(_unavailable_text(spec, failures))


def _matching(spec: str) -> tuple[list[Candidate], list[Missing]]:
    """The candidates that `spec` names, best first, and what stood in the way of others."""
    family, _, rest = spec.partition(":")
    backends = {"auto": BACKENDS, "wgpu": ("webgpu",), "cuda": ("cuda",), "rocm": ("cuda",), "cpu": ("cpu",)}
    if family not in backends or (rest and family in ("auto", "cpu")):
        raise DeviceUnavailable(
            "expected 'auto', 'wgpu', 'wgpu:metal|vulkan|dx12|gl[:<part of the adapter's name>]',"
            f" 'wgpu:<part of the adapter's name>', 'cuda[:n]', 'rocm[:n]' or 'cpu', got {spec!r}"
        )
    candidates: list[Candidate] = []
    missing: list[Missing] = []
    for name in backends[family]:
        found, absent = _survey_backend(name)
        candidates += found
        missing += [one for one in absent if family not in ("cuda", "rocm") or one.spec in (family, name)]
    return sorted(filter(lambda one: _named(one.info, family, rest), candidates), key=_rank), missing


def _named(info: DeviceInfo, family: str, rest: str) -> bool:
    if family == "auto":
        return info.api != "gl"
    if family in ("cuda", "rocm"):
        return info.api == family and (not rest or info.spec == f"{family}:{rest}")
    if family == "cpu":
        return True
    api, _, part = rest.lower().partition(":")
    if api in ("metal", "vulkan", "dx12", "gl"):
        return info.api == api and part in info.name.lower()
    return info.api != "gl" and rest.lower() in info.name.lower()


def _warn_of_fallback(info: DeviceInfo, failures: list[str]) -> None:
    if info.kind in ("software", "cpu"):
        reasons = f" ({'; '.join(failures)})" if failures else ""
        logger.warning("no GPU answers: using %s, %s, which computes on the CPU%s", info.spec, info.name, reasons)


def _unavailable_text(spec: str, failures: list[str]) -> str:
    seen = [f"{info.spec} ({info.name})" for info in devices()]
    tried = "; ".join(failures) or "nothing of that kind was found"
    return (
        f"no device answers to {spec!r}. Tried: {tried}. Found here: {', '.join(seen) or 'none'}."
        " On Debian or Ubuntu a software Vulkan driver comes with: apt-get install libvulkan1 mesa-vulkan-drivers."
        " `rowgrad info` lists every device and why each other one is not there; 'cpu' always works."
    )


def _self_test(info: DeviceInfo, backend: Backend) -> None:
    """Refuses a device that computes wrongly: a sum over 64 threads, by subgroups too, the rounding to 16 bits, a NaN.

    Some drivers have miscompiled reductions (WARP gave 3 for 2080) or return zeros (Apple's paravirtual device).
    """
    widths = (True, False) if backend.limits.subgroup else (True,)
    for storage, wide in product(STORAGE, widths):
        expected, got = _tested(backend, storage, wide)
        if not np.array_equal(expected, got, equal_nan=True):
            backend.close()
            raise DeviceUnavailable(
                f"{info.name} computes wrongly: the {storage} self-test expected {expected.tolist()},"
                f" got {got.tolist()}; its driver needs an update"
            )


def _tested(backend: Backend, storage: str, wide: bool) -> tuple[AnyArray, AnyArray]:
    """Three rows through softmax_back, their first results exact in every type, and what came.

    y = 1 and dy = 0, 1/256 … 255/256: a sum over the plan's threads or, if `wide`, over 64, four elements each; the
    same with a NaN; a product half-way between two numbers of the 16-bit types, which has to be rounded to the even.
    """
    d = 4 * SELF_TEST_TEAM
    dtype = STORAGE[storage]
    y = np.ones((3, d), np.float32)
    dy = np.tile(np.arange(d, dtype=np.float32) / d, (3, 1))
    dy[1, 5] = np.nan
    y[2], dy[2] = 0, 0
    y[2, 0], dy[2, 0] = 1 + (2.0**-6 if storage == "bfloat16" else 2.0**-9), 1.25
    hosts = {"y": y.astype(dtype), "dy": dy.astype(dtype)}
    buffers = {name: backend.allocate(hosts["y"].nbytes) for name in ("y", "dy", "dx")}
    for name, host in hosts.items():
        backend.write(buffers[name], host.reshape(-1).view(np.uint8))
    plan = plan_launch(KERNELS["softmax_back"], storage, storage, whole(3, d), backend.limits)
    if wide:
        variant = replace(plan.variant, team=SELF_TEST_TEAM, cells=1, full=False, subgroup=False)
        plan = replace(plan, variant=variant)
    backend.launch(plan, buffers)
    backend.submit()
    got = np.empty((3, d), dtype)
    backend.read(buffers["dx"], got.reshape(-1).view(np.uint8), time.monotonic() + WAIT_SECONDS)
    expected = reference.softmax_back(hosts["y"], hosts["dy"]).astype(dtype)
    return expected[:, 0].astype(np.float32), got[:, 0].astype(np.float32)
