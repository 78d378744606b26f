import os

import hostgpu
import pytest

from rowgrad_wgpu.device import Device
from rowgrad_wgpu.errors import DeviceUnavailable


@pytest.fixture(scope="session")
def open_device():
    opened = {}

    def device_of(spec):
        if spec not in opened:
            opened[spec] = _opened_or_reason(spec)
        if isinstance(opened[spec], Device):
            return opened[spec]
        # Where a device has to be there, as on CI, its absence is a failure.
        refuse = pytest.fail if spec in os.environ.get("ROWGRAD_EXPECT", "").split() else pytest.skip
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


# The CUDA kernels run on the processor, with the warps of CUDA and those of AMD's gfx9.
HOST_GPUS = {"host:cuda": 32, "host:rocm": 64}


@pytest.fixture(
    scope="session",
    params=["cpu", "wgpu:vulkan", "wgpu:gl", *HOST_GPUS],
    ids=["cpu", "vulkan", "gl", "cuda-on-host", "rocm-on-host"],
)
def device(request, open_device):
    return open_device(request.param)


@pytest.fixture(scope="session", params=["cpu", "wgpu:vulkan", "wgpu:gl"], ids=["cpu", "vulkan", "gl"])
def named_device(request, open_device):
    """A device that another process can open by its spec."""
    return open_device(request.param)


@pytest.fixture(scope="session", params=["wgpu:vulkan", "wgpu:gl"], ids=["vulkan", "gl"])
def webgpu(request, open_device):
    return open_device(request.param)


@pytest.fixture(scope="session", params=HOST_GPUS, ids=["cuda-on-host", "rocm-on-host"])
def host_gpu(request, open_device):
    return open_device(request.param)


@pytest.fixture(scope="session")
def vulkan(open_device):
    return open_device("wgpu:vulkan")


@pytest.fixture(scope="session")
def cpu(open_device):
    return open_device("cpu")
