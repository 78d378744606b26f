"""The contract: storage types, one record per kernel, the chunk rule.

A record names every buffer of a kernel with its axes, its element type and whether it is written.
The facade checks and allocates from it, every back end binds from it, and the tests hold the shader
texts to it, so this file is the only place where a buffer layout is written down in Python.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import ml_dtypes
import numpy as np

from .errors import DTypeError

Axis = str | int
"""A named length (`rows`, `d`, `chunks`) or a fixed one."""

STORAGE: Final[Mapping[str, np.dtype]] = MappingProxyType(
    {
        "float32": np.dtype(np.float32),
        "float16": np.dtype(np.float16),
        "bfloat16": np.dtype(ml_dtypes.bfloat16),
    }
)
"""The storage types F by name; arithmetic and sums are float32 whatever F is."""

_NAMES: Final = {dtype: name for name, dtype in STORAGE.items()}

CHUNK_ROWS: Final = 64
MOST_CHUNKS: Final = 256


def storage_name(dtype: object) -> str:
    """The name of a storage type: `float32`, `float16` or `bfloat16`.

    **Raises:** `DTypeError` for any other dtype, by name.
    """
    try:
        wanted = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError as error:
        raise DTypeError(f"expected a NumPy dtype, got {dtype!r}") from error
    if wanted in _NAMES:
        return _NAMES[wanted]
    raise DTypeError(
        f"expected float32, float16 or bfloat16 (ml_dtypes.bfloat16) in native byte order, got {wanted};"
        " convert with .astype() first, nothing is cast silently"
    )


def chunk_count(rows: int) -> int:
    """How many partial rows the parameter gradients of `rows` rows have: clamp(⌈rows / 64⌉, 1, 256).

    The rule depends on the rows alone, never on the device.
    """
    return min(max(-(-rows // CHUNK_ROWS), 1), MOST_CHUNKS)


def column_additions(rows: int) -> int:
    """How many additions a column's sum over `rows` rows has one after another: those of a chunk, then the chunks."""
    chunks = chunk_count(rows)
    return chunks + -(-rows // chunks)


@dataclass(frozen=True)
class Buffer:
    """A buffer of a kernel: its name, axes, element type and access.

    `element` is `F` (the storage type), `A` (alpha's: F or float32) or `float32`.
    """

    name: str
    axes: tuple[Axis, ...]
    element: str
    written: bool = False


@dataclass(frozen=True)
class Kernel:
    """A kernel's record.

    `meta` are the uint32 fields of the contract; `window` the fields that follow them and differ from dispatch to
    dispatch: where a back end can bind only a part of an array at a time, which rows or chunks it holds, and at which
    element of the bindings they begin. `parts` are the folders or files of `shaders/lib`. A kernel of several `phases`
    cuts its rows into parts; each phase is a dispatch of its own, and reads in `sums` what those before it left there.
    """

    name: str
    summary: str
    buffers: tuple[Buffer, ...]
    meta: tuple[str, ...]
    window: tuple[str, ...]
    parts: tuple[str, ...]
    phases: int = 1

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """The buffers that are written."""
        return tuple(buffer for buffer in self.buffers if buffer.written)


_ROWS: Final = ("rows", "d")
_PART_META: Final = ("d", "part", "parts")
_CHUNK_WINDOW: Final = (
    *("first_row", "row_count", "first_chunk", "chunk_count"),
    *("origin", "stats_origin", "partial_origin"),
)

_RECORDS: Final = (
    Kernel(
        name="softmax_back",
        summary="dx = y (dy − ⟨dy, y⟩) per row",
        buffers=(
            Buffer("y", _ROWS, "F"),
            Buffer("dy", _ROWS, "F"),
            Buffer("dx", _ROWS, "F", written=True),
        ),
        meta=("d",),
        window=("row_count", "origin"),
        parts=("row", "quads", "team", "store"),
    ),
    Kernel(
        name="layer_norm_back",
        summary="dx = r (u − mean(u) − x̂ mean(u x̂)) per row, and the row's (μ, r)",
        buffers=(
            Buffer("x", _ROWS, "F"),
            Buffer("dy", _ROWS, "F"),
            Buffer("alpha", ("d",), "A"),
            Buffer("eps", (1,), "float32"),
            Buffer("dx", _ROWS, "F", written=True),
            Buffer("stats", ("rows", 2), "float32", written=True),
        ),
        meta=("d",),
        window=("row_count", "origin", "stats_origin"),
        parts=("row", "quads", "team", "statistics", "gradient", "dx_only", "alpha", "store"),
    ),
    Kernel(
        name="softmax_back_parts",
        summary="softmax_back of rows cut into parts, for few long ones",
        buffers=(
            Buffer("y", _ROWS, "F"),
            Buffer("dy", _ROWS, "F"),
            Buffer("dx", _ROWS, "F", written=True),
            Buffer("sums", ("rows", "parts", 4), "float32", written=True),
        ),
        meta=_PART_META,
        window=("phase", "row_count", "origin", "sums_origin"),
        parts=("row", "quads", "part", "team", "store"),
        phases=2,
    ),
    Kernel(
        name="layer_norm_back_parts",
        summary="layer_norm_back of rows cut into parts, for few long ones",
        buffers=(
            Buffer("x", _ROWS, "F"),
            Buffer("dy", _ROWS, "F"),
            Buffer("alpha", ("d",), "A"),
            Buffer("eps", (1,), "float32"),
            Buffer("dx", _ROWS, "F", written=True),
            Buffer("stats", ("rows", 2), "float32", written=True),
            Buffer("sums", ("rows", "parts", 3, 4), "float32", written=True),
        ),
        meta=_PART_META,
        window=("phase", "row_count", "origin", "stats_origin", "sums_origin"),
        parts=(
            *("row", "quads", "part", "team", "statistics", "part_statistics"),
            *("gradient", "dx_only", "alpha", "store"),
        ),
        phases=4,
    ),
    Kernel(
        name="layer_norm_stats_parts",
        summary="layer_norm_stats of rows cut into parts, for few long ones",
        buffers=(
            Buffer("x", _ROWS, "F"),
            Buffer("eps", (1,), "float32"),
            Buffer("stats", ("rows", 2), "float32", written=True),
            Buffer("sums", ("rows", "parts", 2, 4), "float32", written=True),
        ),
        meta=_PART_META,
        window=("phase", "row_count", "origin", "stats_origin", "sums_origin"),
        parts=("row", "quads", "part", "team", "statistics", "part_statistics"),
        phases=3,
    ),
    Kernel(
        name="layer_norm_grads",
        summary="layer_norm_back and layer_norm_params in one read of x and dy",
        buffers=(
            Buffer("x", _ROWS, "F"),
            Buffer("dy", _ROWS, "F"),
            Buffer("alpha", ("d",), "A"),
            Buffer("eps", (1,), "float32"),
            Buffer("dx", _ROWS, "F", written=True),
            Buffer("stats", ("rows", 2), "float32", written=True),
            Buffer("partial", ("chunks", 2, "d"), "float32", written=True),
        ),
        meta=("rows", "d", "per"),
        window=_CHUNK_WINDOW,
        parts=("row", "quads", "team", "statistics", "gradient", "alpha", "store", "sums", "partial", "turns"),
    ),
    Kernel(
        name="layer_norm_stats",
        summary="the row's (μ, r) alone, for when dx is not wanted",
        buffers=(
            Buffer("x", _ROWS, "F"),
            Buffer("eps", (1,), "float32"),
            Buffer("stats", ("rows", 2), "float32", written=True),
        ),
        meta=("d",),
        window=("row_count", "origin", "stats_origin"),
        parts=("row", "quads", "team", "statistics"),
    ),
    Kernel(
        name="layer_norm_params",
        summary="per chunk of rows and column, Σ dy x̂ and Σ dy",
        buffers=(
            Buffer("x", _ROWS, "F"),
            Buffer("dy", _ROWS, "F"),
            Buffer("stats", ("rows", 2), "float32"),
            Buffer("partial", ("chunks", 2, "d"), "float32", written=True),
        ),
        meta=("rows", "d", "per"),
        window=_CHUNK_WINDOW,
        parts=("partial", "turns"),
    ),
    Kernel(
        name="rms_norm_back",
        summary="dx = r (u − x̂ mean(u x̂)) per row, and the row's (0, r): an RMSNorm's, whose mean is held at 0",
        buffers=(
            Buffer("x", _ROWS, "F"),
            Buffer("dy", _ROWS, "F"),
            Buffer("alpha", ("d",), "A"),
            Buffer("eps", (1,), "float32"),
            Buffer("dx", _ROWS, "F", written=True),
            Buffer("stats", ("rows", 2), "float32", written=True),
        ),
        meta=("d",),
        window=("row_count", "origin", "stats_origin"),
        parts=("row", "quads", "team", "statistics", "gradient", "dx_only", "alpha", "store"),
    ),
    Kernel(
        name="sum_partials",
        summary="dα and dβ, the partials summed in chunk order",
        buffers=(
            Buffer("partial", ("chunks", 2, "d"), "float32"),
            Buffer("dalpha", ("d",), "float32", written=True),
            Buffer("dbeta", ("d",), "float32", written=True),
        ),
        meta=("d",),
        window=("first_chunk", "chunk_count", "partial_origin"),
        parts=(),
    ),
)

KERNELS: Final[Mapping[str, Kernel]] = MappingProxyType({kernel.name: kernel for kernel in _RECORDS})
"""Every kernel's record by its name."""
