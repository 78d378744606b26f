import numpy as np
import pytest
from grids import inputs

from rowgrad_wgpu import reference


@pytest.mark.parametrize("chunks", [1, 3, 7, 10, 40])
def test_launch_takes_the_chunks_from_the_shape_of_partial(device, chunks):
    rows, d = 10, 5
    given = inputs(rows, d, "float32")
    mean, r = reference.layer_norm_stats(given["x"], 1e-5)
    stats = np.concatenate([mean, r], -1).astype(np.float32)
    partial = device.empty((chunks, 2, d), np.float32)
    x, dy, statistics = (device.asarray(one) for one in (given["x"], given["dy"], stats))
    device.launch("layer_norm_params", x=x, dy=dy, stats=statistics, partial=partial)
    per = -(-rows // chunks)
    xhat = (given["x"] - stats[:, :1].astype(np.float64)) * stats[:, 1:]
    expected = reference.layer_norm_params(xhat, given["dy"], chunks, per)
    np.testing.assert_allclose(partial.numpy(), expected, rtol=0, atol=per * 8 * 2.0**-24 * 10)


def test_no_rows_give_zeros(device):
    partial = device.empty((3, 2, 5), np.float32)
    x, stats = device.empty((0, 5), np.float16), device.empty((0, 2), np.float32)
    device.launch("layer_norm_params", x=x, dy=device.empty((0, 5), np.float16), stats=stats, partial=partial)
    assert not partial.numpy().any()
