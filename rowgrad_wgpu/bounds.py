"""How far a right result may lie from the oracle: derived from the roundings, stated here once.

Every bound is a number of roundings × 2^-24 × the magnitudes that were rounded, taken from the oracle, to first order
(Higham, "Accuracy and Stability of Numerical Algorithms", chapters 3 and 4), plus the rounding to the storage type.
What the bounds assume of a device is in the constants below; all back ends here keep to them. Where a float32
intermediate overflows no bound is claimed; where the oracle itself is not finite the result must not be either.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from . import reference
from .reference import Doubles

UNIT: Final = 2.0**-24
"""The unit roundoff of float32."""

STORAGE_UNIT: Final = {"float32": UNIT, "float16": 2.0**-11, "bfloat16": 2.0**-8}
STORAGE_TINY: Final = {"float32": 2.0**-126, "float16": 2.0**-25, "bfloat16": 2.0**-126}
"""Absolute error of a stored number near 0: half the spacing of subnormals, or a flush to zero."""

FLUSH: Final = 2.0**-126
"""A device may take float32 subnormals for 0, in and out."""

STORED_LARGEST: Final = {"float32": 2.0**127, "float16": 65520.0, "bfloat16": 2.0**127}
LANES: Final = 32
"""A row is summed in at least this many partial sums: eight threads, four elements at a time."""

JOINING: Final = 16
"""Roundings that join a row's partial sums, at most."""

DIVISION: Final = 5
"""Units of error of a division: WGSL grants 2.5 ULP, each of up to two units."""

ROOT: Final = 4 + DIVISION
"""Units of error of a square root: WGSL has it as 1 over an inverse square root, which is granted 2 ULP."""

SCALED: Final = 2.0**120
"""Where a variance is above this the row is scaled, and eps by way of its root: two more roundings of it."""


@dataclass(frozen=True)
class Expected:
    """What the oracle says and how far off a right answer may be, element by element."""

    value: Doubles
    bound: Doubles


def gap(got: npt.NDArray[Any], expected: Expected) -> float:
    """The largest error over the largest value, as the seed's test measures it."""
    finite = np.isfinite(expected.value)
    if not finite.any():
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got[finite].astype(np.float64) - expected.value[finite])
    return float(np.nan_to_num(error, nan=np.inf).max()) / _top(expected)


def room(expected: Expected) -> float:
    """The largest bound over the largest value: what `gap` may come to."""
    claimed = np.isfinite(expected.value) & np.isfinite(expected.bound)
    return float(expected.bound[claimed].max(initial=0.0)) / _top(expected)


def share(got: npt.NDArray[Any], expected: Expected) -> float:
    """The largest error as a share of its own bound: right up to 1; Inf where NaN came for a number."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        numbers = got.astype(np.float64)
        error = np.abs(numbers - expected.value)
        part = np.where(error == 0, 0.0, error / expected.bound)
    claimed = np.isfinite(expected.value) & np.isfinite(expected.bound)
    unclaimed = np.where(np.isnan(expected.bound) & np.isfinite(numbers), np.inf, 0.0)
    part = np.where(claimed, np.nan_to_num(part, nan=np.inf, posinf=np.inf), unclaimed)
    return float(part.max(initial=0.0))


def _top(expected: Expected) -> float:
    finite = np.isfinite(expected.value)
    return max(float(np.abs(expected.value[finite]).max(initial=0.0)), 1e-12)


def row_roundings(d: int) -> int:
    """Roundings on the way of one term through a row's sum.

    A row that is cut into parts is joined twice, but its partial sums are shorter by more than that: a lane adds its
    share of one part, and then its share of the sums of all parts.
    """
    return -(-d // LANES) + JOINING


def softmax_back(y: npt.NDArray[Any], dy: npt.NDArray[Any], storage: str) -> Expected:
    """dx = y (dy − ⟨dy, y⟩): the inner product's error times y, three roundings of the rest, the store."""
    value = reference.softmax_back(y, dy)
    size_y, size_dy = _magnitude(y), _magnitude(dy)
    roundings = row_roundings(y.shape[-1]) + 1
    with np.errstate(invalid="ignore", over="ignore"):
        terms = (size_y * size_dy).sum(-1, keepdims=True)
        lost = FLUSH * (1 + y.shape[-1] + (size_y + size_dy).sum(-1, keepdims=True))
        bound = size_y * ((roundings + 3) * UNIT * terms + 3 * UNIT * size_dy + lost) + FLUSH * (1 + size_dy + terms)
    return _stored(value, bound, storage)


@dataclass(frozen=True)
class LayerNormExpected:
    """What `layer_norm_back` and what follows it have to give."""

    dx: Expected
    mean: Expected
    r: Expected
    dalpha: Expected
    dbeta: Expected


def layer_norm_back(
    x: npt.NDArray[Any], dy: npt.NDArray[Any], alpha: npt.NDArray[Any], eps: float, storage: str, sums: int
) -> LayerNormExpected:
    """The bounds of a LayerNorm's gradients, of `x` and `dy` as `(rows, d)`.

    `sums` is the number of additions in a column's sum: the rows of a chunk and the chunks.
    The mean is found twice, the second time of the centred row, so what the first missed (`first`) comes in squared.
    """
    truth = reference.layer_norm_back(x, dy, alpha, eps)
    n = row_roundings(x.shape[-1]) + DIVISION
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        centred = np.abs(x.astype(np.float64) - truth.mean)
        first = (n + 1) * UNIT * _row_mean(_magnitude(x))
        mean_error = (n + 1) * UNIT * (_row_mean(centred) + first) + FLUSH
        variance = (centred**2).mean(-1, keepdims=True)
        square_error = (n + 4) * UNIT * (variance + 2 * first**2) + FLUSH
        r_share = _r_share(variance, square_error, eps)
        offset = UNIT * (2 * centred + first) + mean_error + FLUSH
        xhat_error = truth.r * offset + np.abs(truth.xhat) * (r_share + 2 * UNIT) + FLUSH
        dx = _dx(truth, dy, alpha, n, r_share, xhat_error)
        stats_error = UNIT * np.abs(truth.mean) + mean_error
        kept_error = truth.r * (UNIT * (centred + stats_error) + stats_error + FLUSH)
        kept_error += np.abs(truth.xhat) * (r_share + 3 * UNIT) + FLUSH
        dalpha = _dalpha(truth, dy, kept_error, sums)
        dbeta = Expected(dy.astype(np.float64).sum(0), (sums * UNIT * _magnitude(dy) + FLUSH).sum(0))
    return LayerNormExpected(
        dx=_stored(truth.dx, dx, storage),
        mean=Expected(truth.mean, stats_error + FLUSH),
        r=Expected(truth.r, truth.r * r_share),
        dalpha=dalpha,
        dbeta=dbeta,
    )


@dataclass(frozen=True)
class RMSNormExpected:
    """What `rms_norm_back` and what follows it have to give."""

    dx: Expected
    r: Expected
    dalpha: Expected


def rms_norm_back(
    x: npt.NDArray[Any], dy: npt.NDArray[Any], alpha: npt.NDArray[Any], eps: float, storage: str, sums: int
) -> RMSNormExpected:
    """The bounds of an RMSNorm's gradients; `sums` as in `layer_norm_back`.

    The squares are of x as it is, so their errors are those of the products, the sum and the division alone.
    """
    truth = reference.rms_norm_back(x, dy, alpha, eps)
    n = row_roundings(x.shape[-1]) + DIVISION
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        square = (x.astype(np.float64) ** 2).mean(-1, keepdims=True)
        r_share = _r_share(square, (n + 1) * UNIT * square + 2 * FLUSH, eps)
        xhat_error = np.abs(truth.xhat) * (r_share + UNIT) + FLUSH
        dx = _dx(truth, dy, alpha, n, r_share, xhat_error, centred=False)
        return RMSNormExpected(
            dx=_stored(truth.dx, dx, storage),
            r=Expected(truth.r, truth.r * r_share),
            dalpha=_dalpha(truth, dy, xhat_error, sums),
        )


def _r_share(square: Doubles, square_error: Doubles, eps: float) -> Doubles:
    """The error of r = (square + eps)^-½ as a share of it.

    None where an Inf in the row makes r 0. Nothing is claimed where r is infinite, nor where the error may be all there
    is: of squares that float32 takes for 0.
    """
    whole = square + eps
    square_error = square_error + np.where(whole < SCALED, 0, 2 * (ROOT + 1) * UNIT * eps)
    share = 0.5 * square_error / whole + (ROOT + DIVISION + 2) * UNIT
    share = np.where(square_error < whole, share, np.inf)
    return np.select([np.isinf(square), whole > 0], [np.zeros_like(share), share], np.nan)


def _dalpha(truth: reference.LayerNorm, dy: npt.NDArray[Any], xhat_error: Doubles, sums: int) -> Expected:
    """Σ dy x̂ of each column, by the error of x̂ and of `sums` additions."""
    size_dy, size_xhat = _magnitude(dy), np.abs(truth.xhat)
    error = (size_dy * xhat_error + (sums + 2) * UNIT * size_dy * size_xhat + FLUSH * (1 + size_xhat)).sum(0)
    value = (dy * truth.xhat).sum(0)
    return Expected(value, np.where(np.isfinite(value) & np.isnan(error), np.inf, error))


def _dx(
    truth: reference.LayerNorm,
    dy: npt.NDArray[Any],
    alpha: npt.NDArray[Any],
    n: int,
    r_share: Doubles,
    xhat_error: Doubles,
    centred: bool = True,
) -> Doubles:
    """The error of dx = r (u − mean(u) − x̂ mean(u x̂)), term by term; mean(u) only where the layer is `centred`."""
    u = _magnitude(dy) * _magnitude(alpha)
    xhat = np.abs(truth.xhat)
    signed = (dy.astype(np.float64) * alpha.astype(np.float64) * truth.xhat).mean(-1, keepdims=True)
    u_mean, ux_mean = _row_mean(u) * centred, _row_mean(u * xhat)
    ux_error = (n + 2) * UNIT * ux_mean + _row_mean(u * xhat_error)
    inside = (
        5 * UNIT * (u + u_mean + xhat * np.abs(signed))
        + (n + 1) * UNIT * u_mean
        + xhat_error * np.abs(signed)
        + xhat * ux_error
    )
    lost = FLUSH * (1 + _magnitude(dy) + _magnitude(alpha))
    flushed = FLUSH * (1 + truth.r) + truth.r * (lost + _row_mean(lost) + xhat * _row_mean(lost * (1 + xhat)))
    bound: Doubles = truth.r * inside + np.abs(truth.dx) * (r_share + UNIT) + flushed
    return bound


def rounded(expected: Expected, storage: str) -> Expected:
    """The same where what was float32 has been rounded to a storage type since."""
    return _stored(expected.value, expected.bound, storage)


def _stored(value: Doubles, bound: Doubles, storage: str) -> Expected:
    """Adds the rounding to the storage type; claims nothing where it may overflow or float32 has."""
    with np.errstate(invalid="ignore", over="ignore"):
        whole = bound + (np.abs(value) + bound) * STORAGE_UNIT[storage] + STORAGE_TINY[storage]
        claimed = np.abs(value) + whole < STORED_LARGEST[storage]
    return Expected(value, np.where(np.isfinite(value) & claimed, whole, np.where(np.isfinite(value), np.inf, np.nan)))


def _magnitude(array: npt.NDArray[Any]) -> Doubles:
    return np.abs(array.astype(np.float64))


def _row_mean(array: Doubles) -> Doubles:
    mean: Doubles = array.mean(-1, keepdims=True)
    return mean
