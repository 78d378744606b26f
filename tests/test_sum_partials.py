import numpy as np
import pytest
from grids import inputs, small_where_slow

from rowgrad_wgpu import layer_norm_back
from rowgrad_wgpu.contract import chunk_count


@pytest.mark.parametrize("rows", [70, 4096 + 1, 16_385])
def test_partials_and_their_sum_have_the_seeds_order(device, rows):
    """dα and dβ are the partials, added on the host in chunk order, bit for bit."""
    d = 3
    small_where_slow(device, rows, d)
    given = inputs(rows, d, "float32")
    chunks = chunk_count(rows)
    arrays = {name: device.asarray(given[name]) for name in ("x", "dy", "alpha")}
    eps = device.asarray(np.array([1e-5], np.float32))
    dx, stats = device.empty((rows, d), np.float32), device.empty((rows, 2), np.float32)
    partial = device.empty((chunks, 2, d), np.float32)
    device.launch("layer_norm_back", **arrays, eps=eps, dx=dx, stats=stats)
    device.launch("layer_norm_params", x=arrays["x"], dy=arrays["dy"], stats=stats, partial=partial)
    host = np.zeros((2, d), np.float32)
    for chunk in partial.numpy():
        host += chunk
    got = layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    assert got.dalpha.tobytes() == host[0].tobytes()
    assert got.dbeta.tobytes() == host[1].tobytes()


def test_more_chunks_than_llvmpipe_loops(device):
    """llvmpipe stopped at 65,535 of these additions without a word."""
    chunks = 70_000
    partial = device.asarray(np.ones((chunks, 2, 1), np.float32))
    dalpha, dbeta = device.empty(1, np.float32), device.empty(1, np.float32)
    device.launch("sum_partials", partial=partial, dalpha=dalpha, dbeta=dbeta)
    assert dalpha.numpy().tolist() == dbeta.numpy().tolist() == [chunks]


def test_a_sum_of_negative_zeros_is_zero(device):
    """The host's sum begins with 0."""
    partial = device.asarray(np.full((2, 2, 4), -0.0, np.float32))
    dalpha, dbeta = device.empty(4, np.float32), device.empty(4, np.float32)
    device.launch("sum_partials", partial=partial, dalpha=dalpha, dbeta=dbeta)
    assert not np.signbit([dalpha.numpy(), dbeta.numpy()]).any()
