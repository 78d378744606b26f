"""The certificate of a device: every kernel, dtype and hard value against the oracle, within the derived bounds."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from . import bounds
from .bounds import Expected
from .contract import STORAGE, column_additions, storage_name
from .device import AnyArray, Array, Device
from .ops import Either, layer_norm_back, rms_norm_back, softmax_back
from .plan import HARDWARE_GROUP, HARDWARE_TEAM, LONG_D, WEBGPU

SEED_ROWS: Final = 70
SEED_D: Final = 768
SEED_EPS: Final = 1e-5

SHAPES: Final = ((3, 1), (66, 7), (5, 32), (129, 257))
FULL_SHAPES: Final = (
    (1, 2),
    (64, 3),
    (65, 127),
    (129, 513),
    (513, 64),
    (7, 1025),
    (3, 4097),
    (2, 16385),
    (1, 65537),
    (98304, 2),
)

FOLDED_ROWS: Final = WEBGPU.groups_per_dimension * (HARDWARE_GROUP // HARDWARE_TEAM) + 2
"""More rows than a grid has workgroups in one dimension, those of a GPU with several rows each."""


@dataclass(frozen=True)
class Result:
    """One output of one kernel on one input.

    `gap` is the largest error over the largest value and `bound` what it may come to; each element also has a bound of
    its own, and `share` is the largest error as a share of it: `ok` up to 1.
    """

    kernel: str
    dtype: str
    shape: tuple[int, int]
    values: str
    output: str
    gap: float
    bound: float
    share: float
    ok: bool


@dataclass(frozen=True)
class Case:
    """An input: `y` and `x` with the same `dy`, and alpha."""

    values: str
    y: AnyArray
    x: AnyArray
    dy: AnyArray
    alpha: AnyArray


@dataclass(frozen=True)
class Output:
    """What was launched for an output of the check: every `step`-th element of an array, from `first` on."""

    array: Either
    first: int = 0
    step: int = 1

    def values(self, expected: Expected) -> AnyArray:
        """The elements on the host, shaped as what is expected of them."""
        return np.asarray(self.array).reshape(-1)[self.first :: self.step].reshape(expected.value.shape)


def xorshift(count: int, seed: int, amplitude: float) -> npt.NDArray[np.float32]:
    """The seed's generator: xorshift 13/7/17 on 64 bits, modulo 20001, in ±amplitude."""
    state, numbers = seed, np.empty(count, np.int64)
    for index in range(count):
        state ^= (state << 13) & 0xFFFF_FFFF_FFFF_FFFF
        state ^= state >> 7
        state ^= (state << 17) & 0xFFFF_FFFF_FFFF_FFFF
        numbers[index] = state % 20001
    return (numbers.astype(np.float32) / np.float32(10000) - np.float32(1)) * np.float32(amplitude)


def seed_case() -> Case:
    """The seed's data, 70 × 768: its generator's seeds 3, 5, 7, 11 and their amplitudes."""
    count, shape = SEED_ROWS * SEED_D, (SEED_ROWS, SEED_D)
    z = xorshift(count, 3, 3.0).reshape(shape).astype(np.float64)
    powers = np.exp(z - z.max(-1, keepdims=True))
    return Case(
        "seed",
        y=(powers / powers.sum(-1, keepdims=True)).astype(np.float32),
        x=xorshift(count, 7, 2.0).reshape(shape),
        dy=xorshift(count, 5, 1.0).reshape(shape),
        alpha=xorshift(SEED_D, 11, 1.0),
    )


def random_case(rows: int, d: int, dtype: np.dtype, seed: int = 0) -> Case:
    """Normal data: y a softmax, x with a mean, alpha around 1."""
    random = np.random.default_rng([rows, d, seed])
    powers = np.exp(random.standard_normal((rows, d)) * 2)
    return Case(
        "normal",
        y=(powers / powers.sum(-1, keepdims=True)).astype(dtype),
        x=(random.standard_normal((rows, d)) * 2 + 0.5).astype(dtype),
        dy=random.standard_normal((rows, d)).astype(dtype),
        alpha=(1 + random.standard_normal(d) / 2).astype(dtype),
    )


def hard_cases(dtype: np.dtype) -> Iterator[Case]:
    """Values that have broken other libraries, 6 × 33."""
    rows, d = 6, 33
    plain = random_case(rows, d, dtype, seed=1)

    def case(values: str, **changed: npt.ArrayLike) -> Case:
        new = {name: np.broadcast_to(one, getattr(plain, name).shape).astype(dtype) for name, one in changed.items()}
        return replace(plain, values=values, **new)

    column = np.arange(d)
    yield case("one-hot y, constant x", y=(column == 5), x=3.0)
    yield case("zero rows", y=0.0, x=0.0)
    yield case("mean far above the spread", x=1000 + plain.x.astype(np.float32))
    yield case("large x", x=7600 * (1 - 2.0 * (column % 2)))
    yield case("alpha zero here and there", alpha=column % 2, dy=1.0)
    nan_row = plain.x.copy()
    nan_row[2, 7] = np.nan
    nan_y = plain.y.copy()
    nan_y[2, 7] = np.nan
    yield case("a NaN row among good ones", x=nan_row, y=nan_y)
    if storage_name(dtype) != "float16":
        yield case("squares beyond float32", x=plain.x.astype(np.float32) * np.float32(1e30))


def cases(full: bool) -> Iterator[Case]:
    """Every input of the check but the seed's."""
    for dtype in STORAGE.values():
        for rows, d in SHAPES + (FULL_SHAPES if full else ()):
            yield random_case(rows, d, dtype)
        yield from hard_cases(dtype)
    yield random_case(FOLDED_ROWS, 2, STORAGE["float32"])  # in rows of one element dx is 0
    yield random_case(1, LONG_D + 4, STORAGE["float32"])  # more workgroups than one


def check_seed(device: Device) -> list[Result]:
    """The seed's own test."""
    return check_case(device, seed_case())


def check_case(device: Device, case: Case, eps: float = SEED_EPS) -> list[Result]:
    """One input through the host functions, twice: within the bounds, and the same bits again."""
    first, second = (outputs_of(device, case.y, case.x, case.dy, case.alpha, eps) for _ in range(2))
    return [
        _result(case, key, first[key].values(expected), second[key].values(expected), expected)
        for key, expected in expected_of(case, eps).items()
    ]


def expected_of(case: Case, eps: float = SEED_EPS) -> dict[tuple[str, str], Expected]:
    """What an input's outputs have to be, by kernel and output."""
    storage = storage_name(case.x.dtype)
    given = (case.x, case.dy, case.alpha, eps, storage, column_additions(len(case.x)))
    norm, rms = bounds.layer_norm_back(*given), bounds.rms_norm_back(*given)
    return {
        ("softmax_back", "dx"): bounds.softmax_back(case.y, case.dy, storage),
        ("layer_norm_back", "dx"): norm.dx,
        ("layer_norm_back", "mean"): norm.mean,
        ("layer_norm_back", "r"): norm.r,
        ("layer_norm_params", "dalpha"): norm.dalpha,
        ("layer_norm_params", "dbeta"): norm.dbeta,
        ("rms_norm_back", "dx"): rms.dx,
        ("rms_norm_back", "dalpha"): rms.dalpha,
    }


def outputs_of(
    device: Device, y: Either, x: Either, dy: Either, alpha: Either, eps: float = SEED_EPS
) -> dict[tuple[str, str], Output]:
    """Launches all that is checked: arrays come out where arrays went in, Arrays where Arrays did."""
    grads = layer_norm_back(x, dy, alpha, eps=eps, device=device)
    stats = _row_stats(device, x, dy, alpha, eps)
    rms = rms_norm_back(x, dy, alpha, eps=eps, device=device)
    return {
        ("softmax_back", "dx"): Output(softmax_back(y, dy, device=device)),
        ("layer_norm_back", "dx"): Output(grads.dx),
        ("layer_norm_back", "mean"): Output(stats, 0, 2),
        ("layer_norm_back", "r"): Output(stats, 1, 2),
        ("layer_norm_params", "dalpha"): Output(grads.dalpha),
        ("layer_norm_params", "dbeta"): Output(grads.dbeta),
        ("rms_norm_back", "dx"): Output(rms.dx),
        ("rms_norm_back", "dalpha"): Output(rms.dalpha),
    }


def _row_stats(device: Device, x: Either, dy: Either, alpha: Either, eps: float) -> Array:
    """The row statistics as the kernel `layer_norm_back` leaves them."""
    stats = device.empty((x.shape[0], 2), np.float32)
    device.launch(
        "layer_norm_back",
        x=device.asarray(x),
        dy=device.asarray(dy),
        alpha=device.asarray(alpha),
        eps=device.asarray(np.array([eps], np.float32)),
        dx=device.empty(x.shape, x.dtype),
        stats=stats,
    )
    return stats


def _result(case: Case, key: tuple[str, str], got: AnyArray, again: AnyArray, expected: Expected) -> Result:
    share = bounds.share(got, expected)
    if got.tobytes() != again.tobytes() and not _same_but_nan(got, again):
        share = float("inf")
    return Result(
        kernel=key[0],
        dtype=storage_name(case.x.dtype),
        shape=(case.x.shape[0], case.x.shape[1]),
        values=case.values,
        output=key[1],
        gap=bounds.gap(got, expected),
        bound=bounds.room(expected),
        share=share,
        ok=share <= 1,
    )


def _same_but_nan(got: AnyArray, again: AnyArray) -> bool:
    return bool(np.array_equal(got.astype(np.float32), again.astype(np.float32), equal_nan=True))
