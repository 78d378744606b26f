import numpy as np
import pytest
from grids import KEPT_D, inputs, small_where_slow
from test_reference import differences

from rowgrad_wgpu import bounds, layer_norm_back, reference, rms_norm_back
from rowgrad_wgpu.contract import STORAGE, column_additions
from rowgrad_wgpu.errors import ShapeError


def expected_of(given, storage, eps):
    sums = column_additions(len(given["x"]))
    return bounds.rms_norm_back(given["x"], given["dy"], given["alpha"], eps, storage, sums)


def check(device, given, storage, eps=1e-5):
    """dx and dalpha within their bounds."""
    got = rms_norm_back(given["x"], given["dy"], given["alpha"], eps=eps, device=device)
    expected = expected_of(given, storage, eps)
    assert (got.dx.dtype, got.dx.shape) == (given["x"].dtype, given["x"].shape)
    assert (got.dalpha.dtype, got.dalpha.shape) == (np.float32, given["x"].shape[-1:])
    assert bounds.share(got.dx, expected.dx) <= 1
    assert bounds.share(got.dalpha, expected.dalpha) <= 1
    return got


@pytest.mark.parametrize("d", [2, 5, 9])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_the_oracle_is_the_derivative(d, eps):
    random = np.random.default_rng(3)
    x, dy = random.standard_normal((2, 3, d)) * 2
    alpha = random.standard_normal(d)

    def loss(x, alpha):
        return (x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * alpha * dy).sum()

    got = reference.rms_norm_back(x, dy, alpha, eps)
    for value, expected in (
        (got.dx, differences(lambda one: loss(one, alpha), x)),
        ((dy * got.xhat).sum(0), differences(lambda one: loss(x, one), alpha)),
    ):
        np.testing.assert_allclose(value, expected, atol=5e-7 * max(1, np.abs(expected).max()))


def test_a_row_worked_out_by_hand():
    got = reference.rms_norm_back([[1.0, 7.0]], [[1.0, 0.0]], [3.0, 3.0], 11.0)  # the mean square is 25, r = 1/6
    np.testing.assert_allclose(got.xhat, [[1 / 6, 7 / 6]])
    np.testing.assert_allclose(got.dx, np.array([[3 - 1 / 6 / 4, -7 / 6 / 4]]) / 6)  # mean(u xhat) = 1/4


def single(given, **wrong):
    """dx in plain float32 NumPy, with something wrong on demand."""
    x, u = given["x"], given["dy"] * given["alpha"]
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) * wrong.get("square", np.float32(1)) + np.float32(1e-5))
    xhat = x * r
    return r * (u - xhat * (u * xhat).mean(-1, keepdims=True) * wrong.get("ux_mean", np.float32(1)))


def test_the_bound_holds_for_plain_numpy_and_for_nothing_wrong():
    given = inputs(9, 200, "float32")
    expected = expected_of(given, "float32", 1e-5).dx
    assert bounds.share(single(given), expected) <= 1
    for wrong in ({"ux_mean": 0}, {"ux_mean": np.float32(1 + 2.0**-9)}, {"square": np.float32(200 / 199)}):
        assert bounds.share(single(given, **wrong), expected) > 1


@pytest.mark.parametrize(
    ("d", "storage"), [(1, "float32"), (33, "float16"), (64, "bfloat16"), (32 * KEPT_D + 1, "float32")]
)
def test_some_d(device, d, storage):
    """Each way to read and to write a row, and one that is too long to keep."""
    small_where_slow(device, 3, d)
    check(device, inputs(3, d, storage), storage)


@pytest.mark.slow  # a variant to compile for each
@pytest.mark.parametrize("d", [1, 2, 3, 31, 32, 33, 128, 129, 257, 768, KEPT_D, KEPT_D + 1, 4097])
@pytest.mark.parametrize("storage", STORAGE)
def test_every_d(device, d, storage):
    small_where_slow(device, 3, d)
    check(device, inputs(3, d, storage), storage)


@pytest.mark.parametrize("rows", [1, 2, 65, 513])
def test_every_number_of_rows(device, rows):
    check(device, inputs(rows, 33, "float16"), "float16")


@pytest.mark.slow
@pytest.mark.parametrize("d", [33, 64])
def test_alpha_in_float32_beside_16_bits(device, d):
    given = inputs(9, d, "bfloat16") | {"alpha": inputs(9, d, "float32")["alpha"]}
    check(device, given, "bfloat16")


@pytest.mark.parametrize(
    ("storage", "scale"),
    [("float32", 1e18), ("float32", 1e25), pytest.param("bfloat16", 1e37, marks=pytest.mark.slow)],
)
def test_squares_beyond_float32(device, storage, scale):
    given = inputs(3, 33, storage)
    given["x"] = (given["x"].astype(np.float32) * np.float32(scale)).astype(STORAGE[storage])
    assert check(device, given, storage).dalpha.all()


def test_rows_whose_squares_overflow_beside_others(device):
    given = inputs(4, 33, "float32")
    given["x"][1::2] *= np.float32(1e20)
    check(device, given, "float32")


@pytest.mark.parametrize(("eps", "scale"), [(0, 1), (0.1, 1), (1e-12, 1e-3), (3e38, 1e18), (1e36, 1)])
def test_any_eps(device, eps, scale):
    given = inputs(9, 33, "float32")
    given["x"] *= np.float32(scale)
    check(device, given, "float32", eps=float(np.float32(eps)))


def test_zero_rows_are_scaled_by_eps(device):
    given = inputs(2, 33, "float32") | {"x": np.zeros((2, 33), np.float32)}
    got = check(device, given, "float32", eps=0.25)
    np.testing.assert_allclose(got.dx, 2 * given["dy"] * given["alpha"], rtol=1e-6)
    assert not got.dalpha.any()


def test_zero_rows_without_eps_are_no_numbers(device):
    x, dy = np.zeros((1, 33), np.float32), np.ones((1, 33), np.float32)
    assert np.isnan(rms_norm_back(x, dy, eps=0, device=device).dx).all()


def test_of_squares_that_vanish_nothing_is_claimed(cpu):
    given = inputs(3, 33, "float32")
    given["x"][1] *= np.float32(1e-25)
    given["x"][1, 0] = 0
    got = check(cpu, given, "float32", eps=0)
    assert np.isfinite(got.dx).all(-1).tolist() == [True, False, True]
    assert np.isinf(expected_of(given, "float32", 0).dalpha.bound).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("storage", ["float32", "float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_no_number_stays_in_its_row(device, storage, value):
    given = inputs(6, 33, storage)
    clean = check(device, given, storage)
    given["x"][2, 5] = value
    got = check(device, given, storage)  # an Inf makes r 0: dalpha's other columns lose the row, and are numbers
    kept = [0, 1, 3, 4, 5]
    assert np.isnan(got.dx[2].astype(np.float32)).all()
    assert got.dx[kept].tobytes() == clean.dx[kept].tobytes()
    assert np.isnan(got.dalpha[5])


def test_the_statistics_are_a_layer_norms_with_no_mean(device):
    given = inputs(9, 33, "float32")
    arrays = {name: device.asarray(given[name]) for name in ("x", "dy", "alpha")}
    eps = device.asarray(np.array([1e-5], np.float32))
    dx, stats = device.empty((9, 33), np.float32), device.empty((9, 2), np.float32)
    device.launch("rms_norm_back", **arrays, eps=eps, dx=dx, stats=stats)
    expected = expected_of(given, "float32", 1e-5)
    assert not stats.numpy()[:, 0].any()
    assert bounds.share(stats.numpy()[:, 1:], expected.r) <= 1
    assert dx.numpy().tobytes() == rms_norm_back(given["x"], given["dy"], given["alpha"], device=device).dx.tobytes()


def test_dalpha_is_summed_as_a_layer_norms(device):
    """Of rows whose mean happens to be 0 exactly, twos and their negatives in equal numbers."""
    dy = inputs(130, 33, "float32")["dy"]
    x = np.tile(np.repeat(np.float32([2, 0, -2]), [16, 1, 16]), (130, 1))
    one, other = (back(x, dy, device=device) for back in (rms_norm_back, layer_norm_back))
    assert one.dalpha.tobytes() == other.dalpha.tobytes()


@pytest.mark.parametrize("grads", ["dx", "dalpha", ("dalpha", "dx")])
def test_a_gradient_does_not_depend_on_what_else_is_asked_for(device, grads):
    given = inputs(70, 33, "float32")
    x, dy = given["x"], given["dy"]
    both = rms_norm_back(x, dy, np.ones(33, np.float32), device=device)
    host = rms_norm_back(x, dy, grads=grads, device=device)
    resident = rms_norm_back(device.asarray(x), device.asarray(dy), grads=grads)
    for name in ("dx", "dalpha"):
        for got in (host, resident):
            one = getattr(got, name)
            assert one is None if name not in grads else np.asarray(one).tobytes() == getattr(both, name).tobytes()


def test_no_rows_give_zeros(device):
    x = np.empty((0, 5), np.float16)
    got = rms_norm_back(x, x, device=device)
    assert got.dx.shape == (0, 5)
    assert got.dalpha.tolist() == [0] * 5


def test_blocks_of_rows_change_no_bit(device, monkeypatch):
    given = inputs(130, 33, "float32")
    whole = rms_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    monkeypatch.setattr("rowgrad_wgpu.ops.BLOCK_BYTES", 33 * 4 * 20)
    for one, other in zip(rms_norm_back(given["x"], given["dy"], given["alpha"], device=device), whole, strict=True):
        assert one.tobytes() == other.tobytes()


def test_results_go_where_they_are_told(cpu):
    given = inputs(6, 33, "float32")
    dx, dalpha = np.empty((6, 33), np.float32), np.empty(33, np.float32)
    got = rms_norm_back(given["x"], given["dy"], out=(dx, dalpha), device=cpu)
    assert got.dx is dx
    assert got.dalpha is dalpha


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"out": (None, None, None)}, r"\[rms_norm_back\] expected out as dx or as \(dx, dalpha\), got 3"),
        ({"grads": "dbeta"}, r"\[rms_norm_back\] expected grads out of \('dx', 'dalpha'\), got 'dbeta'"),
        ({"eps": -1}, r"\[rms_norm_back\] expected eps to be finite and 0 or more, got -1"),
    ],
)
def test_what_is_refused(cpu, arguments, text):
    x = np.ones((2, 3), np.float32)
    with pytest.raises(ShapeError, match=text):
        rms_norm_back(x, x, device=cpu, **arguments)
