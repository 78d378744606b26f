"""Inputs out of public bug reports of other libraries, each named by its report."""

import numpy as np
import pytest
from grids import check_layer_norm, check_softmax, inputs

from rowgrad_wgpu import layer_norm_back, softmax_back


def test_four_zeros_in_one_axis(device):
    """flash-attention #781: weight.grad was garbage and changed from run to run."""
    zeros, ones = np.zeros(4, np.float32), np.ones(4, np.float32)
    got = layer_norm_back(zeros, ones, ones, device=device)
    assert got.dx.tolist() == [0] * 4
    assert got.dalpha.tolist() == [0] * 4
    assert got.dbeta.tolist() == [1] * 4


def test_leading_axes_are_all_rows(device):
    """FlagGems #5392: [batch, seq, hidden] was taken for batch rows; mlx #941, #955: no alpha."""
    given = inputs(4, 8, "float32")
    x, dy = given["x"].reshape(2, 2, 8), given["dy"].reshape(2, 2, 8)
    for alpha in (None, np.ones(8, np.float32)):
        got = layer_norm_back(x, dy, alpha, device=device)
        flat = layer_norm_back(given["x"], given["dy"], alpha, device=device)
        assert got.dx.tobytes() == flat.dx.tobytes()
        assert got.dalpha.tobytes() == flat.dalpha.tobytes()
        np.testing.assert_allclose(got.dbeta, given["dy"].astype(float).sum(0), atol=1e-6)


@pytest.mark.parametrize(("rows", "d"), [(1025, 32), (1027, 63)])
def test_many_rows_few_columns_odd_rows(adapter, rows, d):
    """attorch #18: the last block of rows was lost for d < 64 and odd rows of 1024 and more."""
    check_layer_norm(adapter, inputs(rows, d, "float32"), "float32")


@pytest.mark.parametrize("d", [3, 17, 768, 1536])
def test_padded_lanes_do_not_count(device, d):
    """Liger #518, unsloth #1867, triton #9838: (0 − mean)² of the padding entered the variance."""
    given = inputs(3, d, "float32")
    given["x"] = given["x"] + np.float32(50)
    check_layer_norm(device, given, "float32")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_tiny_eps_and_no_variance(device, dtype):
    """DeepSpeed #581: eps = 1e-12 was lost in halves and constant rows gave NaN; Flux #2096, burn #1992: zero rows."""
    given = inputs(3, 40, dtype)
    given["x"][:] = 2
    given["dy"] = (given["dy"] / 512).astype(given["dy"].dtype)
    check_layer_norm(device, given, dtype, eps=1e-12)


def test_halves_with_a_float32_scale(device):
    """onnxruntime #29599: x in float16 with the scale in float32 did not compile."""
    given = inputs(5, 48, "float16")
    given["alpha"] = given["alpha"].astype(np.float32)
    check_layer_norm(device, given, "float16")


def test_an_odd_number_of_halves(device):
    """wgpu-py #512, #626, gpuweb #5203: sizes that are no multiple of four bytes."""
    given = inputs(3, 5, "float16")
    check_softmax(device, given["y"], given["dy"], "float16")
    arrays = [device.asarray(given[name]) for name in ("y", "dy")]
    dx = softmax_back(*arrays).numpy()
    assert dx.tobytes() == softmax_back(given["y"], given["dy"], device=device).tobytes()


def test_a_call_does_not_see_the_buffers_of_the_one_before(device):
    """mlx #941: a buffer of an earlier gradient was written over; a smaller call follows a larger one here."""
    large, small = inputs(66, 65, "bfloat16"), inputs(7, 3, "bfloat16")
    expected = layer_norm_back(small["x"], small["dy"], small["alpha"], device=device)
    layer_norm_back(large["x"], large["dy"], large["alpha"], device=device)
    got = layer_norm_back(small["x"], small["dy"], small["alpha"], device=device)
    for one, other in zip(got, expected, strict=True):
        assert one.tobytes() == other.tobytes()


def test_rows_that_are_not_a_number_are_that_row_alone(device):
    """pytorch #31829, #25110: a row of −inf has a softmax of NaN; its gradient is NaN, its neighbours' is not."""
    given = inputs(3, 12, "float32")
    given["y"][1] = np.nan
    dx = softmax_back(given["y"], given["dy"], device=device)
    assert np.isnan(dx[1]).all()
    assert np.isfinite(dx[[0, 2]]).all()


def test_gradients_are_not_exchanged(device):
    """oneflow #6149: gamma's and beta's gradients were swapped; llm.c #408: they must be of this call alone."""
    x = np.array([[1, -1], [1, -1]], np.float32)
    dy = np.array([[1, 0], [1, 0]], np.float32)
    for _ in range(2):
        got = layer_norm_back(x, dy, np.ones(2, np.float32), eps=0, device=device)
        assert got.dalpha.tolist() == [2, 0]
        assert got.dbeta.tolist() == [2, 0]
    got = layer_norm_back(-x, dy, np.ones(2, np.float32), eps=0, device=device)
    assert got.dalpha.tolist() == [-2, 0]
    assert got.dbeta.tolist() == [2, 0]


def test_arrays_beyond_a_binding(adapter):
    """onnxruntime PR #25962, tfjs #6507: above 128 MiB a binding failed or gave zeros."""
    if adapter._backend.describe()["max_buffer_bytes"] <= adapter.limits.binding_bytes:
        pytest.skip(f"no array is longer than a binding on {adapter.info.name}")
    d = 1024
    rows = adapter.limits.binding_bytes // (4 * d) + 5
    y = np.full((rows, d), 1 / d, np.float32)
    dy = np.broadcast_to((np.arange(rows) % 7).astype(np.float32)[:, None], (rows, d)).copy()
    dy[:, 0] += d
    given, gradient = adapter.asarray(y), adapter.asarray(dy)
    dx = softmax_back(given, gradient).numpy()
    np.testing.assert_allclose(dx[:, 0], (d - 1) / d, rtol=1e-5)
    np.testing.assert_allclose(dx[:, -1], -1 / d, rtol=1e-3)
    assert layer_norm_back(given, gradient, grads=("dbeta",)).dbeta.numpy()[0] == pytest.approx(
        dy[:, 0].astype(float).sum(), rel=1e-5
    )
