"""A GPU for CUDA C++ on the processor: g++, a runtime of fibers, and a stand-in for CuPy."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from rowgrad_wgpu.device import Device

from . import compiler, cupy

OPTIONS = {
    "plain": {},
    "address": {"ASAN_OPTIONS": "detect_leaks=0"},
    "thread": {"TSAN_OPTIONS": "exitcode=66 halt_on_error=1 report_signal_unsafe=0"},
}


@contextmanager
def as_cupy(stand_in):
    """`import cupy` gives `stand_in`, or fails if it is None; the finder of CUDA's headers is not asked."""
    names = {"cupy": stand_in, "cuda.pathfinder": None}
    kept = {name: sys.modules[name] for name in names if name in sys.modules}
    sys.modules.update(names)
    try:
        yield
    finally:  # these names alone: what was imported meanwhile has to stay
        for name in names:
            del sys.modules[name]
        sys.modules.update(kept)


def open_device(warp=32, flavour="plain", order=0):
    """A `Device` on the real back end over the host GPU."""
    with as_cupy(cupy.module(warp, flavour, order)):
        return Device(cupy.KINDS[warp][0])


def run(flavour, warp, order, shapes, fault=None, in_parts=False):
    """Checks the kernels in a process of their own, with a fault planted if there is one, or those that cut rows."""
    environment = os.environ | OPTIONS[flavour]
    if flavour != "plain":
        environment["LD_PRELOAD"] = compiler.preload(flavour)
    if fault:
        environment["HOSTGPU_FAULT"] = json.dumps(fault)
    if in_parts:
        environment["HOSTGPU_PARTS"] = "1"
    command = [sys.executable, "-m", "hostgpu", flavour, str(warp), str(order), *shapes]
    tests = Path(__file__).parent.parent
    return subprocess.run(command, cwd=tests, env=environment, capture_output=True, text=True, timeout=290)
