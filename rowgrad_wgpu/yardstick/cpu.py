"""The yardstick of the CPU device: the formulas in plain NumPy, over whole arrays in float32, and a copy by all cores.

The seed's threads and trees say nothing to a CPU; this is what one would write without this package.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from ..backends.cpu import cores
from ..device import Array, Device
from ..yardstick import Launch


class SeedPort:
    """The formulas in NumPy."""

    def __init__(self, device: Device) -> None:
        self._workers = cores()
        self._pool = ThreadPoolExecutor(self._workers)

    def copy(self, source: Array, target: Array) -> Launch:
        """A share of the bytes for each core."""
        shares = [np.array_split(one._buffer[: source.nbytes], self._workers) for one in (target, source)]

        def launch() -> None:
            for _ in self._pool.map(np.copyto, *shares):
                pass

        return launch

    def softmax_back(self, y: Array, dy: Array, dx: Array) -> Launch:
        """The one-liner."""

        def launch() -> None:
            given, by = _widened(y), _widened(dy)
            _host(dx)[...] = given * (by - (by * given).sum(-1, keepdims=True))

        return launch

    def layer_norm_back(
        self, x: Array, dy: Array, alpha: Array, eps: float, dx: Array, dalpha: Array, dbeta: Array
    ) -> Launch:
        """The formulas, a line each."""

        def launch() -> None:
            by = _widened(dy)
            centred = _widened(x)
            centred = centred - centred.mean(-1, keepdims=True)
            r = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(eps))
            xhat = centred * r
            u = by * _widened(alpha)
            _host(dx)[...] = r * (u - u.mean(-1, keepdims=True) - xhat * (u * xhat).mean(-1, keepdims=True))
            _host(dalpha)[...] = (by * xhat).sum(0)
            _host(dbeta)[...] = by.sum(0)

        return launch

    def clock(self) -> None:
        """The wall clock is the processor's own."""


def _host(array: Array) -> npt.NDArray[Any]:
    """The memory of an Array of the CPU device."""
    memory: npt.NDArray[Any] = array._buffer[: array.nbytes].view(array.dtype).reshape(array.shape)
    return memory


def _widened(array: Array) -> npt.NDArray[np.float32]:
    return _host(array).astype(np.float32, copy=False)
