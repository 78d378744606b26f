"""layer_norm_stats of few long rows, each cut into parts."""

import numpy as np
import pytest
from grids import inputs, launch

from rowgrad_wgpu import bounds

EPS = np.array([1e-5], np.float32)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(("d", "storage"), [(1, "float32"), (65, "float32"), (128, "bfloat16")])
def test_the_mean_and_r_of_each_row(device, parts, d, storage):
    given = inputs(5, d, storage)
    stats = launch(device, "layer_norm_stats_parts", {"x": given["x"], "eps": EPS}, parts)["stats"]
    expected = bounds.layer_norm_back(given["x"], given["dy"], given["alpha"], 1e-5, storage, 1)
    assert bounds.share(stats[:, :1], expected.mean) <= 1
    assert bounds.share(stats[:, 1:], expected.r) <= 1


@pytest.mark.parametrize("d", [64, 65])
def test_the_same_bits_as_layer_norm_back_parts_leaves(device, d):
    given = inputs(5, d, "float32")
    alone = launch(device, "layer_norm_stats_parts", {"x": given["x"], "eps": EPS}, 3)
    arrays = {name: given[name] for name in ("x", "dy", "alpha")}
    beside = launch(device, "layer_norm_back_parts", arrays | {"eps": EPS}, 3)
    assert alone["stats"].tobytes() == beside["stats"].tobytes()
