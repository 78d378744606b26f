import numpy as np
import pytest
from grids import ALL_D, FEW_D, NARROW_D, ROWS, check_softmax, inputs, least_sums, small_where_slow

from rowgrad_wgpu import softmax_back
from rowgrad_wgpu.contract import STORAGE


@pytest.mark.parametrize("d", ALL_D)
def test_every_d(device, whole_rows, d):
    rows = 5 if d < 5000 else 2
    small_where_slow(device, rows, d)
    given = inputs(rows, d, "float32")
    check_softmax(device, given["y"], given["dy"], "float32")


@pytest.mark.parametrize("d", NARROW_D)
@pytest.mark.parametrize("storage", ["float16", "bfloat16"])
def test_every_d_in_16_bits(device, d, storage):
    small_where_slow(device, 5, d)
    given = inputs(5, d, storage)
    check_softmax(device, given["y"], given["dy"], storage)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("d", FEW_D)
@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
def test_every_number_of_rows(device, rows, d, storage):
    small_where_slow(device, rows, d)
    given = inputs(rows, d, storage)
    check_softmax(device, given["y"], given["dy"], storage)


def test_long_rows_of_odd_16_bit(device):
    rows, d = 3, (1 << 20) - 1
    small_where_slow(device, rows, d)
    given = inputs(rows, d, "bfloat16")
    check_softmax(device, given["y"], given["dy"], "bfloat16")


def test_rows_longer_than_llvmpipe_loops(device, whole_rows):
    d = 1 << 20
    small_where_slow(device, 2, d)
    y = np.full((2, d), 1 / d, np.float32)
    dy = np.ones((2, d), np.float32)
    dy[1] = np.arange(d) % 2
    dx = check_softmax(device, y, dy, "float32")
    np.testing.assert_allclose(dx[1, :2], [-0.5 / d, 0.5 / d], rtol=1e-3)


@pytest.mark.parametrize("d", [31, 300, 4096])
def test_inner_products_that_lose_what_they_can(device, d):
    """A sum in fewer partial sums than the bound assumes would lose more than the bound."""
    y, dy = least_sums(d)
    small_where_slow(device, len(y), d)
    check_softmax(device, y, dy, "float32")


@pytest.mark.parametrize("storage", STORAGE)
def test_one_hot_rows_and_masked_rows_are_exactly_zero(device, storage):
    y = np.zeros((4, 33), STORAGE[storage])
    y[0, 0] = y[1, 32] = y[2, 7] = 1  # row 3 is fully masked
    dy = inputs(4, 33, storage)["dy"]
    assert not softmax_back(y, dy, device=device).astype(np.float32).any()


@pytest.mark.parametrize("storage", STORAGE)
def test_a_nan_row_stays_in_its_row(device, storage):
    given = inputs(6, 33, storage)
    clean = softmax_back(given["y"], given["dy"], device=device)
    given["y"][2, 5] = np.nan
    dx = softmax_back(given["y"], given["dy"], device=device)
    assert np.isnan(dx[2].astype(np.float32)).all()
    kept = [0, 1, 3, 4, 5]
    assert dx[kept].tobytes() == clean[kept].tobytes()


def test_an_infinite_gradient_where_y_is_zero_is_nan_as_the_formula_says(device):
    y = np.array([[0, 0.5, 0.5]], np.float32)
    dy = np.array([[np.inf, 1, 2]], np.float32)
    assert np.isnan(softmax_back(y, dy, device=device)).all()


@pytest.mark.parametrize("d", [7, 33, 768])
def test_rows_sum_to_zero(device, d):
    given = inputs(9, d, "float32")
    dy = np.abs(given["dy"])  # all positive: without the inner product the sum would be all of it
    dx = softmax_back(given["y"], dy, device=device).astype(np.float64)
    # y sums to 1 within d roundings of its own.
    assert np.all(np.abs(dx.sum(-1)) <= np.abs(dx).sum(-1) * (d + 64) * 2.0**-24)


def test_a_constant_gradient_gives_nearly_nothing(device):
    y = inputs(5, 64, "float32")["y"]
    dx = softmax_back(y, np.full_like(y, 3), device=device)
    assert np.abs(dx).max() <= 3 * 80 * 2.0**-24


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("d", [33, 64])
def test_same_bits_twice_and_in_other_batches(device, storage, d):
    given = inputs(67, d, storage)
    whole = softmax_back(given["y"], given["dy"], device=device)
    assert softmax_back(given["y"], given["dy"], device=device).tobytes() == whole.tobytes()
    for part in (slice(0, 1), slice(2, 11), slice(0, 66)):  # two 16-bit rows may share a word
        got = softmax_back(given["y"][part], given["dy"][part], device=device)
        assert got.tobytes() == whole[part].tobytes()


def test_the_largest_half_overflows_to_infinity_as_rounding_does(device):
    y = np.ones((1, 2), np.float16)
    dy = np.array([[65504, -65504]], np.float16)
    # The inner product is 0; 65504 stays, its neighbour too.
    assert softmax_back(y, dy, device=device).tolist() == [[65504, -65504]]
    y = np.array([[2, 1]], np.float16)
    dy = np.array([[60000, 0]], np.float16)
    assert np.isneginf(softmax_back(y, dy, device=device)).all()
