"""The speed of a device: the seed's speed test and more, against the device's own copy and the seed's algorithm.

A launch is timed by the device's own clock, where it has one, else by the wall clock: the mean of some launches behind
one wait, then the median over rounds. In a round the package's function, the copy and the seed's algorithm take turns,
so that what slows the machine slows all three.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np

from .contract import STORAGE
from .device import Array, Device, DeviceInfo
from .ops import Progress, layer_norm_back, softmax_back
from .yardstick import Clock, Launch, Yardstick, yardstick_of

WARM_UPS: Final = 3
LAUNCHES: Final = 50
"""The seed's: launches before the clock starts, and launches behind one wait, at most."""

SLOW_MS: Final = 5000.0
"""A contender whose launch takes longer has the first round alone."""

PASSES: Final = 3
"""Times that rows × d elements have to cross the memory bus: two operands in, dx out."""

EPS: Final = 1e-5
STORAGES: Final = ("bfloat16", "float32", "float16")
SEED_SHAPES: Final = (("softmax_back", 16384, 1024), ("layer_norm_back", 8192, 768))
TITLES: Final = {"softmax_back": "softmax backward", "layer_norm_back": "layer norm backward"}

COLD_FACTOR: Final = 8
"""Rows of the large cases over the seed's: beyond a GPU's caches."""

SWEEP_D: Final = (32, 128, 512, 2048, 8192, 32768, 131_072)
SWEEP_ODD_D: Final = (127, 2047, 32767)
SWEEP_ELEMENTS: Final = 1 << 24
QUICK_FACTOR: Final = 16
QUICK_D: Final = (128, 2048, 32768)
QUICK_ELEMENTS: Final = 1 << 17
"""A quick run: the seed's rows divided by 16, a few d."""

PATTERN_ELEMENTS: Final = 1 << 20
"""Numbers drawn for an operand; a larger one repeats them."""

RESULT_FIELDS: Final = ("kernel", "dtype", "shape", "ms", "gbs", "share_of_copy", "speedup_over_seed")


@dataclass(frozen=True)
class Effort:
    """How long a case is measured: rounds, and about how many seconds each contender has in a round."""

    rounds: int
    seconds: float


@dataclass(frozen=True)
class Case:
    """What is measured: `group` is `seed`, `cold` or `sweep`."""

    group: str
    kernel: str
    storage: str
    rows: int
    d: int
    effort: Effort

    @property
    def array_bytes(self) -> int:
        """Bytes of one array of rows × d."""
        return self.rows * self.d * STORAGE[self.storage].itemsize


@dataclass(frozen=True)
class Result:
    """A case's figures, medians over the rounds; None where there is nothing to compare with.

    `spread` is the slowest round over the fastest; `launches` went out behind one wait.
    """

    group: str
    kernel: str
    dtype: str
    shape: tuple[int, int]
    ms: float
    gbs: float
    share_of_copy: float | None
    speedup_over_seed: float | None
    copy_gbs: float | None
    spread: float
    launches: int


@dataclass(frozen=True)
class Report:
    """A device's results, by its `own_clock` or the wall's; `left_out` are the cases that its memory did not hold."""

    device: DeviceInfo
    own_clock: bool
    results: list[Result]
    left_out: list[Case]

    @property
    def copy_gbs(self) -> float | None:
        """The device's own copy, bytes read and written: the median over the cases' buffers."""
        found = [one.copy_gbs for one in self.results if one.copy_gbs is not None]
        return statistics.median(found) if found else None

    def as_object(self) -> dict[str, Any]:
        """The report as JSON takes it."""
        results = [{name: getattr(one, name) for name in RESULT_FIELDS} for one in self.results]
        return {"device": asdict(self.device), "copy_gbs": self.copy_gbs, "results": results}


def cases(quick: bool) -> list[Case]:
    """What `rowgrad bench` measures, the seed's own speed test first."""
    return list(_quick_cases() if quick else _full_cases())


def _quick_cases() -> Iterator[Case]:
    effort = Effort(rounds=3, seconds=0.1)
    for storage, (kernel, rows, d) in product(STORAGES, SEED_SHAPES):
        yield Case("seed", kernel, storage, rows // QUICK_FACTOR, d, effort)
    yield from _sweep(("float32",), QUICK_D, QUICK_ELEMENTS, effort)


def _full_cases() -> Iterator[Case]:
    for storage, (kernel, rows, d) in product(STORAGES, SEED_SHAPES):
        yield Case("seed", kernel, storage, rows, d, Effort(rounds=5, seconds=2.0))
    for storage, (kernel, rows, d) in product(STORAGES, SEED_SHAPES):
        yield Case("cold", kernel, storage, rows * COLD_FACTOR, d, Effort(rounds=3, seconds=1.0))
    effort = Effort(rounds=3, seconds=0.3)
    yield from _sweep(("bfloat16", "float32"), sorted(SWEEP_D + SWEEP_ODD_D), SWEEP_ELEMENTS, effort)


def _sweep(storages: Sequence[str], widths: Sequence[int], elements: int, effort: Effort) -> Iterator[Case]:
    """One number of elements in rows of every length."""
    for storage in storages:
        for kernel in TITLES:
            for d in widths:
                yield Case("sweep", kernel, storage, max(1, elements // d), d, effort)


def run(device: Device, listed: Sequence[Case], progress: Progress) -> Report:
    """Measures the cases on a device, one after another; `progress` is told how many are done, and of how many."""
    yardstick = yardstick_of(device)
    clock = yardstick.clock() if yardstick else None
    results: list[Result] = []
    left_out: list[Case] = []
    for index, case in enumerate(listed):
        progress(index, len(listed))
        try:
            results.append(measure(device, case, yardstick, clock))
        except MemoryError:
            left_out.append(case)
    progress(len(listed), len(listed))
    return Report(device.info, clock is not None, results, left_out)


def measure(device: Device, case: Case, yardstick: Yardstick | None, clock: Clock | None = None) -> Result:
    """The figures of one case, by the wall clock if `clock` is None.

    **Raises:** `OutOfMemory`.
    """
    contenders = _contenders(device, case, yardstick)
    timed = partial(_ms_a_launch, device, clock)
    counts = {name: _warmed_up(timed, launch, case.effort.seconds) for name, launch in contenders.items()}
    rounds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(case.effort.rounds):
        for name, launch in contenders.items():
            if turn == 0 or rounds[name][0] < SLOW_MS:
                rounds[name].append(timed(launch, counts[name]))
    return _result(case, rounds, counts["ours"])


def _contenders(device: Device, case: Case, yardstick: Yardstick | None) -> dict[str, Launch]:
    """What takes turns: the package's function, the copy, the seed's algorithm; the last two where they are there."""
    first, second, dx = _arrays(device, case)
    if case.kernel == "softmax_back":
        ours: Launch = partial(softmax_back, first, second, out=dx)
        seed = yardstick.softmax_back(first, second, dx) if yardstick else None
    else:
        alpha = device.asarray(_pattern(case.d, case.storage, 17))
        sums = [device.empty(case.d, np.float32) for _ in range(2)]
        ours = partial(layer_norm_back, first, second, alpha, eps=EPS, out=(dx, *sums))
        seed = yardstick.layer_norm_back(first, second, alpha, EPS, dx, *sums) if yardstick else None
    found = {"ours": ours, "copy": yardstick.copy(first, dx) if yardstick else None, "seed": seed}
    return {name: launch for name, launch in found.items() if launch is not None}


def _arrays(device: Device, case: Case) -> tuple[Array, Array, Array]:
    """The two operands and dx."""
    shape = (case.rows, case.d)
    first, second = (device.asarray(_pattern(case.rows * case.d, case.storage, seed).reshape(shape)) for seed in (7, 9))
    return first, second, device.empty(shape, STORAGE[case.storage])


def _pattern(count: int, storage: str, seed: int) -> np.ndarray:
    """Numbers in ±1, as the seed's speed test has; large arrays repeat, for speed depends on no value."""
    random = np.random.default_rng(seed)
    numbers = random.random(min(count, PATTERN_ELEMENTS), np.float32) * 2 - 1
    return np.resize(numbers.astype(STORAGE[storage]), count)


def _warmed_up(timed: Callable[[Launch, int], float], launch: Launch, seconds: float) -> int:
    """Warms up, once where a launch takes longer than that; how many launches take about `seconds`, 50 at most."""
    ms = timed(launch, 1)
    if ms < seconds * 1e3:
        ms = timed(launch, WARM_UPS - 1)
    return min(LAUNCHES, max(1, round(seconds * 1e3 / ms)))


def _ms_a_launch(device: Device, clock: Clock | None, launch: Launch, count: int) -> float:
    """The mean of `count` launches behind one wait."""

    def run() -> None:
        for _ in range(count):
            launch()

    if clock is not None:
        return clock.ms(run) / count
    begun = time.perf_counter()
    run()
    device.synchronize()
    return (time.perf_counter() - begun) * 1e3 / count


def _result(case: Case, rounds: dict[str, list[float]], launches: int) -> Result:
    ms = {name: statistics.median(found) for name, found in rounds.items()}
    gbs = PASSES * case.array_bytes / ms["ours"] / 1e6
    copy_gbs = 2 * case.array_bytes / ms["copy"] / 1e6 if "copy" in ms else None
    return Result(
        group=case.group,
        kernel=case.kernel,
        dtype=case.storage,
        shape=(case.rows, case.d),
        ms=ms["ours"],
        gbs=gbs,
        share_of_copy=gbs / copy_gbs if copy_gbs else None,
        speedup_over_seed=ms["seed"] / ms["ours"] if "seed" in ms else None,
        copy_gbs=copy_gbs,
        spread=max(rounds["ours"]) / min(rounds["ours"]),
        launches=launches,
    )
