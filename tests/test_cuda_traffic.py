"""Bytes, sectors and shared-memory passes of the CUDA kernels, counted access by access on the host GPU.

What a count says of a GPU: how much has to move, and that a warp's accesses lie side by side. It says nothing of time.
"""

import ctypes
from dataclasses import dataclass

import hostgpu
import numpy as np
import pytest
from grids import inputs, whole

from rowgrad_wgpu.contract import KERNELS, STORAGE, chunk_count
from rowgrad_wgpu.plan import (
    EASY_ELEMENTS,
    HARDWARE_KEPT,
    HARDWARE_KEPT_OF_ONE,
    HARDWARE_TEAM,
    WIDEST_TEAM,
    choose_variant,
)

SECTOR = 32
BOTH_D = WIDEST_TEAM * HARDWARE_KEPT  # the longest row of which both operands are kept
ONE_D = WIDEST_TEAM * HARDWARE_KEPT_OF_ONE  # the longest of which one is
WARP_D = HARDWARE_TEAM * EASY_ELEMENTS  # the longest row of a single warp


@dataclass
class Traffic:
    loaded: int
    stored: int
    sectors: int


class Tracer:
    """Launches kernels on a host GPU that counts."""

    def __init__(self, warp):
        self.device = hostgpu.open_device(warp, "trace")
        self.runtime = ctypes.CDLL(str(hostgpu.compiler.runtime("trace")))

    def launch(self, kernel, **arrays):
        self.runtime.gpu_trace_begin()
        for array in arrays.values():
            self.runtime.gpu_trace_buffer(ctypes.c_uint64(array._buffer.data.ptr), ctypes.c_uint64(array.nbytes))
        self.device.launch(kernel, **arrays)
        return {name: self._traffic(index) for index, name in enumerate(arrays)}

    def _traffic(self, index):
        loads, stores = (ctypes.c_uint64 * 3)(), (ctypes.c_uint64 * 3)()
        self.runtime.gpu_trace_count(index, 0, loads)
        self.runtime.gpu_trace_count(index, 1, stores)
        return Traffic(loads[0], stores[0], loads[1] + stores[1])

    def shared(self):
        passes = (ctypes.c_uint64 * 2)()
        self.runtime.gpu_trace_shared(passes)
        return tuple(passes)


@pytest.fixture(scope="module", params=[32, 64], ids=["warp of 32", "warp of 64"])
def tracer(request):
    return Tracer(request.param)


def on(tracer, given):
    return {name: tracer.device.asarray(one) for name, one in given.items()}


def softmax(tracer, rows, d, storage):
    given = on(tracer, {name: inputs(rows, d, storage)[name] for name in ("y", "dy")})
    return tracer.launch("softmax_back", **given, dx=tracer.device.empty((rows, d), STORAGE[storage]))


def layer_norm(tracer, kernel, rows, d, storage):
    given = on(tracer, {name: inputs(rows, d, storage)[name] for name in ("x", "dy", "alpha")})
    empty = tracer.device.empty
    given |= on(tracer, {"eps": np.array([1e-5], np.float32)})
    given |= {"dx": empty((rows, d), STORAGE[storage]), "stats": empty((rows, 2), np.float32)}
    if kernel == "layer_norm_grads":
        given["partial"] = empty((chunk_count(rows), 2, d), np.float32)
    return tracer.launch(kernel, **given)


def passes(traffic, names, rows, d, storage):
    """How often each array of rows × d is read and written."""
    size = rows * d * STORAGE[storage].itemsize
    return [(traffic[name].loaded / size, traffic[name].stored / size) for name in names]


def assert_side_by_side(traffic, names):
    for name in names:
        assert traffic[name].sectors * SECTOR == traffic[name].loaded + traffic[name].stored, name


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize(
    ("d", "kept"), [(64, 2), (WARP_D, 2), (4 * WARP_D, 2), (BOTH_D, 2), (BOTH_D + 64, 1), (ONE_D, 1)]
)
def test_softmax_reads_what_the_plan_says(tracer, storage, d, kept):
    rows = 5 if d < 5000 else 1
    variant = choose_variant(KERNELS["softmax_back"], storage, storage, whole(rows, d), tracer.device.limits)
    assert variant.kept == kept
    traffic = softmax(tracer, rows, d, storage)
    assert passes(traffic, ("y", "dy", "dx"), rows, d, storage) == [(1, 0), (3 - kept, 0), (0, 1)]
    assert_side_by_side(traffic, ("y", "dy", "dx"))


def test_softmax_of_rows_too_long_to_keep(tracer):
    traffic = softmax(tracer, 1, ONE_D + 64, "bfloat16")
    assert passes(traffic, ("y", "dy", "dx"), 1, ONE_D + 64, "bfloat16") == [(2, 0), (2, 0), (0, 1)]
    assert_side_by_side(traffic, ("y", "dy", "dx"))


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("d", [64, WARP_D, 4 * WARP_D, 8 * WARP_D])
def test_layer_norm_in_one_pass_moves_each_array_once(tracer, storage, d):
    rows = 9 if d < 5000 else 2
    traffic = layer_norm(tracer, "layer_norm_grads", rows, d, storage)
    assert passes(traffic, ("x", "dy", "dx"), rows, d, storage) == [(1, 0), (1, 0), (0, 1)]
    assert_side_by_side(traffic, ("x", "dy", "dx", "partial"))
    assert traffic["partial"].stored == 2 * d * 4
    assert traffic["partial"].loaded == 0


@pytest.mark.parametrize(
    ("d", "x_reads", "dy_reads"), [(768, 1, 1), (BOTH_D, 1, 1), (BOTH_D + 64, 1, 2), (ONE_D, 1, 2), (ONE_D + 64, 4, 2)]
)
def test_layer_norm_back_reads_what_the_plan_says(tracer, d, x_reads, dy_reads):
    rows = 5 if d < 5000 else 1
    traffic = layer_norm(tracer, "layer_norm_back", rows, d, "bfloat16")
    assert passes(traffic, ("x", "dy", "dx"), rows, d, "bfloat16") == [(x_reads, 0), (dy_reads, 0), (0, 1)]
    assert_side_by_side(traffic, ("x", "dy", "dx"))


@pytest.mark.parametrize(("d", "x_reads", "dy_reads"), [(768, 1, 1), (BOTH_D + 64, 1, 2), (ONE_D + 64, 3, 2)])
def test_rms_norm_back_reads_what_the_plan_says(tracer, d, x_reads, dy_reads):
    rows = 5 if d < 5000 else 1
    traffic = layer_norm(tracer, "rms_norm_back", rows, d, "bfloat16")
    assert passes(traffic, ("x", "dy", "dx"), rows, d, "bfloat16") == [(x_reads, 0), (dy_reads, 0), (0, 1)]
    assert_side_by_side(traffic, ("x", "dy", "dx"))


@pytest.mark.parametrize("storage", STORAGE)
def test_parts_of_rows_are_read_as_often_as_long_rows(tracer, storage):
    rows, d = 2, 2048
    given = on(tracer, {name: inputs(rows, d, storage)[name] for name in ("y", "x", "dy", "alpha")})
    given["eps"] = tracer.device.asarray(np.array([1e-5], np.float32))
    for kernel, operand, reads in (("softmax_back_parts", "y", 2), ("layer_norm_back_parts", "x", 4)):
        made = {
            one.name: tracer.device.empty(
                [{"rows": rows, "d": d, "parts": 4}.get(axis, axis) for axis in one.axes],
                STORAGE[storage] if one.element == "F" else np.float32,
            )
            for one in KERNELS[kernel].outputs
        }
        arrays = {one.name: given[one.name] for one in KERNELS[kernel].buffers if not one.written} | made
        traffic = tracer.launch(kernel, **arrays)
        assert passes(traffic, (operand, "dy", "dx"), rows, d, storage) == [(reads, 0), (2, 0), (0, 1)]
        assert_side_by_side(traffic, (operand, "dy", "dx"))


@pytest.mark.parametrize("storage", STORAGE)
def test_layer_norm_params_reads_each_array_once(tracer, storage):
    rows, d = 70, 768
    given = inputs(rows, d, storage)
    arrays = on(tracer, {"x": given["x"], "dy": given["dy"], "stats": np.ones((rows, 2), np.float32)})
    traffic = tracer.launch("layer_norm_params", **arrays, partial=tracer.device.empty((2, 2, d), np.float32))
    assert passes(traffic, ("x", "dy"), rows, d, storage) == [(1, 0), (1, 0)]
    assert_side_by_side(traffic, ("x", "dy"))


@pytest.mark.parametrize("d", [4 * WARP_D, 8 * WARP_D])
def test_shared_memory_is_free_of_bank_conflicts(tracer, d):
    for kernel in ("layer_norm_back", "layer_norm_grads"):
        layer_norm(tracer, kernel, 5, d, "float32")
        asked, least = tracer.shared()
        assert asked == least > 0, kernel


@pytest.mark.parametrize("d", [33, 769])
def test_odd_rows_are_read_once_too(tracer, d):
    traffic = softmax(tracer, 5, d, "float16")
    assert passes(traffic, ("y", "dy", "dx"), 5, d, "float16") == [(1, 0), (1, 0), (0, 1)]
    # A row's ends share sectors with its neighbours, and its middle is read in pieces of a warp.
    assert traffic["y"].sectors * SECTOR < 2.5 * traffic["y"].loaded
