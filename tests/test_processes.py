"""Threads, event loops, forks, spawned processes, exits, Ctrl-C: what may do harm in a child under watch.

A child that opens an adapter takes seconds, so one goes through many cases; OpenGL's are slow tests.
"""

import asyncio
import multiprocessing
import os
import threading

import numpy as np
import pytest
from grids import inputs
from watching import of_wgpu_native, watched

import rowgrad_wgpu as rg

THREADS = 8
SIGNALS = os.name != "nt"  # Windows sends no SIGINT to a process alone

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
counts = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="resident memory is read from /proc")


@pytest.fixture(scope="module")
def given():
    return inputs(130, 33, "bfloat16")


def bits(device, given):
    """The bits of all gradients, by host arrays and by Arrays."""
    arrays = {name: device.asarray(one) for name, one in given.items()}
    with device.batch():
        resident = [rg.softmax_back(arrays["y"], arrays["dy"])]
        resident += rg.layer_norm_back(arrays["x"], arrays["dy"], arrays["alpha"])
    host = [rg.softmax_back(given["y"], given["dy"], device=device)]
    host += rg.layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    return [one.numpy().tobytes() for one in resident], [one.tobytes() for one in host]


def in_threads(work):
    """What each of eight threads gets that begin together."""
    got, start = [], threading.Barrier(THREADS)

    def run():
        start.wait()
        got.append(work())

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def test_threads_on_one_device(device, given):
    expected = bits(device, given)
    assert expected[0] == expected[1]
    assert in_threads(lambda: [bits(device, given) for _ in range(3)]) == [[expected] * 3] * THREADS


DEVICES = """
import os, signal, sys, threading, time, numpy as np, rowgrad_wgpu as rg
os.environ.pop("XDG_RUNTIME_DIR", None)  # it is set while adapters are looked for, and taken away again
y = np.random.default_rng(0).standard_normal((130, 33), np.float32)
got, start = [], threading.Barrier(8)

def work():
    start.wait()
    with rg.Device(sys.argv[1]) as device:
        got.append(rg.softmax_back(y, y, device=device).tobytes())
    sys.stdout.write("done\\n")

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(got) == 8 and len(set(got)) == 1, len(got)
assert "XDG_RUNTIME_DIR" not in os.environ
"""
INTERRUPTED = """
import wgpu.backends.wgpu_native as native

device = rg.Device(sys.argv[1])
array = device.asarray(y)
right = native.GPUBuffer.map_sync

for call in (device.synchronize, array.numpy):
    native.GPUBuffer.map_sync = lambda *given, **more: time.sleep(1000)  # a device that does not finish
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    try:
        call()
    except KeyboardInterrupt:
        assert time.monotonic() - begun < 30
        print("interrupted")
    native.GPUBuffer.map_sync = right
    assert rg.softmax_back(array, array).numpy().tobytes() == got[0]
"""


def test_a_device_per_thread_and_ctrl_c_in_a_wait(named_device):
    """OpenGL's driver ended the process where two threads looked for adapters. The processor is never waited for."""
    waits = SIGNALS and named_device.info.backend == "webgpu"
    said = watched("-c", DEVICES + INTERRUPTED * waits, named_device.info.spec)
    assert said == ["done"] * THREADS + ["interrupted"] * 2 * waits


def test_calls_inside_a_running_loop(device, given):
    expected = bits(device, given)

    async def calls():
        direct = bits(device, given)
        return [direct, *await asyncio.gather(*(asyncio.to_thread(bits, device, given) for _ in range(4)))]

    assert asyncio.run(calls()) == [expected] * 5
    assert asyncio.run(calls()) == [expected] * 5  # in a second loop too


FORKED = """
import gc, multiprocessing, os, sys, threading, warnings, numpy as np, rowgrad_wgpu as rg

warnings.simplefilter("ignore")  # Python 3.12 warns of a fork beside threads
spec = sys.argv[1]
device = rg.Device(spec)
y = np.ones((6, 32), np.float32)
array = device.asarray(y)
expected = rg.softmax_back(array, array).numpy().tobytes()

def child():
    global device, array, kept
    calls = {
        "launch": lambda: rg.softmax_back(array, array),
        "host arrays": lambda: rg.softmax_back(y, y, device=device),
        "read": array.numpy,
        "asarray": lambda: device.asarray(y),
        "empty": lambda: device.empty(3, np.float32),
        "wait": device.synchronize,
        "batch": lambda: device.batch().__enter__(),
    }
    if spec != "cpu":
        calls["open"] = lambda: rg.Device(spec)
    for name, call in calls.items():
        try:
            call()
            print(name, "was not refused")
        except rg.Error as error:
            assert "spawn" in str(error), error
    array.free()
    device.close()
    calls = device = array = kept = None
    gc.collect()  # what the driver made has to be left alone
    assert rg.softmax_back(y, y, device="cpu").tobytes() == expected
    print("child done")

def fork(work=child):
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(0)  # as multiprocessing does
    assert os.waitpid(pid, 0)[1] == 0

print("after use")
fork()

print("with work pending, in a batch")
large = device.asarray(np.ones((300 if "gl" in spec else 4000, 1024), np.float32))
rg.softmax_back(large, large).numpy()
kept = [rg.softmax_back(large, large) for _ in range(2)]
large = None
with device.batch():
    kept += [rg.softmax_back(array, array) for _ in range(2)]
    fork()

print("leaving a batch in the child")
pid = None
with device.batch():
    kept = [rg.softmax_back(array, array) for _ in range(4)]
    pid = os.fork()
if not pid:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0

print("while another thread holds the device")
taken, enough = threading.Event(), threading.Event()

def hold():
    with device._lock:
        taken.set()
        enough.wait()

threading.Thread(target=hold, daemon=True).start()
taken.wait()
fork()
enough.set()

print("by multiprocessing")
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
assert process.exitcode == 0

assert rg.softmax_back(array, array).numpy().tobytes() == expected
assert rg.softmax_back(y, y, device=device).tobytes() == expected
print("parent done")
"""


@forks
@pytest.mark.parametrize("spec", ["cpu", "wgpu:vulkan", pytest.param("wgpu:gl", marks=pytest.mark.slow)])
def test_a_forked_child_is_told_and_the_parent_unharmed(open_device, spec):
    said = watched("-c", FORKED, open_device(spec).info.spec)
    assert [line for line in said if "done" in line] == ["child done"] * 4 + ["parent done"]
    assert not [line for line in said if "refused" in line]


def softmax_bits(spec):
    y = np.ones((6, 32), np.float32)
    return rg.softmax_back(y, y, device=spec).tobytes()


def test_spawned_processes(adapter):
    """The parent has devices open, the child opens its own."""
    spec = adapter.info.spec
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map_async(softmax_bits, [spec] * 2).get(100) == [softmax_bits(spec)] * 2


ENDING = """
import atexit, sys, threading, time, numpy as np, rowgrad_wgpu as rg
device = rg.Device(sys.argv[1])
rows = 300 if "gl" in sys.argv[1] else 1000
array = device.asarray(np.ones((rows, 1024), np.float32))
small = np.ones((70_000, 4), np.float32)

def launch():
    return [rg.softmax_back(array, array) for _ in range(6)]

def compute():
    assert rg.softmax_back(array, array).numpy()[0, 0] == -1023
    assert rg.softmax_back(small, small, device=device)[-1, 0] == -3
    print("computed")

"""
UNFINISHED = """
closed = rg.Device(sys.argv[1])
lost = rg.softmax_back(closed.asarray(small), closed.asarray(small))
closed.close()

def run():
    while True:
        launch()[0].numpy()

threading.Thread(target=run, daemon=True).start()
kept = launch()
try:
    device.synchronize(0)
except rg.DeviceTimeout:
    pass
never_left = device.batch()
never_left.__enter__()
kept += launch()
with device.batch():
    kept += launch()
    sys.exit(0)
"""
LATE = """
def run():
    threading.main_thread().join()
    compute()

threading.Thread(target=run).start()
atexit.register(compute)
"""
ENDS = {"with work pending everywhere": (UNFINISHED, []), "and goes on computing": (LATE, ["computed"] * 2)}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("spec", ["cpu", "wgpu:vulkan", pytest.param("wgpu:gl", marks=pytest.mark.slow)])
def test_the_interpreter_ends(open_device, spec, how):
    code, says = ENDS[how]
    assert watched("-c", ENDING + code, open_device(spec).info.spec) == says


OPENED = """
import os, sys, threading, numpy as np, rowgrad_wgpu as rg
y = np.ones((6, 32), np.float32)
count = int(sys.argv[2])

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

for index in range(count):
    with rg.Device(sys.argv[1]) as device:
        array = device.asarray(y)
        assert rg.softmax_back(array, array).numpy()[0, 0] == -31
    del array
    if index == count // 3:
        warm, threads, files = resident(), threading.active_count(), len(os.listdir("/proc/self/fd"))
    print(index)
assert threading.active_count() == threads, threading.enumerate()
assert len(os.listdir("/proc/self/fd")) == files
assert resident() < warm * 1.02, (warm, resident())
"""


@counts
@pytest.mark.parametrize(("spec", "count"), [("cpu", 100), pytest.param("wgpu:vulkan", 6, marks=of_wgpu_native)])
def test_opened_and_closed(open_device, spec, count):
    assert len(watched("-c", OPENED, open_device(spec).info.spec, str(count))) == count


@counts
@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_opened_and_closed_a_thousand_times(named_device):
    assert len(watched("-c", OPENED, named_device.info.spec, "1000")) == 1000
