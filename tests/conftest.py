import json
import os
import signal
import statistics
import sys
from pathlib import Path

import hostgpu
import pytest
from grids import SHORT_D, SHORT_PART
from translations import FXC

from rowgrad_wgpu import plan
from rowgrad_wgpu.device import Device
from rowgrad_wgpu.errors import DeviceUnavailable

# The adapters that the tests run on. Where they are expected, as on CI, one that is missing is a failure, not a skip.
EXPECTED = os.environ.get("ROWGRAD_EXPECT", "").split()
PLATFORM = {"darwin": ["wgpu:metal"], "win32": ["wgpu:dx12"]}.get(sys.platform, ["wgpu:vulkan", "wgpu:gl"])
ADAPTERS = [spec for spec in EXPECTED if spec.startswith("wgpu")] or PLATFORM

# The CUDA kernels run on the processor, with the warps of CUDA and those of AMD's gfx9.
HOST_GPUS = {"host:cuda": 32, "host:rocm": 64}

NAMES = {"host:cuda": "cuda-on-host", "host:rocm": "rocm-on-host"}

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; children would ignore it too
    signal.signal(signal.SIGINT, signal.default_int_handler)

if "ROWGRAD_TINT" in os.environ:
    # Dawn takes wgpu-native's place under the name `wgpu`, in child processes too.
    STAND_IN = str(Path(__file__).parent / "tint")
    sys.path.insert(0, STAND_IN)
    os.environ["PYTHONPATH"] = os.pathsep.join([STAND_IN, *filter(None, [os.environ.get("PYTHONPATH")])])

if "ROWGRAD_PLANNED_AS_GPU" in os.environ:
    from rowgrad_wgpu.backends import webgpu as webgpu_backend  # behind the stand-in for `wgpu`

    webgpu_backend._KINDS["CPU"] = "integrated"


def pytest_terminal_summary(terminalreporter):
    """What FXC took for each shader, from both processes of the suite: about what a first launch on Windows waits."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    recorded = [times for report in reports for name, times in report.user_properties if name == "fxc"]
    seconds = {shader: taken for times in recorded for shader, taken in times.items()}
    if seconds:
        slowest = max(seconds, key=seconds.get)
        median = statistics.median(seconds.values())
        FXC.TIMES.write_text(json.dumps(seconds, indent=1), encoding="utf-8")
        terminalreporter.write_line(
            f"FXC: {len(seconds)} shaders, the median one {median:.1f} s, {slowest} {seconds[slowest]:.1f} s"
        )


@pytest.fixture(scope="session")
def open_device():
    opened = {}

    def device_of(spec):
        if spec not in opened:
            opened[spec] = _opened_or_reason(spec)
        if isinstance(opened[spec], Device):
            return opened[spec]
        refuse = pytest.fail if spec in EXPECTED else pytest.skip
        return refuse(opened[spec])

    yield device_of
    for device in opened.values():
        if isinstance(device, Device):
            device.close()


def _opened_or_reason(spec):
    if spec in HOST_GPUS:
        return hostgpu.open_device(HOST_GPUS[spec])
    try:
        return Device(spec)
    except DeviceUnavailable as error:
        return str(error)


def _name(spec):
    return NAMES.get(spec, spec.removeprefix("wgpu:"))


# Warps of 64 run everything in the long suite; in the short one test_cuda_on_host, which reaches every team.
EVERY_DEVICE = ["cpu", *ADAPTERS, "host:cuda", pytest.param("host:rocm", marks=pytest.mark.slow)]


@pytest.fixture(scope="session", params=EVERY_DEVICE, ids=_name)
def device(request, open_device):
    return open_device(request.param)


NAMED = ["cpu", ADAPTERS[0], *(pytest.param(spec, marks=pytest.mark.slow) for spec in ADAPTERS[1:])]


@pytest.fixture(scope="session", params=NAMED, ids=_name)
def named_device(request, open_device):
    """A device that another process can open by its spec."""
    return open_device(request.param)


@pytest.fixture
def whole_rows(monkeypatch):
    """Few long rows are left whole, so that the kernels for any rows take them."""
    monkeypatch.setattr(plan, "FEW_ROWS", {True: 0, False: 0})


@pytest.fixture
def short_parts(monkeypatch):
    """Rows of SHORT_D elements are long and their parts have SHORT_PART, so that slow devices take them too; as of long
    ones no thread keeps its columns' sums."""
    monkeypatch.setattr(plan, "SUMMED_ELEMENTS", {True: 0, False: 0})
    monkeypatch.setattr(plan, "LONG_D", SHORT_D)
    monkeypatch.setattr(plan, "PART", {True: SHORT_PART, False: SHORT_PART})


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that are launched."""
    names, run = [], Device._run
    monkeypatch.setattr(
        Device, "_run", lambda self, record, *rest: (names.append(record.name), run(self, record, *rest))
    )
    return names


@pytest.fixture(scope="session", params=ADAPTERS, ids=_name)
def webgpu(request, open_device):
    return open_device(request.param)


@pytest.fixture(scope="session", params=HOST_GPUS, ids=_name)
def host_gpu(request, open_device):
    return open_device(request.param)


@pytest.fixture(scope="session")
def adapter(open_device):
    """The first of the adapters: Vulkan, Metal or DirectX 12."""
    return open_device(ADAPTERS[0])


@pytest.fixture(scope="session")
def cpu(open_device):
    return open_device("cpu")
