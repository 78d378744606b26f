"""What `rowgrad bench` measures against: the literal port of the seed's algorithm, and a copy. Nothing else uses it.

One module for each back end, imported when it is asked for.
"""

import importlib.util
from collections.abc import Callable
from typing import Protocol

from ..device import Array, Device

Launch = Callable[[], object]
"""One launch, everything about it made beforehand; it returns without waiting."""


class Clock(Protocol):
    """A device's own clock."""

    def ms(self, run: Callable[[], None]) -> float:
        """Milliseconds that the device took over what `run` queues; returns when it is done."""


class Yardstick(Protocol):
    """The seed's algorithm on a back end, on Arrays of `(rows, d)`; None where the port does not take them."""

    def copy(self, source: Array, target: Array) -> Launch:
        """A copy by the device's own means, from one Array to another of its size."""

    def softmax_back(self, y: Array, dy: Array, dx: Array) -> Launch | None:
        """dx = y (dy − ⟨dy, y⟩)."""

    def layer_norm_back(
        self, x: Array, dy: Array, alpha: Array, eps: float, dx: Array, dalpha: Array, dbeta: Array
    ) -> Launch | None:
        """dx, dα and dβ: the kernel for dx, the kernel for the partials, their sum in chunk order."""

    def clock(self) -> Clock | None:
        """The device's own clock, None where it has none that runs."""


def yardstick_of(device: Device) -> Yardstick | None:
    """The yardstick of a device; None if its back end has none."""
    name = f"{__package__}.{device.info.backend}"
    if importlib.util.find_spec(name) is None:
        return None
    module = importlib.import_module(name)
    yardstick: Yardstick = module.SeedPort(device)
    return yardstick
