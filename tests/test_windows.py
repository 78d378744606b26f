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


@pytest.fixture
def tiny(adapter):
    """A device whose bindings hold four rows or so, and whose loops end after 37 rows of a chunk."""
    with Device(adapter.info.spec) as device:
        yield device


def shrink(device: Device, binding_bytes: int) -> None:
    device._plans.clear()
    device._backend.limits = dataclasses.replace(device.limits, binding_bytes=binding_bytes, groups_per_dimension=3)


def gradients(device: Device, given: dict[str, np.ndarray]) -> list[bytes]:
    grads = layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    dx = softmax_back(given["y"], given["dy"], device=device)
    return [dx.tobytes(), *(one.tobytes() for one in grads)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("storage", STORAGE)
def test_windows_do_not_change_a_bit(tiny, adapter, shape, storage):
    rows, d = shape
    given = inputs(rows, d, storage)
    whole = gradients(adapter, given)
    shrink(tiny, 8 * d + 16 + adapter.limits.binding_alignment + 16 * d)  # a chunk's sums and four rows of float32
    cut = plan.plan_launch(
        plan.kernel_named("layer_norm_params"), storage, storage, plan.Extent(rows, d, 2, 0, rows), tiny.limits
    )
    assert len(cut.dispatches) > rows // 20 > 0 or rows < 20
    assert gradients(tiny, given) == whole


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
def test_blocks_do_not_change_a_bit(device, shape, storage, monkeypatch):
    rows, d = shape
    given = inputs(rows, d, storage)
    whole = gradients(device, given)
    monkeypatch.setattr(ops, "BLOCK_BYTES", 4 * d * 10)
    assert gradients(device, given) == whole


def test_a_chunk_longer_than_the_loops(adapter, monkeypatch):
    given = inputs(1000, 3, "float32")
    whole = gradients(adapter, given)
    monkeypatch.setattr(webgpu, "LOOP_ITERATIONS", 50)
    with Device(adapter.info.spec) as device:
        cut = plan.plan_launch(
            plan.kernel_named("layer_norm_params"),
            "float32",
            "float32",
            plan.Extent(1000, 3, 2, 0, 1000),
            device.limits,
        )
        assert len(cut.dispatches) >= 20
        assert gradients(device, given) == whole


def test_more_chunks_than_a_binding_holds(adapter):
    rows, d = 300, 16
    given = inputs(rows, d, "float32")
    whole = gradients(adapter, given)
    with Device(adapter.info.spec) as device:
        shrink(device, 8 * d * 2 + 16 + adapter.limits.binding_alignment + 1)
        sums = plan.plan_launch(
            plan.kernel_named("sum_partials"), "float32", "float32", plan.Extent(rows, d, 5, 0, rows), device.limits
        )
        assert len(sums.dispatches) == 3
        assert gradients(device, given) == whole


def test_several_submissions(adapter, monkeypatch):
    given = inputs(500, 8, "float32")
    whole = gradients(adapter, given)
    monkeypatch.setattr(webgpu, "DISPATCH_ELEMENTS", 800)
    monkeypatch.setattr(webgpu, "STAGING_BYTES", 4096)
    with Device(adapter.info.spec) as device:
        assert gradients(device, given) == whole


def test_progress_is_told_after_each_block(cpu, monkeypatch):
    monkeypatch.setattr(ops, "BLOCK_BYTES", 4 * 8 * 100)
    given = inputs(250, 8, "float32")
    told = []
    softmax_back(given["y"], given["dy"], device=cpu, progress=lambda done, rows: told.append((done, rows)))
    assert told == [(100, 250), (200, 250), (250, 250)]
