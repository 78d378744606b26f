"""A GPU for CUDA C++ on the processor: g++, a runtime of fibers, and a stand-in for CuPy."""

import sys
from contextlib import contextmanager
from unittest import mock

from rowgrad_wgpu.device import Device

from . import cupy


@contextmanager
def as_cupy(stand_in):
    """`import cupy` gives `stand_in`, and the finder of CUDA's headers is not asked."""
    with mock.patch.dict(sys.modules, {"cupy": stand_in, "cuda.pathfinder": None}):
        yield


def open_device(warp=32, flavour="plain", order=0):
    """A `Device` on the real back end over the host GPU."""
    with as_cupy(cupy.module(warp, flavour, order)):
        return Device(cupy.KINDS[warp][0])
