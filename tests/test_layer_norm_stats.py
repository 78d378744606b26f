import numpy as np
import pytest
from grids import inputs

from rowgrad_wgpu import bounds
from rowgrad_wgpu.contract import STORAGE


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("d", [1, 3, 32, 33, 130, 769])
def test_the_mean_and_r_of_each_row(device, storage, d):
    given = inputs(9, d, storage)
    stats = device.empty((9, 2), np.float32)
    eps = device.asarray(np.array([1e-5], np.float32))
    device.launch("layer_norm_stats", x=device.asarray(given["x"]), eps=eps, stats=stats)
    expected = bounds.layer_norm_back(given["x"], given["dy"], given["alpha"], 1e-5, storage, 1)
    assert bounds.share(stats.numpy()[:, :1], expected.mean) <= 1
    assert bounds.share(stats.numpy()[:, 1:], expected.r) <= 1


@pytest.mark.parametrize("d", [32, 33])
def test_the_same_bits_as_layer_norm_back_leaves(device, d):
    given = inputs(9, d, "float32")
    arrays = {name: device.asarray(given[name]) for name in ("x", "dy", "alpha")}
    eps = device.asarray(np.array([1e-5], np.float32))
    alone, beside = device.empty((9, 2), np.float32), device.empty((9, 2), np.float32)
    device.launch("layer_norm_stats", x=arrays["x"], eps=eps, stats=alone)
    device.launch("layer_norm_back", **arrays, eps=eps, dx=device.empty((9, d), np.float32), stats=beside)
    assert alone.numpy().tobytes() == beside.numpy().tobytes()
