"""The few calls of CuPy that the back end makes, on the processor: memory is NumPy's, kernels are built by g++.

`module(warp)` gives a module's stand-in. Its calls are those of CuPy 14, so grids, blocks and arguments are the back
end's own.
"""

import ctypes
import time
import types
import weakref
from typing import ClassVar

import numpy as np

from . import compiler

KINDS = {32: ("cuda", False), 64: ("rocm", True)}


class Pointer:
    def __init__(self, address):
        self.ptr = address


class Device:
    """A GPU's number; as a context manager the current one."""

    current: ClassVar = [0]

    def __init__(self, number=0):
        self.id = number

    def __enter__(self):
        Device.current.append(self.id)
        return self

    def __exit__(self, *error):
        Device.current.pop()


class ndarray(np.ndarray):  # noqa: N801
    """A CuPy array whose memory is the host's."""

    gpu = 0

    @property
    def data(self):
        return Pointer(self.ctypes.data)

    @property
    def device(self):
        return Device(self.gpu)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.data.ptr, False), "version": 3}

    def set(self, host):
        self[...] = host

    def get(self, out):
        out[...] = self


class Memory:
    """Bytes that begin at a multiple of 512, as CuPy's do, and end where the heap knows that they end."""

    libc = ctypes.CDLL(None)

    def __init__(self, nbytes):
        address = ctypes.c_void_p()
        if self.libc.posix_memalign(ctypes.byref(address), ctypes.c_size_t(512), ctypes.c_size_t(max(nbytes, 1))):
            raise MemoryError(f"no room for {nbytes:,} bytes")
        self.address = address
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address.value, False), "version": 3}

    def __del__(self):
        self.libc.free(self.address)


def empty(shape, dtype=float):
    """Memory full of NaN, so that an element that a kernel forgets shows."""
    dtype = np.dtype(dtype)
    made = np.asarray(Memory(int(np.prod(shape)) * dtype.itemsize))
    made[...] = 0xFF
    return made.view(dtype).reshape(shape).view(ndarray)


class Tensor:
    """Another library's tensor in GPU memory: DLPack, and for what it knows `__cuda_array_interface__`."""

    def __init__(self, host, gpu=0, read_only=False):
        self.host, self.gpu, self.read_only = host, gpu, read_only

    def __dlpack_device__(self):
        return 2, self.gpu

    def __dlpack__(self, **options):
        raise AssertionError("CuPy's own from_dlpack reads it")

    @property
    def __cuda_array_interface__(self):
        if self.host.dtype.kind == "V":
            raise TypeError("bfloat16 is unknown to the interface")  # as PyTorch's
        data = (self.host.ctypes.data, self.read_only)
        return {"shape": self.host.shape, "typestr": self.host.dtype.str, "data": data, "version": 3}


def from_tensor(tensor):
    """A CuPy array over a tensor's memory."""
    array = tensor.host.view(ndarray)
    array.gpu = tensor.gpu
    return array


class Stream:
    """A queue of launches, which are done when they return; a test may hold one up or let it fail, as CUDA says so."""

    status = 0

    def __init__(self, ptr=0):
        self.ptr = ptr

    def synchronize(self):
        """Nothing is under way."""


class CUDARuntimeError(RuntimeError):
    """CuPy's, of what went wrong on a GPU."""


class Event:
    """A moment of the host's clock, on a stream."""

    events: ClassVar = weakref.WeakValueDictionary()

    def __init__(self, disable_timing=False):
        self.ptr = id(self)
        self.events[self.ptr] = self

    def record(self, stream=None):
        self.stream = stream
        self.seconds = time.perf_counter()

    @classmethod
    def query(cls, ptr):
        """The status of the event at `ptr`, unchecked as CuPy's own."""
        stream = cls.events[ptr].stream
        return stream.status if stream else 0

    @property
    def done(self):
        return self.query(self.ptr) == 0

    def synchronize(self):
        if not self.done:
            raise CUDARuntimeError(f"cudaError {self.query(self.ptr)}")


class RawModule:
    """Kernels of one text, built when the first of them is asked for."""

    def __init__(self, code, warp, flavour, order):
        self.runtime = ctypes.PyDLL(str(compiler.runtime(flavour)))  # one thread at a time
        self.library = ctypes.CDLL(str(compiler.kernel(code, warp, flavour)))
        self.warp, self.order = warp, order

    def get_function(self, name):
        entry = ctypes.cast(getattr(self.library, name), ctypes.c_void_p)

        def launch(grid, block, arguments):
            assert len(grid) == len(block) == 1
            ctypes.c_uint.in_dll(self.runtime, "gpu_warp").value = self.warp
            ctypes.c_uint.in_dll(self.runtime, "gpu_order").value = self.order
            values = (ctypes.c_uint64 * len(arguments))(*map(argument, arguments))
            if self.runtime.gpu_launch(entry, grid[0], block[0], values, len(arguments)):
                raise RuntimeError(f"no GPU would launch {name} with {grid} blocks of {block} threads")

        return launch


def argument(value):
    """What CuPy hands to a kernel: a pointer, or a NumPy scalar's bits."""
    if isinstance(value, ndarray):
        return value.data.ptr
    assert isinstance(value, (np.int32, np.int64)), f"a kernel takes NumPy integers, got {type(value)}"
    return int(value) & 0xFFFFFFFFFFFFFFFF


def module(warp=32, flavour="plain", order=0, gpus=1):
    """A stand-in for the module `cupy` on a GPU with warps of `warp` threads."""
    properties = {
        "name": f"host GPU with warps of {warp}".encode(),
        "maxThreadsPerBlock": 1024,
        "sharedMemPerBlock": 48 << 10,
        "multiProcessorCount": 2,
        "totalGlobalMem": 1 << 30,
        "warpSize": warp,
        "major": 0,
        "minor": 0,
    }
    runtime = types.SimpleNamespace(
        is_hip=KINDS[warp][1],
        getDeviceCount=lambda: gpus,
        getDeviceProperties=lambda index: properties,
        driverGetVersion=lambda: 0,
        eventQuery=Event.query,
        runtimeGetVersion=lambda: 0,
    )
    cuda = types.SimpleNamespace(
        runtime=runtime,
        Device=Device,
        Event=Event,
        get_current_stream=Stream,
        get_elapsed_time=lambda start, stop: (stop.seconds - start.seconds) * 1e3,
        nvrtc=types.SimpleNamespace(getVersion=lambda: (0, 0)),
    )
    return types.SimpleNamespace(
        __name__="cupy",
        __version__="0.0 on the host",
        cuda=cuda,
        ndarray=ndarray,
        empty=empty,
        copyto=np.copyto,
        ascontiguousarray=lambda array: np.ascontiguousarray(array).view(ndarray),
        from_dlpack=from_tensor,
        asarray=from_tensor,
        RawModule=lambda code: RawModule(code, warp, flavour, order),
        get_default_memory_pool=lambda: types.SimpleNamespace(free_all_blocks=lambda: None),
    )
