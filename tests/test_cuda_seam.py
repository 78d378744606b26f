"""The seam to CuPy: what the back end hands over and on which GPU, what it adopts and exports, what it refuses.

The calls go to a stand-in that records them; without a driver the real CuPy is asked for its refusals.
"""

import importlib.util
import os
import sys
import weakref
from unittest import mock

import hostgpu
import ml_dtypes
import numpy as np
import pytest
from grids import inputs
from hostgpu.cupy import CUDARuntimeError, Tensor

import rowgrad_wgpu as rg
from rowgrad_wgpu.backends import cuda
from rowgrad_wgpu.contract import KERNELS, STORAGE
from rowgrad_wgpu.device import Device, survey


class Recorder:
    """A stand-in for CuPy that keeps what it was called with, and on which GPU."""

    def __init__(self, gpus=1):
        self.cupy = hostgpu.cupy.module(gpus=gpus)
        self.launches, self.compiled, self.gpus = [], [], []
        self._raw_module = self.cupy.RawModule
        self._empty = self.cupy.empty
        self.cupy.RawModule = self.raw_module
        self.cupy.empty = self.empty

    def note_gpu(self):
        self.gpus.append(hostgpu.cupy.Device.current[-1])

    def empty(self, *shape_and_dtype):
        self.note_gpu()
        array = self._empty(*shape_and_dtype)
        array.gpu = hostgpu.cupy.Device.current[-1]
        return array

    def raw_module(self, code):
        self.note_gpu()
        self.compiled.append(code)
        module = self._raw_module(code)
        function = module.get_function

        def get_function(name):
            launch = function(name)

            def recorded(grid, block, arguments):
                self.note_gpu()
                self.launches.append((name, grid, block, arguments))
                launch(grid, block, arguments)

            return recorded

        module.get_function = get_function
        return module

    def open(self, spec="cuda"):
        with hostgpu.as_cupy(self.cupy):
            device = Device(spec)
        self.launches.clear()
        self.gpus.clear()
        return device


def arrays_of(device, kernel, rows=5, d=32, storage="float32"):
    lengths = {"rows": rows, "d": d, "chunks": 1, "parts": 3}
    types = {"F": STORAGE[storage], "A": STORAGE[storage], "float32": np.float32}
    made = {}
    for buffer in kernel.buffers:
        shape = tuple(lengths.get(axis, axis) for axis in buffer.axes)
        made[buffer.name] = device.asarray(np.ones(shape, types[buffer.element]))
    return made


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_launch_hands_over_the_records_buffers_and_fields(kernel):
    recorder = Recorder()
    device = recorder.open()
    arrays = arrays_of(device, kernel)
    device.launch(kernel.name, **arrays)
    assert len(recorder.launches) == kernel.phases
    known = {"d": 32, "rows": 5, "per": 5, "row_count": 5, "first_row": 0, "first_chunk": 0, "chunk_count": 1}
    known |= {"part": 16, "parts": 3}
    fields = [one for one in kernel.meta + kernel.window if not one.endswith("origin")]
    for phase, (name, grid, block, arguments) in enumerate(recorder.launches):
        assert name == kernel.name
        assert (len(grid), len(block)) == (1, 1)
        assert block[0] % 64 == 0
        pointers, scalars = arguments[: len(kernel.buffers)], arguments[len(kernel.buffers) :]
        assert [one.data.ptr for one in pointers] == [arrays[one.name]._buffer.data.ptr for one in kernel.buffers]
        assert [int(one) for one in scalars] == [(known | {"phase": phase})[one] for one in fields]
        assert [type(one) for one in scalars] == [np.int32 if one == "d" else np.int64 for one in fields]


def test_a_kernel_is_compiled_once_for_a_device_and_dtype():
    recorder = Recorder()
    device = recorder.open()
    before = len(recorder.compiled)
    for rows in (3, 5, 200):
        given = inputs(rows, 64, "float32")
        rg.softmax_back(given["y"], given["dy"], device=device)
    assert len(recorder.compiled) == before + 1
    given = inputs(3, 64, "float16")
    rg.softmax_back(given["y"], given["dy"], device=device)
    assert len(recorder.compiled) == before + 2


def test_every_call_is_made_on_the_devices_own_gpu():
    recorder = Recorder(gpus=2)
    device = recorder.open("cuda:1")
    assert device.info.spec == "cuda:1"
    given = inputs(5, 33, "float32")
    rg.layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    device.synchronize()
    assert set(recorder.gpus) == {1}
    assert hostgpu.cupy.Device.current == [0], "the caller's current GPU is as it was"


def test_both_gpus_are_listed():
    with hostgpu.as_cupy(Recorder(gpus=2).cupy):
        assert [info.spec for info in rg.devices() if info.backend == "cuda"] == ["cuda:0", "cuda:1"]
        with pytest.raises(rg.DeviceUnavailable, match="no device answers to 'cuda:7'"):
            Device("cuda:7")


def test_auto_takes_the_gpu_first():
    with hostgpu.as_cupy(hostgpu.cupy.module()), mock.patch.dict(os.environ, {"ROWGRAD_DEVICE": ""}):
        assert Device().info.spec == "cuda:0"


NOT_READY = 600


@pytest.fixture
def streams():
    """A device and two streams, of which the first is the current one."""
    device = hostgpu.open_device(32)
    first, second = hostgpu.cupy.Stream(1), hostgpu.cupy.Stream(2)
    device._backend._cupy.cuda.get_current_stream = lambda: first
    return device, first, second


def launch_on(device, stream, y, dy):
    """softmax_back while `stream` is the current one."""
    cuda_calls = device._backend._cupy.cuda
    before, cuda_calls.get_current_stream = cuda_calls.get_current_stream, lambda: stream
    dx = rg.softmax_back(y, dy, device=device)
    cuda_calls.get_current_stream = before
    return dx


def test_a_wait_that_takes_too_long(streams):
    device, first, _ = streams
    first.status = NOT_READY
    with pytest.raises(rg.DeviceTimeout, match="did not finish"):
        device.synchronize(timeout=0.02)
    first.status = 0
    device.synchronize()


def test_a_launch_that_failed_is_no_timeout(streams):
    device, first, _ = streams
    first.status = 700
    with pytest.raises(rg.DeviceLost, match="cudaError 700"):
        device.synchronize()
    with pytest.raises(rg.DeviceLost, match="open a new one"):
        device.synchronize()


def test_every_stream_that_was_launched_on_is_waited_for(streams):
    device, _, second = streams
    y, dy = (device.asarray(np.ones((2, 8), np.float32)) for _ in range(2))
    dx = launch_on(device, second, y, dy)
    second.status = NOT_READY
    with pytest.raises(rg.DeviceTimeout):
        dx.numpy(timeout=0.02)
    second.status = 0
    assert (dx.numpy(timeout=0.02) == 1 - 8).all()


def lent_to_a_launch(device):
    """A reference to another library's memory that nobody but a launch has held."""
    host = np.ones((2, 8), np.float32)
    rg.softmax_back(Tensor(host), Tensor(np.ones((2, 8), np.float32)), device=device)
    return weakref.ref(host)


def test_lent_memory_is_kept_until_its_launches_are_done(streams):
    device, first, _ = streams
    first.status = NOT_READY
    with hostgpu.as_cupy(device._backend._cupy):
        lent = lent_to_a_launch(device)
    y, dy = (device.empty((2, 8), np.float32) for _ in range(2))
    rg.softmax_back(y, dy)
    assert lent() is not None, "a launch may still read it"
    first.status = 0
    rg.softmax_back(y, dy)
    assert lent() is None


def test_lent_memory_goes_back_with_a_wait(streams):
    device, _, _ = streams
    with hostgpu.as_cupy(device._backend._cupy):
        lent = lent_to_a_launch(device)
    assert lent() is not None
    device.synchronize()
    assert lent() is None


class CUDADriverError(RuntimeError):
    pass


class CompileException(Exception):
    pass


@pytest.mark.parametrize(
    ("raised", "error", "text"),
    [
        (CUDADriverError("CUDA_ERROR_OUT_OF_MEMORY: out of memory"), rg.OutOfMemory, "free Arrays"),
        (CUDARuntimeError("cudaErrorIllegalAddress"), rg.DeviceLost, "cudaErrorIllegalAddress; a GPU that has failed"),
        (MemoryError("out of memory"), rg.OutOfMemory, "free Arrays"),
        (CompileException("error: expected a ;"), rg.DeviceUnavailable, "expected a ;"),
        (RuntimeError("Failed to find CUDA headers."), rg.DeviceUnavailable, "nvidia-cuda-runtime"),
        (ValueError("what else"), rg.Error, "ValueError: what else"),
    ],
)
def test_what_cupy_raises_is_translated(raised, error, text):
    device = Recorder().open()
    device._backend._cupy.RawModule = mock.Mock(side_effect=raised)
    with pytest.raises(error, match=text):
        rg.softmax_back(np.ones((2, 9), np.float32), np.ones((2, 9), np.float32), device=device)


def reasons(stand_in):
    with hostgpu.as_cupy(stand_in):
        return {one.spec: one.reason for one in survey()[1]}


def broken(**parts):
    stand_in = hostgpu.cupy.module()
    for name, value in parts.items():
        owner, attribute = (stand_in.cuda.runtime, name) if name.startswith("get") else (stand_in.cuda, name)
        setattr(owner, attribute, value)
    return stand_in


def test_what_is_missing_is_named():
    assert "CuPy is not installed: pip install 'rowgrad-wgpu[cuda13x]'" in reasons(None)["cuda"]
    assert "rowgrad-wgpu[rocm]" in reasons(None)["rocm"]
    silent = broken(getDeviceCount=mock.Mock(side_effect=CUDARuntimeError("cudaErrorInsufficientDriver")))
    assert "NVIDIA's driver does not answer (cudaErrorInsufficientDriver)" in reasons(silent)["cuda"]
    assert "shows no GPU" in reasons(broken(getDeviceCount=lambda: 0))["cuda"]
    nvrtc = mock.Mock(getVersion=mock.Mock(side_effect=OSError("libnvrtc")))
    assert "the package nvidia-cuda-nvrtc" in reasons(broken(nvrtc=nvrtc))["cuda"]
    assert "built for cuda" in reasons(hostgpu.cupy.module())["rocm"]
    assert "built for rocm" in reasons(hostgpu.cupy.module(warp=64))["cuda"]


def test_missing_headers_are_named():
    finder = mock.Mock(find_nvidia_header_directory=lambda name: None)
    with hostgpu.as_cupy(hostgpu.cupy.module()):
        sys.modules["cuda.pathfinder"] = finder
        assert "the package nvidia-cuda-runtime" in {one.spec: one.reason for one in survey()[1]}["cuda"]


def test_a_rocm_wheel_without_rocm_is_named():
    error = ImportError("libamdhip64.so.7: cannot open shared object file: No such file or directory")
    missing = {one.spec: one.reason for one in cuda._without_cupy(error)}
    assert "install ROCm 7 and set ROCM_HOME" in missing["rocm"]
    assert "built for rocm" in missing["cuda"]


def test_a_broken_cupy_is_not_taken_for_rocms():
    missing = {one.spec: one.reason for one in cuda._without_cupy(ImportError("DLL load failed: procedure not found"))}
    assert "CuPy does not load (DLL load failed: procedure not found)" in missing["cuda"]


@pytest.fixture
def real_cupy():
    if importlib.util.find_spec("cupy") is None:
        refuse = pytest.fail if "cupy" in os.environ.get("ROWGRAD_EXPECT", "").split() else pytest.skip
        refuse("CuPy is missing: pip install cupy-cuda13x")
    import cupy

    if cupy.is_available():
        pytest.skip("a GPU answers here: this is for machines without one")
    return cupy


def test_the_real_cupy_without_a_driver_is_refused(real_cupy):
    with pytest.raises(rg.DeviceUnavailable, match=r"NVIDIA's driver does not answer .*install the driver"):
        Device("cuda")
    with pytest.raises(rg.DeviceUnavailable, match=r"rocm: the CuPy that is installed is built for cuda"):
        Device("rocm")
    assert all(info.backend != "cuda" for info in rg.devices())


@pytest.fixture(scope="module")
def gpu():
    return Recorder().open()


@pytest.mark.parametrize("storage", STORAGE)
def test_another_librarys_tensors_are_taken_without_a_copy(gpu, storage):
    given = inputs(5, 32, storage)
    y, dy = Tensor(given["y"]), Tensor(given["dy"])
    with hostgpu.as_cupy(gpu._backend._cupy):
        adopted = gpu.asarray(y)
        dx = rg.softmax_back(y, dy, device=gpu)
    assert adopted._buffer.array.data.ptr == given["y"].ctypes.data
    assert isinstance(dx, rg.Array)
    assert dx.numpy().tobytes() == rg.softmax_back(given["y"], given["dy"], device=gpu).tobytes()


def test_tensors_choose_their_own_gpu():
    recorder = Recorder(gpus=2)
    given = inputs(3, 8, "float32")
    with hostgpu.as_cupy(recorder.cupy), mock.patch.dict("rowgrad_wgpu.ops._default", clear=True):
        x, dy, alpha = (Tensor(given[name], gpu=1) for name in ("x", "dy", "alpha"))
        grads = rg.layer_norm_back(x, dy, alpha)
    assert grads.dx.device.info.spec == "cuda:1"
    expected = rg.layer_norm_back(given["x"], given["dy"], given["alpha"], device=grads.dx.device)
    for one, other in zip(grads, expected, strict=True):
        assert one.numpy().tobytes() == other.tobytes()


def test_strided_and_shifted_tensors_are_right(gpu):
    wide = inputs(6, 66, "float32")
    views = {name: wide[name][:, 1:65:2] for name in ("y", "dy")}
    flat = np.zeros(5 * 32 + 1, np.float32)
    shifted = flat[1:].reshape(5, 32)
    shifted[...] = inputs(5, 32, "float32")["dy"]
    assert shifted.ctypes.data % 16
    with hostgpu.as_cupy(gpu._backend._cupy):
        strided = rg.softmax_back(Tensor(views["y"]), Tensor(views["dy"]))
        assert strided.numpy().tobytes() == rg.softmax_back(views["y"], views["dy"], device=gpu).tobytes()
        adopted = gpu.asarray(Tensor(shifted))
        assert not adopted._aligned
        y = inputs(5, 32, "float32")["y"]
        dx = rg.softmax_back(gpu.asarray(y), adopted)
    np.testing.assert_allclose(dx.numpy(), rg.softmax_back(y, shifted, device=gpu), rtol=1e-5, atol=1e-7)


def test_out_may_be_a_tensor(gpu):
    given = inputs(5, 32, "float32")
    target = np.zeros((5, 32), np.float32)
    with hostgpu.as_cupy(gpu._backend._cupy):
        rg.softmax_back(Tensor(given["y"]), Tensor(given["dy"]), out=Tensor(target))
        assert target.tobytes() == rg.softmax_back(given["y"], given["dy"], device=gpu).tobytes()
        for bad in (Tensor(target, read_only=True), Tensor(np.zeros((5, 64), np.float32)[:, ::2])):
            with pytest.raises(rg.ShapeError, match="dense and writeable"):
                rg.softmax_back(Tensor(given["y"]), Tensor(given["dy"]), out=bad)


def test_tensors_that_are_refused(gpu):
    good = Tensor(np.ones((2, 8), np.float32))
    with hostgpu.as_cupy(gpu._backend._cupy):
        with pytest.raises(rg.DTypeError, match="got float64"):
            rg.softmax_back(Tensor(np.ones((2, 8))), Tensor(np.ones((2, 8))))
        with pytest.raises(rg.DTypeError, match="expected an array on GPU 0, got one on GPU 1"):
            rg.softmax_back(good, Tensor(np.ones((2, 8), np.float32), gpu=1), device=gpu)
        with pytest.raises(rg.DTypeError, match="not both"):
            rg.softmax_back(good, np.ones((2, 8), np.float32))
        gpu._backend._cupy.from_dlpack = mock.Mock(side_effect=BufferError("requires_grad"))
        with pytest.raises(rg.DTypeError, match=r"requires_grad\).*\.detach"):
            gpu.asarray(good)
        gpu._backend._cupy.from_dlpack = hostgpu.cupy.from_tensor


def test_tensors_are_refused_by_other_devices(cpu, adapter):
    for device in (cpu, adapter):
        with pytest.raises(rg.DTypeError, match="in a GPU's memory"):
            device.asarray(Tensor(np.ones((2, 8), np.float32)))


def test_a_tensor_without_cupy_is_refused():
    with (
        hostgpu.as_cupy(None),
        pytest.raises(rg.DeviceUnavailable, match="lies on a GPU: CuPy is not installed"),
    ):
        rg.softmax_back(Tensor(np.ones((2, 8), np.float32)), Tensor(np.ones((2, 8), np.float32)))


def test_an_array_is_exported_both_ways(gpu, cpu):
    array = gpu.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    interface = array.__cuda_array_interface__
    assert interface["data"][0] == array._buffer.data.ptr
    assert interface["shape"] == (2, 3)
    shared = np.from_dlpack(array)
    assert shared.ctypes.data == array._buffer.data.ptr
    assert shared.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (
        gpu._backend.export(gpu.empty((2, 3), ml_dtypes.bfloat16)._buffer, (2, 3), STORAGE["bfloat16"]).dtype
        == (STORAGE["bfloat16"])
    )
    host = cpu.asarray(np.ones((2, 3), np.float32))
    assert not hasattr(host, "__cuda_array_interface__")
    with pytest.raises(BufferError, match=r"use \.numpy\(\)"):
        np.from_dlpack(host)


@pytest.mark.parametrize("storage", STORAGE)
def test_few_blocks_go_on_with_the_rows_that_are_left(storage):
    given = inputs(300, 12, storage)
    device = Recorder().open()
    whole = [rg.softmax_back(given["y"], given["dy"], device=device)]
    whole += rg.layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    whole += rg.layer_norm_back(given["x"], given["dy"], grads=("dalpha",), device=device)[1:2]
    device._backend._most_blocks = 2
    few = [rg.softmax_back(given["y"], given["dy"], device=device)]
    few += rg.layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    few += rg.layer_norm_back(given["x"], given["dy"], grads=("dalpha",), device=device)[1:2]
    for one, other in zip(whole, few, strict=True):
        assert one.tobytes() == other.tobytes()
