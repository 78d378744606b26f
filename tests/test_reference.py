"""The oracle against what it is derived from: finite differences of the forward functions, and closed forms."""

import numpy as np
import pytest

from rowgrad_wgpu import reference

STEP = 1e-5
# A central difference's error is STEP² times a third derivative of order 10, plus 1e-16 / STEP of rounding.
TOLERANCE = 1e-8


def softmax(z):
    powers = np.exp(z - z.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def layer_norm(x, alpha, beta, eps):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * alpha + beta


def differences(function, at):
    """The gradient of a scalar function by central differences."""
    gradient = np.empty_like(at)
    for index in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[index] += STEP
        down[index] -= STEP
        gradient[index] = (function(up) - function(down)) / (2 * STEP)
    return gradient


@pytest.fixture
def random():
    return np.random.default_rng(3)


@pytest.mark.parametrize("d", [1, 2, 5, 9])
def test_softmax_back_is_the_derivative(random, d):
    z, dy = random.standard_normal((2, 3, d))
    expected = differences(lambda one: (softmax(one) * dy).sum(), z)
    np.testing.assert_allclose(reference.softmax_back(softmax(z), dy), expected, atol=TOLERANCE)


@pytest.mark.parametrize("d", [2, 5, 9])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_layer_norm_back_is_the_derivative(random, d, eps):
    x, dy = random.standard_normal((2, 3, d)) * 2
    alpha, beta = random.standard_normal((2, d))
    got = reference.layer_norm_back(x, dy, alpha, eps)
    dalpha, dbeta = reference.sum_partials(reference.layer_norm_params(got.xhat, dy, 2, 2))
    pairs = (
        (got.dx, differences(lambda one: (layer_norm(one, alpha, beta, eps) * dy).sum(), x)),
        (dalpha, differences(lambda one: (layer_norm(x, one, beta, eps) * dy).sum(), alpha)),
        (dbeta, differences(lambda one: (layer_norm(x, alpha, one, eps) * dy).sum(), beta)),
    )
    for value, expected in pairs:
        np.testing.assert_allclose(value, expected, atol=50 * TOLERANCE * max(1, np.abs(expected).max()))


def test_one_hot_rows_have_no_gradient(random):
    assert not reference.softmax_back(np.eye(4), random.standard_normal((4, 4))).any()


def test_a_row_of_two_probabilities():
    got = reference.softmax_back([[0.25, 0.75]], [[1.0, 0.0]])
    np.testing.assert_allclose(got, [[0.1875, -0.1875]])


def test_a_constant_row_is_centred_and_scaled_by_eps():
    dy = np.array([[1.0, 2.0, 6.0]])
    got = reference.layer_norm_back(np.full((1, 3), 7.0), dy, np.ones(3), 0.25)
    assert got.r.tolist() == [[2]]
    assert not got.xhat.any()
    np.testing.assert_allclose(got.dx, 2 * (dy - 3))


def test_a_row_of_two_values():
    got = reference.layer_norm_back([[5.0, 1.0]], [[1.0, 0.0]], [1.0, 1.0], 5.0)
    np.testing.assert_allclose(got.xhat, [[2 / 3, -2 / 3]])  # the variance is 4, r = 1/3
    np.testing.assert_allclose(got.dx, np.array([[1, -1]]) * (1 / 3) * (1 / 2 - 2 / 3 * 1 / 3))


def test_partials_hold_their_rows_and_no_others(random):
    xhat, dy = random.standard_normal((2, 5, 3))
    partial = reference.layer_norm_params(xhat, dy, 4, 2)
    np.testing.assert_allclose(partial[0, 0], (xhat * dy)[:2].sum(0))
    np.testing.assert_allclose(partial[2], [(xhat * dy)[4], dy[4]])
    assert not partial[3].any()


def test_a_nan_row_stays_in_its_row(random):
    x, dy = random.standard_normal((2, 3, 4))
    x[1, 2] = np.nan
    for dx in (reference.softmax_back(x, dy), reference.layer_norm_back(x, dy, np.ones(4), 1e-5).dx):
        assert np.isnan(dx).all(-1).tolist() == [False, True, False]
