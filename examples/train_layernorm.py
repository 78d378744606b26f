"""A small classifier, linear → LayerNorm → linear → softmax, trained with the device's gradients.

The same training runs once more in float64 with the oracle: the losses have to fall and to agree.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

import rowgrad_wgpu as rg
from rowgrad_wgpu import reference

Matrix = npt.NDArray[np.floating]
NormBackward = Callable[[Matrix, Matrix, Matrix], tuple[Matrix, Matrix, Matrix]]
SoftmaxBackward = Callable[[Matrix, Matrix], Matrix]

STEPS, RATE, EPS = 40, 0.5, 1e-5
SAMPLES, INPUTS, HIDDEN, CLASSES = 64, 8, 24, 3


def train(dtype: npt.DTypeLike, norm_back: NormBackward, softmax_back: SoftmaxBackward) -> list[float]:
    """The loss of each step."""
    random = np.random.default_rng(7)
    data = random.standard_normal((SAMPLES, INPUTS)).astype(dtype)
    target = np.eye(CLASSES, dtype=dtype)[(np.abs(data[:, 0]) + data[:, 1] > 1).astype(int) + (data[:, 2] > 0)]
    first = (random.standard_normal((INPUTS, HIDDEN)) / np.sqrt(INPUTS)).astype(dtype)
    second = (random.standard_normal((HIDDEN, CLASSES)) / np.sqrt(HIDDEN)).astype(dtype)
    alpha, beta = np.ones(HIDDEN, dtype), np.zeros(HIDDEN, dtype)
    losses = []
    for _ in range(STEPS):
        x = data @ first
        xhat = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPS)
        hidden = xhat * alpha + beta
        logits = hidden @ second
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        y = powers / powers.sum(-1, keepdims=True)
        losses.append(float(-(target * np.log(y)).sum() / SAMPLES))

        dlogits = softmax_back(y, -target / y / SAMPLES)
        dhidden = dlogits @ second.T
        dx, dalpha, dbeta = norm_back(x, dhidden, alpha)
        second -= RATE * (hidden.T @ dlogits)
        first -= RATE * (data.T @ dx)
        alpha -= RATE * dalpha
        beta -= RATE * dbeta
    return losses


def oracle_norm_back(x: Matrix, dy: Matrix, alpha: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    result = reference.layer_norm_back(x, dy, alpha, EPS)
    return result.dx, (dy * result.xhat).sum(0), dy.sum(0)


def main() -> None:
    with rg.Device() as device:
        losses = train(
            np.float32,
            lambda x, dy, alpha: rg.layer_norm_back(x, dy, alpha, eps=EPS, device=device),
            lambda y, dy: rg.softmax_back(y, dy, device=device),
        )
        name = device.info.spec
    expected = train(np.float64, oracle_norm_back, reference.softmax_back)
    for step in (0, STEPS // 2, STEPS - 1):
        print(f"step {step:2}: loss {losses[step]:.5f} on {name}, {expected[step]:.5f} in float64")
    assert losses[-1] < losses[0] / 2, "the loss has to fall"
    np.testing.assert_allclose(losses, expected, rtol=1e-3)


if __name__ == "__main__":
    main()
