"""The CUDA kernels under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer, on the host GPU.

Overruns of global and shared memory, misaligned accesses, and races in either, between blocks too. Each run is a
process of its own, because a sanitizer has to be in it from the start.
"""

import platform
import sys

import hostgpu
import pytest

from rowgrad_wgpu.plan import EASY_ELEMENTS, HARDWARE_TEAM

SEVERAL_WARPS_D = {32: 2 * HARDWARE_TEAM * EASY_ELEMENTS, 64: 4 * HARDWARE_TEAM * EASY_ELEMENTS}  # shared by two warps

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux", reason="the host GPU is for Linux on x86-64"
)

WARPS = pytest.mark.parametrize("warp", [32, pytest.param(64, marks=pytest.mark.slow)])


@WARPS
def test_memory(warp):
    result = hostgpu.run("address", warp, 0, ["7x33", "65x64", f"2x{SEVERAL_WARPS_D[warp]}"])
    assert result.returncode == 0, result.stderr[-3000:]
    assert "results are right" in result.stdout


@WARPS
def test_races(warp):
    result = hostgpu.run("thread", warp, 0, ["2x33", "65x4", f"1x{SEVERAL_WARPS_D[warp]}"])
    assert result.returncode == 0, result.stderr[-3000:]
    assert "results are right" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["address", "thread"])
def test_rows_in_parts(flavour):
    result = hostgpu.run(flavour, 32, 0, ["3x132"], in_parts=True)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "results are right" in result.stdout
