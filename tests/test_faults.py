"""What goes wrong below: no memory, a lost device, a wait without end, a driver that computes wrongly, a full disk."""

import _thread
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from grids import inputs
from planting import plant
from watching import of_wgpu_native, watched

import rowgrad_wgpu as rg
from rowgrad_wgpu import cli
from rowgrad_wgpu.backends import cpu as cpu_backend
from rowgrad_wgpu.backends import webgpu

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
address_space = pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")

OPERATIONS = ("softmax-back", "layer-norm-back")

LIMITED = """
import resource, sys, numpy as np, rowgrad_wgpu as rg

MIB = 1 << 20
device = rg.Device(sys.argv[1])
small = np.ones((64, 1024), np.float32)
large = np.ones((2048, 1024), np.float32)
array, large_array = device.asarray(small), device.asarray(large)
expected = [rg.softmax_back(small, small, device=device).tobytes()]
expected += [one.tobytes() for one in rg.layer_norm_back(small, small, device=device)]
rg.softmax_back(large_array, large_array).numpy()

def works():
    got = [rg.softmax_back(small, small, device=device).tobytes()]
    got += [one.numpy().tobytes() for one in rg.layer_norm_back(array, array)]
    assert got == expected
    assert rg.softmax_back(large_array, large_array).numpy()[-1, -1] == -1023

def until_full(make):
    kept = []
    try:
        while len(kept) < 10_000:
            kept.append(make())
    except rg.OutOfMemory as error:
        assert "room" in str(error)
        return
    raise AssertionError("there was always room")

def let_go_of():
    with device.batch():
        for rows in range(2100, 2110):  # no two of a size, which could be lent again
            array = device.empty((rows, 1024), np.float32)
            rg.softmax_back(array, array)

def in_a_batch():
    with device.batch():
        until_full(lambda: rg.softmax_back(large_array, large_array))

with open("/proc/self/statm") as file:
    taken = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 80 * MIB,) * 2)
calls = {
    "a large array": lambda: until_full(lambda: device.empty(1 << 28, np.float32)),
    "arrays": lambda: until_full(lambda: device.empty(large.shape, np.float32)),
    "uploads": lambda: until_full(lambda: device.asarray(large)),
    "results": lambda: until_full(lambda: rg.softmax_back(large_array, large_array)),
    "a batch": in_a_batch,
    "results that are let go of": let_go_of,
    "downloads": lambda: until_full(large_array.numpy),
    "host arrays": lambda: until_full(lambda: rg.softmax_back(large, large, device=device)),
    "parameters": lambda: until_full(lambda: rg.layer_norm_back(large, large, device=device)),
}
for name, call in calls.items():
    print(name)
    call()
    works()
"""


@address_space
@pytest.mark.parametrize("spec", ["cpu", pytest.param("wgpu:vulkan", marks=of_wgpu_native)])
def test_out_of_memory_and_on(open_device, spec):
    """OpenGL is left out: wgpu does not ask it whether there was room."""
    assert len(watched("-c", LIMITED, open_device(spec).info.spec)) == 9


def test_no_room_in_the_middle_of_a_call(cpu, monkeypatch):
    def full(*given):
        raise MemoryError

    given = inputs(6, 33, "float32")
    expected = rg.softmax_back(given["y"], given["dy"], device=cpu)
    monkeypatch.setattr(cpu_backend, "_softmax_block", full)
    with pytest.raises(rg.OutOfMemory, match="no room"):
        rg.softmax_back(given["y"], given["dy"], device=cpu)
    monkeypatch.undo()
    assert np.array_equal(rg.softmax_back(given["y"], given["dy"], device=cpu), expected)


@pytest.fixture
def own_webgpu(webgpu):
    """A device that may be broken."""
    with rg.Device(webgpu.info.spec) as device:
        yield device


def lose(device):
    """What a driver's reset does, as far as wgpu shows it."""
    device._backend._device.destroy()


def test_a_lost_device(own_webgpu):
    given = inputs(6, 33, "float32")
    y, dy = (own_webgpu.asarray(given[name]) for name in ("y", "dy"))
    expected = rg.softmax_back(y, dy).numpy()
    batch = own_webgpu.batch()
    batch.__enter__()
    rg.softmax_back(y, dy)
    lose(own_webgpu)
    for call in (
        lambda: batch.__exit__(None, None, None),
        lambda: rg.softmax_back(y, dy),
        lambda: rg.softmax_back(y, dy, out=own_webgpu.empty((6, 33), np.float32)),
        lambda: rg.softmax_back(given["y"], given["dy"], device=own_webgpu),
        lambda: rg.layer_norm_back(given["x"], given["dy"], device=own_webgpu),
        lambda: own_webgpu.asarray(given["x"]),
        y.numpy,
        own_webgpu.synchronize,
    ):
        with pytest.raises(rg.DeviceLost, match="open a new"):
            call()
    own_webgpu.close()
    with rg.Device(own_webgpu.info.spec) as new:
        assert np.array_equal(rg.softmax_back(given["y"], given["dy"], device=new), expected)


def test_lost_between_the_recording_and_the_submission(own_webgpu):
    """A submission that wgpu refuses ends the process, so it must not come to one."""
    array = own_webgpu.asarray(inputs(6, 33, "float32")["y"])
    with pytest.raises(rg.DeviceLost, match="open a new"), own_webgpu.batch():
        rg.softmax_back(array, array)
        lose(own_webgpu)


def test_lost_while_it_is_waited_for(own_webgpu, monkeypatch):
    array = own_webgpu.asarray(inputs(6, 33, "float32")["y"])

    def lost(*given):
        raise RuntimeError("the device was lost")

    import wgpu.backends.wgpu_native as native

    monkeypatch.setattr(native.GPUBuffer, "map_sync", lost)
    with pytest.raises(rg.DeviceLost, match="the device was lost"):
        array.numpy()
    with pytest.raises(rg.DeviceLost, match="open a new"):
        own_webgpu.synchronize()
    monkeypatch.undo()
    with rg.Device(own_webgpu.info.spec):
        pass


def test_a_default_device_that_was_lost_is_opened_anew(webgpu, monkeypatch):
    from rowgrad_wgpu import ops

    monkeypatch.setattr(ops, "_default", {})
    given = inputs(6, 33, "float32")
    expected = rg.softmax_back(given["y"], given["dy"], device=webgpu.info.spec)
    kept = ops.default_device(webgpu.info.spec)
    lose(kept)
    with pytest.raises(rg.DeviceLost):
        rg.softmax_back(given["y"], given["dy"], device=webgpu.info.spec)
    assert np.array_equal(rg.softmax_back(given["y"], given["dy"], device=webgpu.info.spec), expected)
    ops.default_device(webgpu.info.spec).close()


def test_a_wait_past_its_deadline(own_webgpu, monkeypatch):
    import wgpu.backends.wgpu_native as native

    given = inputs(6, 33, "float32")
    array = own_webgpu.asarray(given["y"])
    expected = rg.softmax_back(array, array).numpy()
    monkeypatch.setattr(native.GPUBuffer, "map_sync", lambda *given: time.sleep(3))  # a device that does not finish
    for call in (lambda: own_webgpu.synchronize(0.2), lambda: array.numpy(0.2), lambda: array.numpy(timeout=0)):
        begun = time.monotonic()
        with pytest.raises(rg.DeviceTimeout, match="in the time given"):
            call()
        assert time.monotonic() - begun < 2.5
    monkeypatch.undo()
    assert np.array_equal(rg.softmax_back(array, array).numpy(), expected)


def test_an_interrupt_that_ends_no_wait_is_heard():
    """As one does that comes between Python's last look and the wait; `interrupt_main` ends none either."""
    waiter, begun = webgpu._Waiter(), time.monotonic()
    threading.Timer(0.2, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        waiter.failure_of(lambda: time.sleep(6), begun + 5)
    assert time.monotonic() - begun < 4


MISCOMPILED = {
    "a sum over fewer threads": ("lib/team/shared.wgsl", "var reach = HALF / 2u", "var reach = HALF / 4u"),
    "zeros": ("softmax_back.wgsl", "a * (b - inner)", "0.0 * a"),
    "ties away from even": ("lib/storage/bfloat16.wgsl", "+ ((bits >> vec4u(16u)) & vec4u(1u))", "+ 1u"),
    "a NaN lost": ("softmax_back.wgsl", "a * (b - inner)", "max(a * (b - inner), vec4f(-1e30))"),
}


@pytest.mark.parametrize("fault", MISCOMPILED)
def test_a_driver_that_computes_wrongly(adapter, fault, monkeypatch):
    plant(monkeypatch, *MISCOMPILED[fault])
    with pytest.raises(rg.DeviceUnavailable, match=r"computes wrongly: .* expected \[.*\], got \[.*driver"):
        rg.Device(adapter.info.spec)


def test_auto_goes_by_a_driver_that_computes_wrongly(adapter, monkeypatch, caplog):
    monkeypatch.delenv("ROWGRAD_DEVICE", raising=False)
    plant(monkeypatch, *MISCOMPILED["zeros"])
    with rg.Device() as device:
        assert device.info.spec == "cpu"
    assert "computes wrongly" in caplog.text


def test_a_driver_that_does_not_compile(adapter, monkeypatch):
    plant(monkeypatch, "softmax_back.wgsl", "fn softmax_back", "fn softmax_back_of_another_name")
    with pytest.raises(rg.DeviceUnavailable, match="compiling"):
        rg.Device(adapter.info.spec)


RUNS = """
import json, os, resource, sys
from rowgrad_wgpu import cli, ops

ops.BLOCK_BYTES = 4096  # many blocks

def halfway(original):
    def run(*given, progress, **more):
        return original(*given, progress=lambda done, rows: done > rows / 2 and stop(), **more)
    return run

def stop():
    pass

cli.softmax_back, cli.layer_norm_back = halfway(cli.softmax_back), halfway(cli.layer_norm_back)
for arguments, code in json.loads(sys.argv[1]):
    pid = os.fork()
    if not pid:
        exec(code)
        os._exit(cli.main(arguments))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)  # the next child would print it again
"""


@pytest.fixture
def files(tmp_path):
    for name, array in inputs(400, 64, "float32").items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def run_arguments(files, operation, out, *options):
    paths = [files / f"{name}.npy" for name in ("y" if operation == "softmax-back" else "x", "dy")]
    return list(map(str, ["run", operation, *paths, "-o", out, "--device", "cpu", *options]))


def forked(*runs):
    """Each run's exit status, and what all wrote to stderr. A run is the arguments of `rowgrad` and code before it.

    One child forks for each of them, before it has any thread: importing takes longer than a run.
    """
    done = subprocess.run(
        [sys.executable, "-c", RUNS, json.dumps(runs)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split())), done.stderr.splitlines()


@forks
def test_killed_outright(files):
    (files / "old").write_bytes(b"the old one")
    outputs = {"new": (), "old": ("--force",)}
    runs = [
        run_arguments(files, operation, files / out, *options)
        for operation in OPERATIONS
        for out, options in outputs.items()
    ]
    before = sorted(files.iterdir())
    statuses, _ = forked(*((run, "def stop(): os.kill(os.getpid(), 9)") for run in runs))
    assert statuses == [-9] * 4
    left = [path.name[:9] for path in files.iterdir() if path not in before]
    assert left == [".rowgrad-"] * 4
    assert (files / "old").read_bytes() == b"the old one"
    assert [cli.main([*run, "--force"]) for run in runs] == [0] * 4  # what was left is not in the way


@forks
def test_interrupted(files):
    before = sorted(files.iterdir())
    statuses, said = forked(
        *(
            (run_arguments(files, operation, files / "out"), f"def stop(): os.kill(os.getpid(), {int(number)})")
            for operation in OPERATIONS
            for number in (signal.SIGINT, signal.SIGTERM)
        )
    )
    assert statuses == [130] * 4
    assert said == ["rowgrad: interrupted"] * 4
    assert sorted(files.iterdir()) == before


@forks
def test_a_file_beyond_the_limit(files):
    before = sorted(files.iterdir())
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000,) * 2)"  # bytes; dx alone takes 102,528
    statuses, said = forked(*((run_arguments(files, operation, files / "out"), limit) for operation in OPERATIONS))
    assert statuses == [1, 1]
    assert all(line.startswith("rowgrad: File too large") for line in said)
    assert sorted(files.iterdir()) == before


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)]
    if sys.platform != "linux" or subprocess.run(options, capture_output=True, check=False).returncode:
        pytest.skip("only root on Linux may mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk(files, small_disk):
    """Full at dx, or at the archive that it is copied to; the last run fits."""
    rooms = [
        ("softmax-back", 50_000),
        ("layer-norm-back", 50_000),
        ("layer-norm-back", 160_000),
        ("softmax-back", 110_000),
    ]
    ballast = small_disk / "ballast"
    statuses, said = forked(
        *(
            (
                run_arguments(files, operation, small_disk / "out"),
                f"with open({str(ballast)!r}, 'wb') as file: file.write(bytes({(256 << 10) - room}))",
            )
            for operation, room in rooms
        )
    )
    assert statuses == [1, 1, 1, 0]
    assert [line.startswith("rowgrad: No space left on device") for line in said] == [True, True, True, False]
    assert sorted(path.name for path in small_disk.iterdir()) == ["ballast", "out"]


@of_wgpu_native
def test_a_wait_without_room(adapter, monkeypatch):
    """The host's own lack of memory is not the loss of a device."""
    import wgpu.backends.wgpu_native as native

    def no_room(*given, **named):
        raise MemoryError

    array = adapter.asarray(np.ones((4, 8), np.float32))
    with monkeypatch.context() as full:
        full.setattr(native.GPUBuffer, "map_sync", no_room)
        with pytest.raises(rg.OutOfMemory, match="room"):
            array.numpy()
    assert (array.numpy() == 1).all()
