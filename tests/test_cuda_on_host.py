"""The CUDA kernels on the processor beside the WGSL kernels: the same buffers, whatever order the threads run in."""

import hostgpu
import numpy as np
import pytest
from grids import assert_within, bounds_of_launches, inputs, launch, whole

from rowgrad_wgpu import bounds, check
from rowgrad_wgpu.contract import KERNELS, STORAGE, chunk_count
from rowgrad_wgpu.plan import (
    EASY_ELEMENTS,
    HARDWARE_KEPT,
    HARDWARE_KEPT_OF_ONE,
    HARDWARE_TEAM,
    UNLIMITED,
    WIDEST_TEAM,
    choose_variant,
)

EASY_D = HARDWARE_TEAM * EASY_ELEMENTS
BOTH_D = WIDEST_TEAM * HARDWARE_KEPT
ONE_D = WIDEST_TEAM * HARDWARE_KEPT_OF_ONE

# Both sides of each threshold, aligned and not.
WIDTHS = (
    EASY_D - 1,
    EASY_D,
    EASY_D + 8,
    2 * EASY_D,
    4 * EASY_D,
    4 * EASY_D + 1,
    8 * EASY_D,
    BOTH_D,
    BOTH_D + 8,
    ONE_D,
    ONE_D + 8,
)


def test_the_widths_reach_every_team_and_tier():
    variants = [
        choose_variant(KERNELS[name], storage, storage, whole(1, d), UNLIMITED)
        for name in ("softmax_back", "layer_norm_back")
        for storage in STORAGE
        for d in WIDTHS
    ]
    assert {one.team for one in variants} == {32, 64, 128, 256}
    assert {one.kept for one in variants} == {0, 1, 2}
    assert {one.width for one in variants} == {1, 4, 8}


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("storage", STORAGE)
def test_every_tier(host_gpu, whole_rows, d, storage):
    case = check.random_case(2 if d < 5000 else 1, d, STORAGE[storage])
    assert all(result.ok for result in check.check_case(host_gpu, case))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_order_of_the_threads_changes_no_bit(host_gpu, order):
    turned = hostgpu.open_device(host_gpu._backend._properties["warpSize"], order=order)
    for rows, d in ((9, 33), (130, 64), (2, 2 * EASY_D), (2, 8 * EASY_D)):
        case = check.random_case(rows, d, STORAGE["float32"])
        assert all(result.ok for result in check.check_case(turned, case))
        for one, other in zip(buffers(turned, case), buffers(host_gpu, case), strict=True):
            assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_order_of_the_threads_changes_no_bit_of_parts(host_gpu, order):
    turned = hostgpu.open_device(host_gpu._backend._properties["warpSize"], order=order)
    given = inputs(3, 517, "float32") | {"eps": np.array([1e-5], np.float32)}
    for kernel in ("softmax_back_parts", "layer_norm_back_parts", "layer_norm_stats_parts"):
        one, other = (launch(device, kernel, given, parts=3) for device in (turned, host_gpu))
        assert [array.tobytes() for array in one.values()] == [array.tobytes() for array in other.values()]


def buffers(device, case):
    """What every kernel writes: softmax's dx; then dx, stats and partial of a LayerNorm."""
    rows, d = case.x.shape
    y, x, dy, alpha = (device.asarray(one) for one in (case.y, case.x, case.dy, case.alpha))
    eps = device.asarray(np.array([1e-5], np.float32))
    softmax_dx, dx = device.empty((rows, d), case.x.dtype), device.empty((rows, d), case.x.dtype)
    stats = device.empty((rows, 2), np.float32)
    partial = device.empty((chunk_count(rows), 2, d), np.float32)
    device.launch("softmax_back", y=y, dy=dy, dx=softmax_dx)
    device.launch("layer_norm_back", x=x, dy=dy, alpha=alpha, eps=eps, dx=dx, stats=stats)
    device.launch("layer_norm_params", x=x, dy=dy, stats=stats, partial=partial)
    return [one.numpy() for one in (softmax_dx, dx, stats, partial)]


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize(("rows", "d"), [(5, 33), (130, 32), (66, 7)])
def test_the_buffers_are_laid_out_as_webgpus(host_gpu, adapter, rows, d, storage):
    """Same shapes, same places: element by element the two may differ by both their bounds."""
    case = check.random_case(rows, d, STORAGE[storage])
    ours, theirs = buffers(host_gpu, case), buffers(adapter, case)
    softmax = bounds.softmax_back(case.y, case.dy, storage)
    chunks = chunk_count(rows)
    room = [softmax.bound, *bounds_of_launches(vars(case), storage, -(-rows // chunks)).values()]
    assert ours[3].shape == (chunks, 2, d)
    for one, other, bound in zip(ours, theirs, room, strict=True):
        assert_within(one, other, bound)
