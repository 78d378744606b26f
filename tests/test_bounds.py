import numpy as np
import pytest
from grids import inputs

from rowgrad_wgpu import bounds
from rowgrad_wgpu.bounds import Expected


def test_share_and_gap():
    expected = Expected(np.array([1.0, -4.0]), np.array([0.5, 1.0]))
    got = np.array([1.25, -4.75])
    assert bounds.share(got, expected) == 0.75
    assert bounds.gap(got, expected) == 0.75 / 4
    assert bounds.room(expected) == 0.25
    assert bounds.share(expected.value, expected) == 0
    assert bounds.share(np.array([1.6, -4.0]), expected) > 1


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_no_number_where_one_is_due(wrong):
    assert bounds.share(np.array([wrong]), Expected(np.array([1.0]), np.array([0.5]))) == np.inf


def test_a_number_where_none_is_due():
    expected = Expected(np.array([np.nan]), np.array([np.nan]))
    assert bounds.share(np.array([1.0]), expected) == np.inf
    assert bounds.share(np.array([np.nan]), expected) == 0


@pytest.fixture
def given():
    return inputs(9, 200, "float32")


def single(given, **omit):
    """dx of a LayerNorm in plain float32 NumPy, with a term left out on demand."""
    x, u = given["x"], given["dy"] * given["alpha"]
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True) * omit.get("variance", np.float32(1))
    r = 1 / np.sqrt(variance + np.float32(1e-5))
    xhat = (x - mean) * r
    means = u.mean(-1, keepdims=True), (u * xhat).mean(-1, keepdims=True)
    return r * (u - means[0] * omit.get("u_mean", 1) - xhat * means[1] * omit.get("ux_mean", 1))


def test_plain_float32_numpy_is_within(given):
    y, dy = given["y"], given["dy"]
    dx = y * (dy - (dy * y).sum(-1, keepdims=True))
    assert bounds.share(dx, bounds.softmax_back(y, dy, "float32")) <= 1
    expected = bounds.layer_norm_back(given["x"], dy, given["alpha"], 1e-5, "float32", 9)
    assert bounds.share(single(given), expected.dx) <= 1


@pytest.mark.parametrize(
    "omit", [{"u_mean": 0}, {"ux_mean": 0}, {"variance": np.float32(200 / 199)}, {"ux_mean": np.float32(1 + 2.0**-9)}]
)
def test_a_wrong_term_is_not(given, omit):
    expected = bounds.layer_norm_back(given["x"], given["dy"], given["alpha"], 1e-5, "float32", 9)
    assert bounds.share(single(given, **omit), expected.dx) > 1


def test_an_inner_product_rounded_to_halves_is_not(given):
    y, dy = given["y"], given["dy"]
    inner = (dy * y).astype(np.float16).sum(-1, keepdims=True, dtype=np.float32)
    assert bounds.share(y * (dy - inner), bounds.softmax_back(y, dy, "float32")) > 1


def test_nothing_is_claimed_beyond_the_storage_type():
    y, dy = np.array([[200.0, 100.0]], np.float16), np.array([[300.0, 0.0]], np.float16)
    expected = bounds.softmax_back(y, dy, "float16")
    assert not np.isfinite(expected.bound).any()
    assert bounds.share(np.array([[-np.inf, -np.inf]]), expected) == 0
