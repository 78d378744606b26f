"""Device, Array and the host functions' arguments: what is taken, and what each refusal says."""

import copy
import pickle
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from grids import inputs
from hostile_inputs import shifted

import rowgrad_wgpu as rg
from rowgrad_wgpu import device as facade
from rowgrad_wgpu import ops
from rowgrad_wgpu.backends import webgpu


@pytest.fixture
def given():
    return inputs(6, 33, "float32")


def test_devices_lists_what_opens_best_first():
    found = rg.devices()
    assert found[-1].api == "gl" or found[-1].spec == "cpu"
    assert "cpu" in [one.spec for one in found]
    for info in found:
        with rg.Device(info.spec) as opened:
            assert opened.info == info


LAPTOP = [("Vulkan", "IntegratedGPU", "Intel UHD"), ("D3D12", "IntegratedGPU", "Intel UHD")]
LAPTOP += [("Vulkan", "DiscreteGPU", "RTX 4060"), ("D3D12", "DiscreteGPU", "RTX 4060"), ("OpenGL", "CPU", "llvmpipe")]


def test_each_of_several_adapters_is_opened_by_its_spec(monkeypatch):
    """Two GPUs through two interfaces: each spec names one of them, that of an interface alone the best."""
    found = [
        SimpleNamespace(info={"backend_type": api, "adapter_type": kind, "device": name}) for api, kind, name in LAPTOP
    ]
    monkeypatch.setattr(webgpu, "_adapters", lambda: found)
    listed = [one.info for one in webgpu.survey()[0]]
    assert [(info.spec, info.name) for info in listed[:2]] == [("wgpu:vulkan", "RTX 4060"), ("wgpu:dx12", "RTX 4060")]
    for info in listed:
        assert facade._matching(info.spec)[0][0].info == info


def test_auto_takes_the_first_and_warns_of_software(caplog):
    with rg.Device() as opened:
        assert opened.info == rg.devices()[0]
    if opened.info.kind in ("software", "cpu"):
        assert [record.levelname for record in caplog.records if record.name == "rowgrad_wgpu"] == ["WARNING"]


def test_the_environment_names_the_default(monkeypatch):
    monkeypatch.setenv("ROWGRAD_DEVICE", "cpu")
    with rg.Device() as opened:
        assert opened.info.spec == "cpu"


def test_an_adapter_by_a_part_of_its_name(adapter):
    part = adapter.info.name[:5].upper()
    with rg.Device(f"wgpu:{part}") as opened:
        assert opened.info == adapter.info


@pytest.mark.parametrize("spec", ["nonsense", "wgpu:no such adapter", "cpu:1", "cuda", "rocm:3", ""])
def test_a_spec_that_nothing_answers_to(spec, monkeypatch):
    monkeypatch.delenv("ROWGRAD_DEVICE", raising=False)
    with pytest.raises(rg.DeviceUnavailable, match=r"got '|no device answers"):
        rg.Device(spec)


@pytest.mark.parametrize("rank", [("discrete", "integrated"), ("integrated", "software"), ("software", "cpu")])
def test_the_ranking(rank):
    infos = [rg.DeviceInfo("s", "webgpu", "vulkan", "n", kind) for kind in rank]
    candidates = [facade.Candidate(info, lambda: None) for info in reversed(infos)]
    assert [one.info for one in sorted(candidates, key=facade._rank)] == infos


def test_a_gpu_through_cupy_comes_before_any_adapter():
    infos = [
        rg.DeviceInfo("s", "cuda", "rocm", "n", "integrated"),
        rg.DeviceInfo("s", "webgpu", "vulkan", "n", "discrete"),
    ]
    candidates = [facade.Candidate(info, lambda: None) for info in reversed(infos)]
    assert [one.info for one in sorted(candidates, key=facade._rank)] == infos


def test_gl_is_last_and_metal_and_vulkan_come_before_dx12():
    apis = ("vulkan", "dx12", "gl")
    infos = [rg.DeviceInfo("s", "webgpu", api, "n", "discrete") for api in apis]
    candidates = [facade.Candidate(info, lambda: None) for info in reversed(infos)]
    assert [one.info for one in sorted(candidates, key=facade._rank)] == infos


def test_a_device_that_computes_wrongly_is_refused(monkeypatch):
    wrong = facade.reference.softmax_back
    monkeypatch.setattr(facade.reference, "softmax_back", lambda y, dy: wrong(y, dy) + 1)
    with pytest.raises(rg.DeviceUnavailable, match="computes wrongly"):
        rg.Device("cpu")


@pytest.mark.parametrize("storage", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 4), (2, 3, 7)])
def test_arrays_go_and_come(device, storage, shape):
    host = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape).astype(storage)
    array = device.asarray(host)
    assert (array.shape, array.dtype, array.nbytes, array.ndim, array.size) == (
        shape,
        host.dtype,
        host.nbytes,
        host.ndim,
        host.size,
    )
    assert array.device is device
    assert np.array_equal(array.numpy(), host)
    assert np.array_equal(np.asarray(array), host)
    assert device.asarray(array) is array


def test_a_new_cpu_buffer_is_full_of_nan(cpu):
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        assert np.isnan(cpu.empty(5, dtype).numpy().astype(np.float32)).all()


def test_an_array_is_a_copy(device, given):
    host = given["x"].copy()
    array = device.asarray(host)
    host[:] = 0
    assert np.array_equal(array.numpy(), given["x"])


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.bool_, np.complex64, object, ">f4"])
def test_other_dtypes_are_refused_by_name(device, dtype):
    with pytest.raises(rg.DTypeError, match="expected float32, float16 or bfloat16"):
        device.asarray(np.zeros((2, 2), dtype))
    with pytest.raises(TypeError, match="cast silently"):
        rg.softmax_back(np.zeros((2, 2), dtype), np.zeros((2, 2), dtype), device=device)


@pytest.mark.parametrize("shape", [-1, (2, -3)])
def test_negative_lengths(device, shape):
    with pytest.raises(rg.ShapeError, match="0 or more"):
        device.empty(shape, np.float32)


def test_arrays_in_arrays_out(device, given):
    arrays = {name: device.asarray(one) for name, one in given.items()}
    dx = rg.softmax_back(arrays["y"], arrays["dy"])
    assert isinstance(dx, rg.Array)
    assert dx.numpy().tobytes() == rg.softmax_back(given["y"], given["dy"], device=device).tobytes()
    got = rg.layer_norm_back(arrays["x"], arrays["dy"], arrays["alpha"])
    expected = rg.layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    for one, other in zip(got, expected, strict=True):
        assert isinstance(one, rg.Array)
        assert one.numpy().tobytes() == other.tobytes()


def test_a_batch_gives_the_same_bits(device, given):
    arrays = {name: device.asarray(one) for name, one in given.items()}
    single = rg.softmax_back(arrays["y"], arrays["dy"]).numpy()
    with device.batch(), device.batch():
        first = rg.softmax_back(arrays["y"], arrays["dy"])
        chained = rg.layer_norm_back(first, arrays["dy"], arrays["alpha"])
    assert first.numpy().tobytes() == single.tobytes()
    expected = rg.layer_norm_back(single, given["dy"], given["alpha"], device=device)
    assert chained.dalpha.numpy().tobytes() == expected.dalpha.tobytes()


def test_an_exception_in_a_batch_leaves_the_device_usable(device, given):
    arrays = {name: device.asarray(one) for name, one in given.items()}
    with pytest.raises(KeyError), device.batch():
        dx = rg.softmax_back(arrays["y"], arrays["dy"])
        raise KeyError
    assert dx.numpy().tobytes() == rg.softmax_back(given["y"], given["dy"], device=device).tobytes()


def test_no_host_synchronisation_with_arrays(adapter, given, monkeypatch):
    arrays = {name: adapter.asarray(one) for name, one in given.items()}
    rg.layer_norm_back(arrays["x"], arrays["dy"], arrays["alpha"])  # its constants are uploaded once
    monkeypatch.setattr(adapter._backend, "wait", lambda *_: pytest.fail("waited"))
    monkeypatch.setattr(adapter._backend, "read", lambda *_: pytest.fail("read"))
    rg.softmax_back(arrays["y"], arrays["dy"])
    rg.layer_norm_back(arrays["x"], arrays["dy"], arrays["alpha"])


LAYOUTS = {
    "strided": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "sliced rows": lambda a: np.concatenate([a, a])[: len(a)],
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "Fortran": np.asfortranarray,
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "transposed 3-D": lambda a: a.reshape(2, 3, 33).transpose(1, 0, 2).copy().transpose(1, 0, 2),
    "a list's array": lambda a: np.array(a.tolist(), np.float32),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_kind_of_numpy_input(device, given, layout):
    made = {name: LAYOUTS[layout](one) if one.ndim == 2 else one for name, one in given.items()}
    assert np.array_equal(made["x"].reshape(6, 33), given["x"])
    dx = rg.softmax_back(made["y"], made["dy"], device=device)
    assert dx.shape == made["y"].shape
    assert dx.tobytes() == rg.softmax_back(given["y"], given["dy"], device=device).tobytes()
    grads = rg.layer_norm_back(made["x"], made["dy"], made["alpha"], device=device)
    expected = rg.layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    for one, other in zip(grads, expected, strict=True):
        assert one.tobytes() == other.tobytes()


def test_the_bits_do_not_depend_on_the_address(device):
    given = inputs(2, 250 if device.info.api == "gl" else 20_001, "float32")
    moved = {name: shifted(one) for name, one in given.items()}
    assert not moved["x"].flags.aligned
    dx = rg.softmax_back(moved["y"], moved["dy"], device=device)
    assert dx.tobytes() == rg.softmax_back(given["y"], given["dy"], device=device).tobytes()
    grads = rg.layer_norm_back(moved["x"], moved["dy"], moved["alpha"], out=shifted(given["x"]), device=device)
    expected = rg.layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    for one, other in zip(grads, expected, strict=True):
        assert one.tobytes() == other.tobytes()


def test_broadcast_and_memory_mapped(device, given, tmp_path):
    wide = np.broadcast_to(given["dy"][:1], given["dy"].shape)
    expected = rg.softmax_back(given["y"], wide.copy(), device=device)
    assert rg.softmax_back(given["y"], wide, device=device).tobytes() == expected.tobytes()
    np.save(tmp_path / "y.npy", given["y"])
    mapped = np.load(tmp_path / "y.npy", mmap_mode="r")
    assert rg.softmax_back(mapped, wide, device=device).tobytes() == expected.tobytes()


@pytest.mark.parametrize("lead", [(), (6,), (2, 3), (1, 2, 1, 3)])
def test_leading_dimensions_are_free(device, given, lead):
    rows = int(np.prod(lead))
    y, dy = (given[name][:rows].reshape(*lead, 33) for name in ("y", "dy"))
    dx = rg.softmax_back(y, dy, device=device)
    assert dx.shape == (*lead, 33)
    assert dx.tobytes() == rg.softmax_back(given["y"][:rows], given["dy"][:rows], device=device).tobytes()


def test_out_is_filled_and_returned(device, given):
    expected = rg.softmax_back(given["y"], given["dy"], device=device)
    for out in (np.empty((6, 33), np.float32), np.empty((6, 66), np.float32)[:, ::2], np.empty((33, 6), np.float32).T):
        assert rg.softmax_back(given["y"], given["dy"], out=out, device=device) is out
        assert np.array_equal(out, expected)
    target = device.empty((6, 33), np.float32)
    arrays = [device.asarray(given[name]) for name in ("y", "dy")]
    assert rg.softmax_back(*arrays, out=target) is target
    assert np.array_equal(target.numpy(), expected)


def test_out_for_each_gradient(device, given):
    out = (np.empty((6, 33), np.float32), np.empty(33, np.float32), None)
    got = rg.layer_norm_back(given["x"], given["dy"], given["alpha"], out=out, device=device)
    expected = rg.layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    assert got.dx is out[0]
    assert got.dalpha is out[1]
    for one, other in zip(got, expected, strict=True):
        assert one.tobytes() == other.tobytes()


class BadNews:
    def __array__(self, *given, **more):
        raise RuntimeError("bad news")


def refusals(device, given):
    y, dy, alpha = given["y"], given["dy"], given["alpha"]
    read_only = np.empty((6, 33), np.float32)
    read_only.flags.writeable = False
    resident = device.asarray(y)
    freed = device.asarray(y)
    freed.free()
    norm, soft = rg.layer_norm_back, rg.softmax_back
    return {
        "shapes": (rg.ShapeError, r"expected dy of shape \(6, 33\)", lambda: soft(y, dy[:5], device=device)),
        "d of 0": (ValueError, "at least 1", lambda: soft(y[:, :0], dy[:, :0], device=device)),
        "no axis": (rg.ShapeError, "single number", lambda: soft(y[0, 0], dy[0, 0], device=device)),
        "dtypes": (rg.DTypeError, "dy in float32", lambda: soft(y, dy.astype(np.float16), device=device)),
        "alpha's shape": (rg.ShapeError, r"alpha of shape \(33,\)", lambda: norm(y, dy, alpha[:32], device=device)),
        "alpha's dtype": (rg.DTypeError, "alpha in", lambda: norm(y, dy, alpha.astype(np.float16), device=device)),
        "negative eps": (rg.ShapeError, "eps to be finite", lambda: norm(y, dy, eps=-1, device=device)),
        "NaN eps": (rg.ShapeError, "eps to be finite", lambda: norm(y, dy, eps=float("nan"), device=device)),
        "infinite eps": (rg.ShapeError, "eps to be finite", lambda: norm(y, dy, eps=1e300, device=device)),
        "eps a text": (rg.DTypeError, "eps as a number", lambda: norm(y, dy, eps="1", device=device)),
        "a huge eps": (rg.ShapeError, "eps to be finite", lambda: norm(y, dy, eps=10**400, device=device)),
        "grads a number": (rg.DTypeError, "grads out of", lambda: norm(y, dy, grads=3, device=device)),
        "ragged lists": (rg.DTypeError, "expected a NumPy array", lambda: soft([[1], [1, 2]], dy, device=device)),
        "a mask": (rg.DTypeError, "masked", lambda: soft(np.ma.masked_invalid(y), dy, device=device)),
        "out twice": (
            rg.ShapeError,
            "apart from each other",
            lambda: norm(y, dy, out=(None, one := np.empty(33, np.float32), one), device=device),
        ),
        "out twice, resident": (
            rg.ShapeError,
            "apart from each other",
            lambda: norm(resident, resident, out=(None, one := device.empty(33, np.float32), one)),
        ),
        "a kernel's list": (rg.ShapeError, "expected one of the kernels", lambda: device.launch(["softmax_back"])),
        "unknown gradient": (rg.ShapeError, "got 'dgamma'", lambda: norm(y, dy, grads=("dgamma",), device=device)),
        "no gradient": (rg.ShapeError, "at least one", lambda: norm(y, dy, grads=(), device=device)),
        "mixture": (rg.DTypeError, "not both", lambda: soft(resident, dy)),
        "freed": (rg.Error, "freed", lambda: soft(freed, resident)),
        "out read-only": (rg.ShapeError, "writeable", lambda: soft(y, dy, out=read_only, device=device)),
        "out overlaps": (rg.ShapeError, "overlaps dy", lambda: soft(y, dy, out=dy, device=device)),
        "out the input": (rg.ShapeError, "overlaps y", lambda: soft(resident, device.asarray(dy), out=resident)),
        "out's shape": (rg.ShapeError, "out of shape", lambda: soft(y, dy, out=dy[:5].copy(), device=device)),
        "out's dtype": (rg.DTypeError, "out in float32", lambda: soft(y, dy, out=np.empty((6, 33)), device=device)),
        "out's kind": (rg.DTypeError, "out as ndarray", lambda: soft(y, dy, out=resident, device=device)),
        "device": (rg.DTypeError, "Device or a spec", lambda: soft(y, dy, device=3)),
        "unknown kernel": (rg.ShapeError, "expected one of the kernels", lambda: device.launch("softmax", y=resident)),
        "buffers": (rg.DTypeError, "expected the buffers", lambda: device.launch("softmax_back", y=resident)),
        "not an Array": (
            rg.DTypeError,
            "to be an Array",
            lambda: device.launch("softmax_back", y=y, dy=resident, dx=device.empty((6, 33), np.float32)),
        ),
        "launch aliases": (
            rg.ShapeError,
            "apart from",
            lambda: device.launch("softmax_back", y=resident, dy=device.asarray(dy), dx=resident),
        ),
        "launch shapes": (
            rg.ShapeError,
            "expected dx of shape",
            lambda: device.launch("softmax_back", y=resident, dy=resident, dx=device.empty((5, 33), np.float32)),
        ),
        "timeout": (rg.ShapeError, "0 seconds or more", lambda: device.synchronize(-1)),
        "out over itself": (
            rg.ShapeError,
            "elements apart",
            lambda: soft(y, dy, out=np.lib.stride_tricks.as_strided(y[0].copy(), (6, 33), (0, 4)), device=device),
        ),
        "out masked": (
            rg.DTypeError,
            "got MaskedArray",
            lambda: soft(y, dy, out=np.ma.masked_all((6, 33), np.float32), device=device),
        ),
        "progress a number": (rg.DTypeError, "a function", lambda: soft(y, dy, progress=3, device=device)),
        "grads an array": (rg.ShapeError, "out of", lambda: norm(y, dy, grads=[np.array([1, 2])], device=device)),
        "a bad conversion": (rg.DTypeError, "bad news", lambda: device.asarray(BadNews())),
        "65 axes": (rg.ShapeError, "NumPy can hold", lambda: device.empty((1,) * 65, np.float32)),
        "an endless axis": (rg.ShapeError, "NumPy can hold", lambda: device.empty((0, 1 << 63), np.float32)),
        "an endless array": (rg.ShapeError, "NumPy can hold", lambda: device.empty((1 << 40, 1 << 40), np.float32)),
        "a result too large": (
            rg.OutOfMemory,
            "no room",
            lambda: soft(*[np.broadcast_to(np.float32(1), (1 << 44, 4))] * 2, device=device),
        ),
        "a copy": (rg.DTypeError, "numpy()", lambda: copy.copy(resident)),
        "a pickle": (rg.DTypeError, "numpy()", lambda: pickle.dumps(resident)),
    }  # fmt: skip


def test_each_refusal_says_what_was_expected(device, given):
    for name, (kind, text, call) in refusals(device, given).items():
        with pytest.raises(kind, match=text):
            call()
            pytest.fail(f"{name}: not refused")


@pytest.mark.parametrize("name", ["shape", "dtype", "device"])
def test_an_array_keeps_its_shape(device, given, name):
    """A shape that its memory does not have would be read beyond it."""
    array = device.asarray(given["y"])
    with pytest.raises(AttributeError):
        setattr(array, name, (1 << 20, 33))


def test_a_half_as_eps_and_infinite_sums_warn_of_nothing(device, given):
    """NumPy's warnings, each an error in these tests."""
    given["x"][:, 0] = np.float32(3e38)
    given["dy"][0, 0], given["dy"][1, 0] = np.inf, -np.inf
    got = rg.layer_norm_back(given["x"], given["dy"], eps=np.float16(0.5), device=device)
    assert np.isnan(got.dbeta[0])


def test_freed_by_another_thread_between_the_check_and_the_launch(device, given, monkeypatch):
    """Else a buffer of 16 bytes would be bound in its place."""
    y, dy = device.asarray(given["y"]), device.asarray(given["dy"])
    held = device._held

    def free_first():
        y.free()
        return held()

    monkeypatch.setattr(device, "_held", free_first)
    with pytest.raises(rg.ShapeError, match="freed"):
        rg.softmax_back(y, dy)


def test_an_endless_timeout(device):
    device.synchronize(timeout=float("inf"))


def test_arrays_of_two_devices(cpu, given):
    with rg.Device("cpu") as other:
        mine, theirs = cpu.asarray(given["y"]), other.asarray(given["dy"])
        with pytest.raises(rg.DTypeError, match="expected an Array of"):
            rg.softmax_back(mine, theirs)
        with pytest.raises(rg.DTypeError, match="expected an Array of"):
            rg.softmax_back(mine, mine, device=other)


def test_a_closed_device(given):
    for spec in ("cpu", "wgpu"):
        opened = rg.Device(spec)
        array = opened.asarray(given["y"])
        opened.close()
        opened.close()
        for call in (
            lambda array=array: array.numpy(),
            lambda array=array: rg.softmax_back(array, array),
            lambda opened=opened: opened.empty(3, np.float32),
            lambda opened=opened: rg.softmax_back(given["y"], given["dy"], device=opened),
            opened.synchronize,
        ):
            with pytest.raises(rg.DeviceLost, match="closed"):
                call()


def test_a_wait_past_its_deadline(adapter):
    n = 4000
    array = adapter.asarray(np.ones((n, 1024), np.float32))
    with pytest.raises(rg.DeviceTimeout, match="in the time given"):
        for _ in range(50):
            rg.softmax_back(array, array)
            adapter.synchronize(timeout=0)
    adapter.synchronize()
    assert rg.softmax_back(array, array).shape == (n, 1024)


def test_an_array_larger_than_a_buffer(adapter):
    with pytest.raises(rg.OutOfMemory, match="largest buffer"):
        adapter.empty(1 << 40, np.float32)
    with pytest.raises(MemoryError):
        adapter.empty((1 << 20, 1 << 20), np.float16)


def test_the_default_device_is_opened_once(monkeypatch, given):
    monkeypatch.setenv("ROWGRAD_DEVICE", "cpu")
    monkeypatch.setattr(ops, "_default", {})
    rg.softmax_back(given["y"], given["dy"])
    kept = ops._default["auto"]
    rg.softmax_back(given["y"], given["dy"])
    assert ops._default == {"auto": kept}


def test_the_error_tree():
    assert issubclass(rg.ShapeError, ValueError)
    assert issubclass(rg.DTypeError, TypeError)
    assert issubclass(rg.OutOfMemory, MemoryError)
    for name in ("DeviceUnavailable", "DeviceLost", "DeviceTimeout", "OutOfMemory", "ShapeError", "DTypeError"):
        assert issubclass(getattr(rg, name), rg.Error)


def test_the_public_names():
    assert sorted(rg.__all__) == rg.__all__
    assert all(hasattr(rg, name) for name in rg.__all__)
