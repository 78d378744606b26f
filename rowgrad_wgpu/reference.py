"""The oracle: every kernel in float64 NumPy, written from the formulas, one line of algebra a line of code.

Same names as the kernels. Inputs are `(..., d)` of any real dtype and count as exactly the numbers they hold.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


class LayerNorm(NamedTuple):
    """`layer_norm_back`'s results and what lies between: per row `mean` and `r`, per element `xhat`.

    `rms_norm_back`'s too, whose mean is 0.
    """

    dx: Doubles
    mean: Doubles
    r: Doubles
    xhat: Doubles


def softmax_back(y: npt.ArrayLike, dy: npt.ArrayLike) -> Doubles:
    """dx = y (dy − ⟨dy, y⟩) over the last axis."""
    y, dy = _doubles(y), _doubles(dy)
    with np.errstate(invalid="ignore", over="ignore"):
        inner = (dy * y).sum(-1, keepdims=True)
        dx: Doubles = y * (dy - inner)
    return dx


def layer_norm_stats(x: npt.ArrayLike, eps: float) -> tuple[Doubles, Doubles]:
    """The mean and r = (var + eps)^-½ of each row."""
    x = _doubles(x)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        mean = x.mean(-1, keepdims=True)
        mean += (x - mean).mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return mean, 1 / np.sqrt(variance + eps)


def layer_norm_back(x: npt.ArrayLike, dy: npt.ArrayLike, alpha: npt.ArrayLike, eps: float) -> LayerNorm:
    """dx = r (u − mean(u) − x̂ mean(u x̂)), x̂ = (x − mean) r, u = dy α, over the last axis."""
    x, dy, alpha = _doubles(x), _doubles(dy), _doubles(alpha)
    mean, r = layer_norm_stats(x, eps)
    with np.errstate(invalid="ignore", over="ignore"):
        xhat = (x - mean) * r
        u = dy * alpha
        dx = r * (u - u.mean(-1, keepdims=True) - xhat * (u * xhat).mean(-1, keepdims=True))
    return LayerNorm(dx, mean, r, xhat)


def rms_norm_back(x: npt.ArrayLike, dy: npt.ArrayLike, alpha: npt.ArrayLike, eps: float) -> LayerNorm:
    """dx = r (u − x̂ mean(u x̂)), x̂ = x r, r = (mean(x²) + eps)^-½, u = dy α, over the last axis."""
    x, dy, alpha = _doubles(x), _doubles(dy), _doubles(alpha)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        r = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
        xhat = x * r
        u = dy * alpha
        dx = r * (u - xhat * (u * xhat).mean(-1, keepdims=True))
    return LayerNorm(dx, np.zeros_like(r), r, xhat)


def layer_norm_params(xhat: npt.ArrayLike, dy: npt.ArrayLike, chunks: int, per: int) -> Doubles:
    """partial[c] = (Σ dy x̂, Σ dy) over the rows of chunk c; `xhat` and `dy` are `(rows, d)`."""
    xhat, dy = _doubles(xhat), _doubles(dy)
    partial = np.zeros((chunks, 2, dy.shape[-1]))
    for chunk in range(chunks):
        rows = slice(chunk * per, (chunk + 1) * per)
        partial[chunk, 0] = (dy[rows] * xhat[rows]).sum(0)
        partial[chunk, 1] = dy[rows].sum(0)
    return partial


def sum_partials(partial: npt.ArrayLike) -> tuple[Doubles, Doubles]:
    """dα and dβ from the partials `(chunks, 2, d)`."""
    partial = _doubles(partial)
    return partial[:, 0].sum(0), partial[:, 1].sum(0)


def _doubles(array: npt.ArrayLike) -> Doubles:
    return np.asarray(array).astype(np.float64)
