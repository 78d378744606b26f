"""The CuPy back end: the kernels in CUDA C++ on CUDA and ROCm.

Every verb runs with its own GPU as CuPy's current device and on CuPy's current stream of it; memory is CuPy's pool's.
A buffer is a one-dimensional CuPy array of bytes, so a launch takes its pointer and CuPy keeps it alive. Another
library's is `_Lent`: its owner may use the memory again on a stream that knows nothing of launches still under way.
"""

import importlib
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..contract import KERNELS, storage_name
from ..device import WAIT_SECONDS, Adopted, Candidate, DeviceInfo, Missing, logger
from ..errors import DeviceLost, DeviceTimeout, DeviceUnavailable, DTypeError, Error, OutOfMemory
from ..plan import CELL_BYTES, UNLIMITED, Dispatch, Limits, Plan, Variant
from ..source import assemble_cuda

MOST_MODULES: Final = 512
BLOCKS_PER_PROCESSOR: Final = 64
"""Blocks of a grid for each multiprocessor, at most: the kernels' blocks go on with the rows that are left."""

PAUSES: Final = (20e-6, 1e-3)
"""Seconds between two looks at an event, at first and at most."""

INSTALL: Final = "pip install 'rowgrad-wgpu[cuda13x]' (or [cuda12x], by the driver's version)"
INSTALL_ROCM: Final = "pip install 'rowgrad-wgpu[rocm]' on a machine with ROCm 7"

_NOT_READY: Final = 600
"""What CUDA and HIP say of an event that has not come; CuPy's own `Event.done` takes an error for that too."""

_NO_ROOM: Final = ("CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation", "hipErrorOutOfMemory")
"""What a GPU says that has no room for a kernel: CuPy tells that apart from memory of its own."""

_DLPACK_GPUS: Final = (2, 10, 13)  # kDLCUDA, kDLROCM, kDLCUDAManaged


def survey() -> tuple[list[Candidate], list[Missing]]:
    """Every GPU that CuPy can reach, and what is missing for the others."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        return [], _without_cupy(error)
    hip = bool(cupy.cuda.runtime.is_hip)
    api, other = ("rocm", "cuda") if hip else ("cuda", "rocm")
    missing = [Missing(other, f"the CuPy that is installed is built for {api}: {INSTALL if hip else INSTALL_ROCM}")]
    reason = _missing_piece(cupy, hip)
    if reason:
        return [], [Missing(api, reason), *missing]
    return [_candidate(cupy, api, index) for index in range(cupy.cuda.runtime.getDeviceCount())], missing


def _without_cupy(error: ImportError) -> list[Missing]:
    if any(library in str(error) for library in ("libamdhip", "libhip", "libroc")):
        return [
            Missing("cuda", f"the CuPy that is installed is built for rocm: {INSTALL}"),
            Missing("rocm", f"CuPy needs a ROCm installation ({error}): install ROCm 7 and set ROCM_HOME"),
        ]
    if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
        return [
            Missing("cuda", f"CuPy is not installed: {INSTALL}"),
            Missing("rocm", f"CuPy is not installed: {INSTALL_ROCM}"),
        ]
    return [
        Missing("cuda", f"CuPy does not load ({error}): {INSTALL}"),
        Missing("rocm", f"CuPy does not load: {error}"),
    ]


def _missing_piece(cupy: ModuleType, hip: bool) -> str:
    """What keeps CuPy from a GPU, or nothing: the driver, the run-time compiler, the headers it wants."""
    driver = "ROCm's" if hip else "NVIDIA's"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return (
            f"CuPy {cupy.__version__} is installed, but {driver} driver does not answer ({error}): install the driver"
        )
    if not count:
        return f"CuPy {cupy.__version__} is installed, but {driver} driver shows no GPU"
    try:
        cupy.cuda.nvrtc.getVersion()
    except Exception as error:
        package = "ROCm's hipRTC" if hip else "NVRTC, the package nvidia-cuda-nvrtc"
        return f"CuPy has no run-time compiler ({type(error).__name__}): install {package}, or {INSTALL}"
    if not hip and not _cuda_headers():
        return f"CuPy finds no CUDA headers: install the package nvidia-cuda-runtime, or {INSTALL}"
    return ""


def _cuda_headers() -> bool:
    """Whether the headers are there that CuPy 14 asks for before it compiles anything; CuPy brings the finder along."""
    try:
        finder = importlib.import_module("cuda.pathfinder")
    except ImportError:
        return True
    return finder.find_nvidia_header_directory("cudart") is not None


def _candidate(cupy: ModuleType, api: str, index: int) -> Candidate:
    properties = cupy.cuda.runtime.getDeviceProperties(index)
    name = properties["name"]
    kind = "integrated" if properties.get("integrated") else "discrete"
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    return Candidate(DeviceInfo(f"{api}:{index}", "cuda", api, text, kind), lambda: CUDABackend(cupy, index))


def is_gpu_array(value: Any) -> bool:
    """Whether `value` offers GPU memory by DLPack or `__cuda_array_interface__`. Imports nothing."""
    try:
        return value.__dlpack_device__()[0] in _DLPACK_GPUS
    except Exception:  # none, or one that cannot tell
        return _has_interface(value)


def _has_interface(value: Any) -> bool:
    try:
        return hasattr(value, "__cuda_array_interface__")
    except Exception:  # PyTorch raises for a dtype or a layout that the interface does not know
        return False


def gpu_array(value: Any) -> Any:
    """`value` as a CuPy array over the same memory, ordered behind its producer's stream.

    **Raises:** `DeviceUnavailable` without CuPy, `DTypeError` for what cannot be shared.
    """
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        raise DeviceUnavailable(f"{type(value).__name__} lies on a GPU: {_without_cupy(error)[0].reason}") from error
    if isinstance(value, cupy.ndarray):
        return value
    try:
        return cupy.from_dlpack(value) if hasattr(value, "__dlpack__") else cupy.asarray(value)
    except Exception as error:
        raise DTypeError(
            f"expected a GPU array that can be shared, got {type(value).__name__} ({error}); a PyTorch tensor that"
            " needs a gradient has to be detached: .detach()"
        ) from error


def spec_of(array: Any) -> str:
    """The spec of the device that a CuPy array lies on."""
    cupy = importlib.import_module("cupy")
    return f"{'rocm' if cupy.cuda.runtime.is_hip else 'cuda'}:{array.device.id}"


@dataclass(frozen=True)
class _Launch:
    """A compiled kernel and the threads of its blocks."""

    function: Any
    threads: int


class _Lent:
    """Another library's memory, lent to an Array; it is given back when nobody holds this any more."""

    __slots__ = ("_returned", "array")

    def __init__(self, array: Any, returned: "deque[Any]") -> None:
        self.array = array
        self._returned = returned

    def __del__(self) -> None:
        self._returned.append(self.array)  # in whatever thread collects: a deque takes that


class CUDABackend:
    """A GPU through CuPy: launches go to CuPy's current stream at once."""

    shares_memory = False

    def __init__(self, cupy: Any, index: int) -> None:
        self._cupy = cupy
        self._index = index
        self._properties = cupy.cuda.runtime.getDeviceProperties(index)
        self.limits: Limits = replace(
            UNLIMITED,
            threads_per_group=int(self._properties["maxThreadsPerBlock"]),
            shared_bytes=int(self._properties["sharedMemPerBlock"]),
        )
        self._most_blocks = BLOCKS_PER_PROCESSOR * int(self._properties["multiProcessorCount"])
        self._launches: OrderedDict[Variant, _Launch] = OrderedDict()
        self._streams: dict[int, Any] = {}  # those that have been launched on since they were waited for
        self._returned: deque[Any] = deque()
        self._kept: deque[tuple[list[Any], list[Any]]] = deque()  # events, and what they have to come before

    def allocate(self, nbytes: int) -> Any:
        """Bytes of CuPy's pool, which begin at a multiple of 512."""
        with self._on_device("allocating"):
            return self._cupy.empty(nbytes, np.uint8)

    def write(self, buffer: Any, data: npt.NDArray[np.uint8]) -> None:
        """Copies in stream order and waits for it, so that `data` may change afterwards."""
        with self._on_device("writing a buffer"):
            _array(buffer)[: data.nbytes].set(data)
            self._cupy.cuda.get_current_stream().synchronize()

    def read(self, buffer: Any, out: npt.NDArray[np.uint8], deadline: float) -> None:
        """Waits, then copies."""
        self.wait(deadline)
        with self._on_device("reading a buffer"):
            _array(buffer)[: out.nbytes].get(out=out)

    def launch(self, plan: Plan, buffers: Mapping[str, Any]) -> None:
        """Launches the kernel for every dispatch."""
        kernel = KERNELS[plan.variant.kernel]
        launch = self._compiled(plan.variant)
        fields = [name for name in kernel.meta + kernel.window if not name.endswith("origin")]
        with self._on_device(f"launching {kernel.name}"):
            self._note_stream()
            self._give_back()
            for dispatch in plan.dispatches:
                pointers = [_part(_array(buffers[one.name]), dispatch, one.name) for one in kernel.buffers]
                values = dict(zip(kernel.meta + kernel.window, dispatch.fields, strict=True))
                scalars = [np.int32(values[name]) if name == "d" else np.int64(values[name]) for name in fields]
                blocks = min(dispatch.grid[0] * dispatch.grid[1], self._most_blocks)
                launch.function((blocks,), (launch.threads,), (*pointers, *scalars))

    def submit(self) -> None:
        """Nothing is held back."""

    def wait(self, deadline: float) -> None:
        """Waits for every stream that has been launched on, and for the current one."""
        with self._on_device("waiting"):
            self._note_stream()
            while self._streams:
                pointer, stream = next(iter(self._streams.items()))
                self._wait_for(self._recorded(stream), deadline)
                del self._streams[pointer]
            self._kept.clear()
            self._returned.clear()

    def _wait_for(self, event: Any, deadline: float) -> None:
        """Looks at an event until it has come; a look takes microseconds, so Ctrl-C is heard."""
        pause, longest = PAUSES
        while (status := self._cupy.cuda.runtime.eventQuery(event.ptr)) == _NOT_READY:
            if time.monotonic() > deadline:
                raise DeviceTimeout("the device did not finish in the time given: wait longer or launch less at once")
            time.sleep(pause)
            pause = min(2 * pause, longest)
        if status:
            event.synchronize()  # raises what a launch failed of

    def _recorded(self, stream: Any) -> Any:
        """An event behind all that a stream has to do."""
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def _note_stream(self) -> None:
        stream = self._cupy.cuda.get_current_stream()
        self._streams[stream.ptr] = stream

    def _give_back(self) -> None:
        """Lets go of what other libraries lent, once all is done that was launched before nobody held it any more."""
        if self._returned:
            events = [self._recorded(stream) for stream in self._streams.values()]
            self._kept.append((events, [self._returned.popleft() for _ in range(len(self._returned))]))
        while self._kept and all(event.done for event in self._kept[0][0]):
            self._kept.popleft()

    def adopt(self, value: Any) -> Adopted:
        """A GPU array as a buffer, without a copy where it is dense; else its dense copy."""
        array = gpu_array(value)
        if array.device.id != self._index:
            raise DTypeError(f"expected an array on GPU {self._index}, got one on GPU {array.device.id}")
        storage_name(array.dtype)
        with self._on_device("adopting an array"):
            dense = array if array.flags.c_contiguous else self._cupy.ascontiguousarray(array)
            flat = dense.reshape(-1).view(np.uint8)
        return Adopted(
            buffer=_Lent(flat, self._returned) if dense.size else None,
            shape=tuple(array.shape),
            dtype=np.dtype(array.dtype),
            aligned=dense.data.ptr % CELL_BYTES == 0,
            writable=dense is array and not _read_only(value),
        )

    def export(self, buffer: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """The CuPy array over a buffer, for DLPack and `__cuda_array_interface__`."""
        with self._on_device("exporting an array"):
            if buffer is None:
                return self._cupy.empty(shape, dtype)
            nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            return _array(buffer)[:nbytes].view(dtype).reshape(shape)

    def describe(self) -> dict[str, Any]:
        """The GPU, its driver and the versions of what compiles for it."""
        runtime = self._cupy.cuda.runtime
        known = self._properties
        architecture = known.get("gcnArchName") or f"{known.get('major')}.{known.get('minor')}"
        return {
            "architecture": architecture.decode() if isinstance(architecture, bytes) else architecture,
            "cupy": self._cupy.__version__,
            "driver": runtime.driverGetVersion(),
            "runtime": runtime.runtimeGetVersion(),
            "memory_bytes": int(known["totalGlobalMem"]),
            "multiprocessors": int(known["multiProcessorCount"]),
            "warp": int(known["warpSize"]),
            "max_threads": self.limits.threads_per_group,
            "shared_bytes": self.limits.shared_bytes,
        }

    def close(self) -> None:
        """Waits for the launches and lets go of the compiled kernels; memory goes back to CuPy's pool by itself."""
        try:
            self.wait(time.monotonic() + WAIT_SECONDS)
        except Error as error:
            logger.warning("closed a device that did not finish: %s", error)
        self._launches.clear()

    def _compiled(self, variant: Variant) -> _Launch:
        launch = self._launches.get(variant)
        if launch is None:
            with self._on_device(f"compiling {variant}"):
                module = self._cupy.RawModule(code=assemble_cuda(variant))
                launch = _Launch(module.get_function(variant.kernel), variant.threads)
            self._launches[variant] = launch
            if len(self._launches) > MOST_MODULES:
                self._launches.popitem(last=False)
        return launch

    @contextmanager
    def _on_device(self, action: str) -> Iterator[None]:
        """Makes this GPU CuPy's current device, and turns what CuPy raises into this package's errors."""
        try:
            with self._cupy.cuda.Device(self._index):
                yield
        except Error:
            raise
        except Exception as error:
            raise _translation(action, error) from error


def _array(buffer: Any) -> Any:
    """The CuPy array of a buffer."""
    return buffer.array if isinstance(buffer, _Lent) else buffer


def _part(array: Any, dispatch: Dispatch, name: str) -> Any:
    """The array from the byte on where a dispatch's part of it begins."""
    offset = dispatch.slices[name].offset
    return array[offset:] if offset else array


def _read_only(value: Any) -> bool:
    try:
        return bool(value.__cuda_array_interface__["data"][1])
    except Exception:  # no such interface, or not for this dtype
        return False


def _translation(action: str, error: Exception) -> Error:
    text = f"{action}: {type(error).__name__}: {error}"
    logger.debug("CuPy failed: %s", text)
    if isinstance(error, MemoryError) or any(name in str(error) for name in _NO_ROOM):
        return OutOfMemory(f"{text}; free Arrays, use fewer rows, or empty CuPy's pool")
    if "headers" in str(error):
        return DeviceUnavailable(f"{text}; install the package nvidia-cuda-runtime, or {INSTALL}")
    if type(error).__name__ in ("CompileException", "NVRTCError", "DynamicLibNotFoundError"):
        return DeviceUnavailable(f"{text}; {INSTALL}")
    if type(error).__name__ in ("CUDARuntimeError", "CUDADriverError"):
        return DeviceLost(f"{text}; a GPU that has failed needs a new process")
    return Error(text)
