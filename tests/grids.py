"""Shapes and inputs that the tests of all kernels share; each odd number has broken somebody's kernel."""

from itertools import product

import numpy as np
import pytest

from rowgrad_wgpu import bounds, layer_norm_back, plan, softmax_back
from rowgrad_wgpu.contract import KERNELS, STORAGE, Kernel, chunk_count, column_additions
from rowgrad_wgpu.device import Device
from rowgrad_wgpu.plan import (
    CELL,
    SOFTWARE_KEPT,
    SOFTWARE_TEAM,
    Extent,
    Limits,
    Variant,
    choose_variant,
    one_pass,
    split,
)

# The last d whose rows a software adapter keeps, and its neighbours.
KEPT_D = SOFTWARE_TEAM * SOFTWARE_KEPT

ROWS = (0, 1, 2, 37, 63, 64, 65, 199, 511, 512, 513, 4096, 65535, 65536, 65537, 98304)
FEW_D = (3, 4)
ALL_D = (
    *(1, 2, 3, 7, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 513, 760, 768, 769),
    *(KEPT_D - CELL, KEPT_D - 1, KEPT_D, KEPT_D + 1, 1500, 2000, 4097, 8192, 16384, 32768, 65537, 131072),
)
NARROW_D = (1, 2, 3, 6, 7, 32, 33, 129, 762, 768, 769, KEPT_D - 1, KEPT_D, KEPT_D + 1, 16385)
# A LayerNorm of long rows takes seconds to compile, so some of each kind are left to the long suite.
SLOW_LONG_D = (255, 513, 760, KEPT_D - CELL, KEPT_D - 1, KEPT_D + 1, 2000, 8192, 16384)
LAYER_NORM_D = [pytest.param(d, marks=pytest.mark.slow if d in SLOW_LONG_D else ()) for d in ALL_D]
LAYER_NORM_D_IN_16_BITS = [
    pytest.param(storage, d, marks=pytest.mark.slow if d > 256 and (storage, d % 4) != ("bfloat16", 0) else ())
    for storage, d in product(("float16", "bfloat16"), NARROW_D)
]

SLOW_ELEMENTS = 20_000
SLOW_D = 300  # longer rows take seconds to compile on OpenGL
HOST_GPU_ELEMENTS = 40_000
HOST_GPU_LANES = 32  # a row costs at least a warp

# Where rows are cut into parts, for devices that take small shapes only.
SHORT_D = 512
SHORT_PART = 64


def small_where_slow(device: Device, rows: int, d: int) -> None:
    """OpenGL, SwiftShader, and the host GPU, whose threads are fibers, run small shapes only."""
    slow = device.info.api == "gl" or "SwiftShader" in device.info.name
    if slow and (rows * d > SLOW_ELEMENTS or d > SLOW_D):
        pytest.skip(f"{device.info.name} on {device.info.api} runs small shapes only, not {rows}×{d}")
    if device.info.backend == "cuda" and rows * max(d, HOST_GPU_LANES) > HOST_GPU_ELEMENTS:
        pytest.skip(f"the host GPU runs small shapes only, not {rows}×{d}")


def rounds_as_written(device: Device) -> bool:
    """Whether all kernels round where their texts do. A GPU's compiler may contract or reorder one otherwise than the
    next; those of software adapters and of the host GPU were seen not to."""
    return device.info.kind in ("software", "cpu") or device.info.backend == "cuda"


def assert_alike(device: Device, one: np.ndarray, other: np.ndarray, bound: np.ndarray) -> None:
    """What two kernels give of one thing: the same bits where both are rounded as written, and within both bounds."""
    if rounds_as_written(device):
        assert one.tobytes() == other.tobytes()
    assert_within(one, other, bound)


def assert_within(one: np.ndarray, other: np.ndarray, bound: np.ndarray) -> None:
    """Two answers that may each lie `bound` off."""
    assert one.shape == other.shape
    assert np.all(np.abs(one.astype(np.float64) - other.astype(np.float64)) <= 2 * bound)


def bounds_of_launches(given: dict[str, np.ndarray], storage: str, additions: int) -> dict[str, np.ndarray]:
    """The bounds of what a LayerNorm's kernels write, by buffer; of `partial` in as many additions as a chunk has."""
    expected = bounds.layer_norm_back(given["x"], given["dy"], given["alpha"], 1e-5, storage, additions)
    return {
        "dx": expected.dx.bound,
        "stats": np.concatenate([expected.mean.bound, expected.r.bound], -1),
        "partial": np.stack([expected.dalpha.bound, expected.dbeta.bound]),
    }


def whole(rows: int, d: int, chunks: int | None = None) -> Extent:
    """All rows of an array, in so many chunks or in those of the contract."""
    return plan.whole(rows, d) if chunks is None else Extent(rows, d, chunks, 0, rows)


def takes(kernel: Kernel, storage: str, extent: Extent, limits: Limits, aligned: bool = True) -> bool:
    """Whether a kernel is for such rows: one pass for what a thread can keep, parts for rows that share no word."""
    if "sums" in kernel.parts:
        return one_pass(storage, extent, limits, aligned)
    return kernel.phases == 1 or limits.pointers or storage == "float32" or extent.d % 2 == 0


def variants_of(kernel: Kernel, widths: tuple[int, ...], limits: Limits, aligned: bool = True) -> list[Variant]:
    """Every variant that these widths come to, in a fixed order."""
    found: dict[Variant, None] = {}
    for storage, d in product(STORAGE, widths):
        if not takes(kernel, storage, whole(64, d), limits, aligned):
            continue
        alphas = {storage, "float32"} if any(buffer.element == "A" for buffer in kernel.buffers) else {storage}
        for alpha in sorted(alphas):
            found[choose_variant(kernel, storage, alpha, whole(64, d), limits, aligned)] = None
    return list(found)


def suffix(device: Device, storage: str, rows: int, d: int) -> str:
    """What the kernels for such rows are called behind their stem: `_parts` where few long ones are cut."""
    return "_parts" if split(storage, whole(rows, d), device.limits) > 1 else ""


def launch(device: Device, kernel: str, given: dict[str, np.ndarray], parts: int = 1) -> dict[str, np.ndarray]:
    """What a kernel writes, launched by its name on the contract's buffers, but for its own sums."""
    first = given[KERNELS[kernel].buffers[0].name]
    lengths = {"rows": first.shape[0], "d": first.shape[1], "chunks": chunk_count(first.shape[0]), "parts": parts}
    buffers = {}
    for buffer in KERNELS[kernel].buffers:
        shape = [axis if isinstance(axis, int) else lengths[axis] for axis in buffer.axes]
        if buffer.written:
            buffers[buffer.name] = device.empty(shape, first.dtype if buffer.element == "F" else np.float32)
        else:
            buffers[buffer.name] = device.asarray(given[buffer.name])
    device.launch(kernel, **buffers)
    outputs = [buffer.name for buffer in KERNELS[kernel].outputs if buffer.name != "sums"]
    return {name: buffers[name].numpy() for name in outputs}


def inputs(rows: int, d: int, storage: str, seed: int = 0) -> dict[str, np.ndarray]:
    """y a softmax, x with a mean, dy and alpha normal."""
    random = np.random.default_rng([rows, d, seed])
    dtype = STORAGE[storage]
    y = np.exp(random.standard_normal((rows, d), np.float32) * 2)
    if rows:
        y /= y.sum(-1, keepdims=True)
    return {
        "y": y.astype(dtype),
        "x": (random.standard_normal((rows, d), np.float32) * 2 + 0.5).astype(dtype),
        "dy": random.standard_normal((rows, d), np.float32).astype(dtype),
        "alpha": (1 + random.standard_normal(d, np.float32) / 2).astype(dtype),
    }


def least_sums(d: int) -> tuple[np.ndarray, np.ndarray]:
    """y and dy whose inner product loses what it can: half the spacing of 1 is lost wherever it is added to the 1."""
    dy = np.full((min(d, 64), d), bounds.UNIT, np.float32)
    np.fill_diagonal(dy, 1)
    return np.ones_like(dy), dy


def check_softmax(device: Device, y: np.ndarray, dy: np.ndarray, storage: str) -> np.ndarray:
    dx = softmax_back(y, dy, device=device)
    assert dx.dtype == y.dtype
    assert dx.shape == y.shape
    assert bounds.share(dx, bounds.softmax_back(y, dy, storage)) <= 1
    return dx


def check_layer_norm(device: Device, given: dict[str, np.ndarray], storage: str, eps: float = 1e-5) -> None:
    x, dy, alpha = given["x"], given["dy"], given["alpha"]
    got = layer_norm_back(x, dy, alpha, eps=eps, device=device)
    rows = x.shape[0]
    expected = bounds.layer_norm_back(x, dy, alpha, eps, storage, column_additions(rows))
    assert (got.dx.dtype, got.dx.shape) == (x.dtype, x.shape)
    for name, shape in (("dalpha", x.shape[-1:]), ("dbeta", x.shape[-1:])):
        assert (getattr(got, name).dtype, getattr(got, name).shape) == (np.float32, shape)
    for name in ("dx", "dalpha", "dbeta"):
        assert bounds.share(getattr(got, name), getattr(expected, name)) <= 1, name
