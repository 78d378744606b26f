"""A notebook's kernel: its cells run inside an event loop, some await, one is interrupted while it waits."""

import pytest
from jupyter_client import KernelManager
from test_processes import SIGNALS

SECONDS = 100

CALLS = """
import asyncio, time, numpy as np, rowgrad_wgpu as rg

asyncio.get_running_loop()
device = rg.Device({spec!r})
y = np.random.default_rng(0).standard_normal((130, 33), np.float32)
expected = rg.softmax_back(y, y, device="cpu")

def call():
    array = device.asarray(y)
    with device.batch():
        dx, grads = rg.softmax_back(array, array), rg.layer_norm_back(array, array)
    assert rg.softmax_back(y, y, device=device).tobytes() == dx.numpy().tobytes()
    assert rg.layer_norm_back(y, y, device=device).dalpha.tobytes() == grads.dalpha.numpy().tobytes()
    return dx.numpy().tobytes()

first = call()
assert np.allclose(np.frombuffer(first, np.float32), expected.ravel(), atol=1e-4)
"""
AWAITS = """
called = await asyncio.gather(*(asyncio.to_thread(call) for _ in range(4)))
assert [call(), *called] == [first] * 5
"""
OPEN_BATCHES = ["batch = device.batch(); batch.__enter__(); dx = rg.softmax_back(y, y, device=device)"]
OPEN_BATCHES += ["assert dx.tobytes() == call() == first; batch.__exit__(None, None, None)"]

# Both tell when they have begun. The processor is never waited for, so there it is a call of many.
WAITS = {
    "webgpu": """
import wgpu.backends.wgpu_native as native

array, right = device.asarray(y), native.GPUBuffer.map_sync

def never(*given, **more):
    print("waiting", flush=True)
    time.sleep(1000)

native.GPUBuffer.map_sync = never
try:
    array.numpy()
finally:
    native.GPUBuffer.map_sync = right
""",
    "cpu": """
many = np.broadcast_to(y, (1000, *y.shape))
while True:
    rg.softmax_back(many, many, device=device, progress=lambda done, rows: print("waiting", flush=True))
""",
}


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A notebook's kernel, which leaves nothing in the home folder, and its client."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    manager = KernelManager(connection_file=str(tmp_path / "kernel.json"))
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(SECONDS)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run(kernel, cell):
    """Runs a cell, interrupted once it says that it waits; the name of its error and the traceback, or nothing."""
    manager, client = kernel
    interrupted = []

    def hear(message):
        if message["msg_type"] == "stream" and "waiting" in message["content"]["text"] and not interrupted:
            interrupted.append(message)
            manager.interrupt_kernel()

    reply = client.execute_interactive(cell, output_hook=hear, timeout=SECONDS, allow_stdin=False)["content"]
    return (reply["ename"], "\n".join(reply["traceback"])) if reply["status"] == "error" else ()


def test_cells(named_device, kernel):
    for cell in [CALLS.format(spec=named_device.info.spec), AWAITS, *OPEN_BATCHES]:
        assert run(kernel, cell) == ()
    if SIGNALS:
        assert run(kernel, WAITS[named_device.info.backend])[0] == "KeyboardInterrupt"
        assert run(kernel, "assert call() == first") == ()
        assert run(kernel, AWAITS) == ()
