"""Windows and blocks: arrays cut up as if the device were tiny have the bits of a single pass."""

import dataclasses

import numpy as np
import pytest
from grids import inputs

from rowgrad_wgpu import layer_norm_back, ops, plan, softmax_back
from rowgrad_wgpu.backends import webgpu
from rowgrad_wgpu.contract import STORAGE
from rowgrad_wgpu.device import Device

SHAPES = ((300, 5), (301, 4), (64, 33), (70, 33), (1000, 8), (7, 130))  # 70 rows: chunks that end inside a word


def by_rows(adapter: Device) -> Device:
    """A second device on the adapter, planned as for a CPU: one team walks a chunk's rows, so that a window may end
    inside it."""
    device = Device(adapter.info.spec)
    device._backend.limits = dataclasses.replace(device.limits, software=True)
    return device


@pytest.fixture
def single(adapter):
    """A device whose limits stay as they are."""
    with by_rows(adapter) as device:
        yield device


@pytest.fixture
def tiny(adapter):
    """A device whose limits a test may shrink."""
    with by_rows(adapter) as device:
        yield device


def shrink(device: Device, binding_bytes: int) -> None:
    device._plans.clear()
    device._backend.limits = dataclasses.replace(device.limits, binding_bytes=binding_bytes, groups_per_dimension=3)


def dispatches(device: Device, kernel: str, storage: str, rows: int, d: int) -> int:
    """How many dispatches the device cuts a launch into."""
    record = plan.kernel_named(kernel)
    return len(plan.plan_launch(record, storage, storage, plan.whole(rows, d), device.limits).dispatches)


def gradients(device: Device, given: dict[str, np.ndarray]) -> list[bytes]:
    grads = layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    dx = softmax_back(given["y"], given["dy"], device=device)
    return [dx.tobytes(), *(one.tobytes() for one in grads)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("storage", STORAGE)
def test_windows_do_not_change_a_bit(tiny, single, shape, storage):
    rows, d = shape
    given = inputs(rows, d, storage)
    expected = gradients(single, given)
    shrink(tiny, 8 * d + 16 + tiny.limits.binding_alignment + 16 * d)  # a chunk's sums and four rows of float32
    assert dispatches(tiny, "layer_norm_params", storage, rows, d) > rows // 20 > 0 or rows < 20
    assert gradients(tiny, given) == expected


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
def test_blocks_do_not_change_a_bit(device, shape, storage, monkeypatch):
    rows, d = shape
    given = inputs(rows, d, storage)
    whole = gradients(device, given)
    monkeypatch.setattr(ops, "BLOCK_BYTES", 4 * d * 10)
    assert gradients(device, given) == whole


def test_a_chunk_longer_than_the_loops(tiny, single):
    rows, d = 1000, 3
    given = inputs(rows, d, "float32")
    expected = gradients(single, given)
    tiny._backend.limits = dataclasses.replace(tiny.limits, loop_iterations=50)
    assert dispatches(tiny, "layer_norm_params", "float32", rows, d) >= 20
    assert gradients(tiny, given) == expected


def test_more_chunks_than_a_binding_holds(tiny, single):
    rows, d = 300, 16
    given = inputs(rows, d, "float32")
    expected = gradients(single, given)
    shrink(tiny, 8 * d * 2 + 16 + tiny.limits.binding_alignment + 1)
    assert dispatches(tiny, "sum_partials", "float32", rows, d) == 3
    assert gradients(tiny, given) == expected


def test_several_submissions(tiny, single, monkeypatch):
    given = inputs(500, 8, "float32")
    expected = gradients(single, given)
    monkeypatch.setattr(webgpu, "STAGING_BYTES", 4096)
    tiny._backend.limits = dataclasses.replace(tiny.limits, dispatch_elements=800)
    assert gradients(tiny, given) == expected


def test_progress_is_told_after_each_block(cpu, monkeypatch):
    monkeypatch.setattr(ops, "BLOCK_BYTES", 4 * 8 * 100)
    given = inputs(250, 8, "float32")
    told = []
    softmax_back(given["y"], given["dy"], device=cpu, progress=lambda done, rows: told.append((done, rows)))
    assert told == [(100, 250), (200, 250), (250, 250)]
