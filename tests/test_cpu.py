"""The CPU device: what its threads and its blocks may not change."""

import os
import threading
import time

import numpy as np
import pytest
from grids import inputs

from rowgrad_wgpu import layer_norm_back, softmax_back
from rowgrad_wgpu.backends import cpu as backend
from rowgrad_wgpu.contract import STORAGE
from rowgrad_wgpu.device import Device
from rowgrad_wgpu.errors import OutOfMemory

SHAPES = ((150, 5), (230, 33), (130, 1), (70, backend.LONG_ROW), (5, 5000))


@pytest.fixture
def open_cpu(monkeypatch):
    """A CPU device of so many threads, and so many elements a block."""
    opened = []

    def open_with(threads, elements=backend.BLOCK_ELEMENTS):
        monkeypatch.setattr(backend, "cores", lambda: threads)
        monkeypatch.setattr(backend, "BLOCK_ELEMENTS", elements)
        monkeypatch.setattr(backend, "CHUNK_BLOCK_ELEMENTS", 2 * elements)
        opened.append(Device("cpu"))
        return opened[-1]

    yield open_with
    for device in opened:
        device.close()


def gradients(device, given):
    grads = layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    alone = layer_norm_back(given["x"], given["dy"], grads=("dalpha",), device=device)
    dx = softmax_back(given["y"], given["dy"], device=device)
    return [one.tobytes() for one in (dx, *grads, alone.dalpha)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
def test_neither_threads_nor_blocks_change_a_bit(cpu, open_cpu, shape, storage):
    given = inputs(*shape, storage)
    whole = gradients(cpu, given)
    for threads, rows in ((1, 1), (2, 3), (3, 40), (7, 200)):
        assert gradients(open_cpu(threads, rows * shape[1]), given) == whole, (threads, rows)


def test_a_bfloat16_is_widened_to_its_own_number():
    every = np.arange(1 << 16, dtype=np.uint16).view(STORAGE["bfloat16"]).reshape(-1, 64)
    assert backend._widened(every).tobytes() == every.astype(np.float32).tobytes()


@pytest.mark.parametrize("d", [1, 2, 3, 33, backend.LONG_ROW])
@pytest.mark.parametrize("rows", [64, 192])
def test_sums_go_row_after_row(cpu, rows, d):
    given = inputs(rows, d, "float32")
    dbeta = layer_norm_back(given["x"], given["dy"], device=cpu).dbeta
    chunks = np.add.accumulate(given["dy"].reshape(-1, 64, d), axis=1)[:, -1]
    assert dbeta.tobytes() == np.add.accumulate(chunks, axis=0)[-1].tobytes()


def test_numpys_buffer_stays_as_it_was(cpu):
    with np.errstate():
        np.setbufsize(4096)
        gradients(cpu, inputs(2, backend.LONG_ROW, "float32"))
        assert np.getbufsize() == 4096


def test_as_many_threads_as_processors_that_may_be_used(monkeypatch):
    monkeypatch.setattr(os, "process_cpu_count", lambda: 4, raising=False)
    assert backend.cores() == 4
    monkeypatch.delattr(os, "process_cpu_count")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {4, 6, 7}, raising=False)
    assert backend.cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert backend.cores() == 5


def test_no_thread_goes_on_after_another_has_failed(open_cpu, monkeypatch):
    failed, done = threading.Event(), []

    def block(operands):
        if not failed.is_set():
            failed.set()
            raise MemoryError
        time.sleep(0.01)
        done.append(len(operands["y"]))

    given = inputs(9, 4, "float32")
    device = open_cpu(2, 4)
    monkeypatch.setattr(backend, "_softmax_block", block)
    with pytest.raises(OutOfMemory):
        softmax_back(given["y"], given["dy"], device=device)
    assert done == [1] * 8
