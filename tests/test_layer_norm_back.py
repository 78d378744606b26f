import numpy as np
import pytest
from grids import (
    FEW_D,
    LAYER_NORM_D,
    LAYER_NORM_D_IN_16_BITS,
    ROWS,
    assert_alike,
    check_layer_norm,
    inputs,
    small_where_slow,
)

from rowgrad_wgpu import bounds, layer_norm_back, reference
from rowgrad_wgpu.contract import STORAGE, column_additions


@pytest.mark.parametrize("d", LAYER_NORM_D)
def test_every_d(device, whole_rows, d):
    rows = 5 if d < 5000 else 2
    small_where_slow(device, rows, d)
    check_layer_norm(device, inputs(rows, d, "float32"), "float32")


@pytest.mark.parametrize(("storage", "d"), LAYER_NORM_D_IN_16_BITS)
def test_every_d_in_16_bits(device, d, storage):
    small_where_slow(device, 5, d)
    check_layer_norm(device, inputs(5, d, storage), storage)


@pytest.mark.parametrize("rows", [rows for rows in ROWS if rows])
@pytest.mark.parametrize("d", FEW_D)
@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_every_number_of_rows(device, rows, d, storage):
    small_where_slow(device, rows, d)
    check_layer_norm(device, inputs(rows, d, storage), storage)


@pytest.mark.parametrize("d", [33, 64])
@pytest.mark.parametrize("storage", ["float16", "bfloat16"])
def test_alpha_in_float32_beside_16_bits(device, d, storage):
    given = inputs(9, d, storage)
    given["alpha"] = inputs(9, d, "float32")["alpha"]
    check_layer_norm(device, given, storage)


def test_no_alpha_means_ones(device):
    given = inputs(9, 33, "float32")
    ones = layer_norm_back(given["x"], given["dy"], np.ones(33, np.float32), device=device)
    none = layer_norm_back(given["x"], given["dy"], device=device)
    for one, other in zip(ones, none, strict=True):
        assert one.tobytes() == other.tobytes()


def test_no_rows_give_zeros(device):
    x = np.empty((0, 5), np.float16)
    got = layer_norm_back(x, x, device=device)
    assert got.dx.shape == (0, 5)
    assert got.dalpha.tolist() == got.dbeta.tolist() == [0] * 5


@pytest.mark.parametrize(("d", "storage"), [(1 << 20, "float32"), ((1 << 20) - 1, "float16")])
def test_rows_of_a_million(device, whole_rows, d, storage):
    small_where_slow(device, 3, d)
    check_layer_norm(device, inputs(3, d, storage), storage)


@pytest.mark.parametrize(("eps", "scale"), [(3e38, 1e18), (3.4e38, 1e18), (3e38, 1e20), (1e36, 1e18), (1e36, 1)])
def test_an_eps_as_large_as_the_squares(device, eps, scale):
    """Where the squares near float32's end eps was left out, whatever it was."""
    given = inputs(9, 33, "float32")
    given["x"] *= np.float32(scale)
    check_layer_norm(device, given, "float32", eps=float(np.float32(eps)))


@pytest.mark.parametrize("mean", [100, 1000, 10_000])
def test_a_mean_far_above_the_spread(device, mean):
    given = inputs(3, 16, "float32")
    given["x"] = (mean + np.arange(16) * 1e-3 + np.zeros((3, 1))).astype(np.float32)
    check_layer_norm(device, given, "float32")


@pytest.mark.parametrize("value", [0, 1, 1e6, 1e30])
def test_a_constant_row_is_exactly_centred(device, value):
    given = inputs(4, 48, "float32")
    given["x"] = np.full((4, 48), value, np.float32)
    check_layer_norm(device, given, "float32")
    assert np.isfinite(layer_norm_back(given["x"], given["dy"], given["alpha"], device=device).dx).all()


def test_d_of_one_gives_exactly_nothing(device):
    x = np.array([[1e6], [-3], [0.1]], np.float32)
    dy = np.array([[1], [2], [3]], np.float32)
    got = layer_norm_back(x, dy, np.array([5], np.float32), device=device)
    assert got.dx.tolist() == [[0], [0], [0]]
    assert got.dalpha.tolist() == [0]
    assert got.dbeta.tolist() == [6]


@pytest.mark.parametrize("scale", [1e18, 1e25, 1e30])
def test_squares_beyond_float32(device, scale):
    given = inputs(3, 65, "float32")
    given["x"] = given["x"] * np.float32(scale)
    check_layer_norm(device, given, "float32")
    assert layer_norm_back(given["x"], given["dy"], device=device).dalpha.any()


def test_halves_whose_squares_overflow_halves(device):
    given = inputs(4, 32, "float16")
    given["x"] = np.where(np.arange(32) % 2, np.float16(7600), np.float16(-7600)) * np.ones((4, 1), np.float16)
    check_layer_norm(device, given, "float16")
    assert layer_norm_back(given["x"], given["dy"], device=device).dalpha.any()


def test_a_spread_below_the_root_of_a_tiny_eps(device):
    given = inputs(2, 64, "float32")
    given["x"] = np.where(np.arange(64) % 2, np.float32(9.9e-4), np.float32(-9.9e-4)) * np.ones((2, 1), np.float32)
    check_layer_norm(device, given, "float32", eps=1e-12)


def test_eps_of_zero(device):
    check_layer_norm(device, inputs(3, 33, "float32"), "float32", eps=0)


def test_zero_alpha_entries(device):
    given = inputs(3, 33, "float32")
    given["alpha"][::2] = 0
    check_layer_norm(device, given, "float32")


@pytest.mark.parametrize("storage", STORAGE)
def test_a_nan_row_stays_in_its_row(device, storage):
    given = inputs(6, 33, storage)
    clean = layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    given["x"][2, 5] = np.nan
    got = layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    assert np.isnan(got.dx[2].astype(np.float32)).all()
    kept = [0, 1, 3, 4, 5]
    assert got.dx[kept].tobytes() == clean.dx[kept].tobytes()
    assert np.isnan(got.dalpha).all()
    assert got.dbeta.tobytes() == clean.dbeta.tobytes()


def test_rows_sum_to_zero(device):
    given = inputs(9, 257, "float32")
    dx = layer_norm_back(given["x"], np.abs(given["dy"]), given["alpha"], device=device).dx.astype(np.float64)
    assert np.all(np.abs(dx.sum(-1)) <= np.abs(dx).sum(-1) * 100 * 2.0**-24)


def test_a_constant_added_to_a_row_changes_rounding_alone(device):
    given = inputs(4, 128, "float32")
    given["x"] = np.round(given["x"] * 64) / np.float32(64)  # so that + 8 is exact
    before = layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    after = layer_norm_back(given["x"] + np.float32(8), given["dy"], given["alpha"], device=device)
    scale = np.abs(before.dx).max()
    assert np.abs(after.dx - before.dx).max() <= scale * 200 * 2.0**-24


def test_constant_dy_with_constant_alpha_gives_nearly_nothing(device):
    given = inputs(4, 128, "float32")
    got = layer_norm_back(given["x"], np.full_like(given["x"], 3), np.full(128, 2, np.float32), device=device)
    r = reference.layer_norm_stats(given["x"], 1e-5)[1]
    assert np.all(np.abs(got.dx) <= 6 * r * 60 * 2.0**-24)


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("d", [33, 64])
def test_same_bits_twice_and_in_other_batches(device, storage, d):
    given = inputs(67, d, storage)
    x, dy, alpha = given["x"], given["dy"], given["alpha"]
    whole = layer_norm_back(x, dy, alpha, device=device)
    again = layer_norm_back(x, dy, alpha, device=device)
    for one, other in zip(whole, again, strict=True):
        assert one.tobytes() == other.tobytes()
    part = slice(2, 67)  # two 16-bit rows may share a word
    assert layer_norm_back(x[part], dy[part], alpha, device=device).dx.tobytes() == whole.dx[part].tobytes()


@pytest.mark.parametrize(
    "grads", [("dx",), ("dalpha",), ("dbeta",), ("dx", "dbeta"), ("dalpha", "dbeta"), ("dx", "dalpha")]
)
def test_a_gradient_does_not_depend_on_what_else_is_asked_for(device, grads):
    given = inputs(70, 33, "float32")
    x, dy, alpha = given["x"], given["dy"], given["alpha"]
    whole = layer_norm_back(x, dy, alpha, device=device)
    got = layer_norm_back(x, dy, alpha, grads=grads, device=device)
    expected = bounds.layer_norm_back(x, dy, alpha, 1e-5, "float32", column_additions(70))
    for name in ("dx", "dalpha", "dbeta"):
        if name not in grads:
            assert getattr(got, name) is None
        else:  # dx alone is another kernel's
            assert_alike(device, getattr(got, name), getattr(whole, name), getattr(expected, name).bound)
