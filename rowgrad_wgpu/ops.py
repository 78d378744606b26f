"""The host functions: `softmax_back`, `layer_norm_back` and `rms_norm_back`, NumPy arrays or Arrays in and out.

Host arrays go through the device block by block of rows, so that they may be larger than the device's memory; the
blocks change no bit of the results.
"""

import contextlib
import itertools
import math
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .contract import KERNELS, STORAGE, storage_name
from .device import AnyArray, Array, Device, host_array, host_memory, is_gpu_array, spec_of_gpu_array
from .errors import DTypeError, ShapeError
from .plan import Extent, one_pass, row_step, split, whole

BLOCK_BYTES: Final = 64 << 20
"""Bytes of each host array, were it float32, that are on the device at once; a `row_step` of rows at least."""

Progress = Callable[[int, int], None]
"""Told how many rows are done, and of how many."""

Either = AnyArray | Array

GRADIENTS: Final = ("dx", "dalpha", "dbeta")
RMS_GRADIENTS: Final = GRADIENTS[:2]
"""An RMSNorm has no shift."""

_default: dict[str, Device] = {}
_default_locks: dict[int, threading.Lock] = {}
"""One a process: a fork may copy one that another thread holds."""


class LayerNormGrads(NamedTuple):
    """`layer_norm_back`'s results; None for a gradient that was not asked for."""

    dx: Any
    dalpha: Any
    dbeta: Any


class RMSNormGrads(NamedTuple):
    """`rms_norm_back`'s results; None for a gradient that was not asked for."""

    dx: Any
    dalpha: Any


@host_memory
def softmax_back(
    y: npt.ArrayLike | Array,
    dy: npt.ArrayLike | Array,
    *,
    out: Either | None = None,
    device: Device | str | None = None,
    progress: Progress | None = None,
) -> Any:
    r"""Gradient of a softmax over the last axis by its input.

    $$dx = y (dy - \langle dy, y \rangle)$$

    **Arguments:**

    - `y`: `(..., d)` float32, float16 or bfloat16; the softmax's output.
    - `dy`: as `y`; gradient of the loss by `y`.
    - `out`: as `y`, apart from both; takes dx.
    - `device`: a `Device`, or a spec, whose device is opened once and kept; None is that of the Arrays, or `auto`.
    - `progress`: with NumPy arrays, called with (rows done, rows) after each block of rows.

    NumPy arrays may be strided, reversed, broadcast, Fortran-ordered, read-only or memory-mapped. Sums are float32.

    **Returns:** dx, as `y`: an array where arrays came in; an `Array` where Arrays did, without waiting.

    **Raises:** `ShapeError` if the shapes disagree or d = 0; `DTypeError` for any other dtype or a mixture of arrays
    and Arrays; `DeviceUnavailable`; `OutOfMemory`.

    Source of the formula: the Jacobian of softmax, diag(y) − y yᵀ.
    """
    operands = _Operands("softmax_back", {"y": y, "dy": dy}, device, progress)
    dx = operands.output("out", out)
    if operands.resident:
        buffers = {"y": operands["y"], "dy": operands["dy"], "dx": dx}
        extent = whole(math.prod(dx.shape[:-1]), dx.shape[-1])
        _run_by_rows(operands.device, "softmax_back", buffers, operands.storage, operands.storage, extent)
    else:
        _softmax_host(operands, dx, progress)
    return dx


@host_memory
def layer_norm_back(
    x: npt.ArrayLike | Array,
    dy: npt.ArrayLike | Array,
    alpha: npt.ArrayLike | Array | None = None,
    *,
    eps: float = 1e-5,
    out: Either | Sequence[Either | None] | None = None,
    grads: Sequence[str] = GRADIENTS,
    device: Device | str | None = None,
    progress: Progress | None = None,
) -> LayerNormGrads:
    r"""Gradients of a LayerNorm over the last axis by its input and its two parameters.

    $$\hat x = (x - \mu) r, \quad r = (\mathrm{var} + \epsilon)^{-1/2}, \quad u = dy\,\alpha$$
    $$dx = r (u - \overline{u} - \hat x\, \overline{u \hat x}), \quad
      d\alpha = \sum_{rows} dy\,\hat x, \quad d\beta = \sum_{rows} dy$$

    **Arguments:**

    - `x`: `(..., d)` float32, float16 or bfloat16; the layer's input.
    - `dy`: as `x`; gradient of the loss by the layer's output.
    - `alpha`: `(d,)` in the dtype of `x` or float32; the scale, ones if None.
    - `eps`: added to the variance, a number of 0 or more.
    - `out`: takes dx; or three of them, (dx, dalpha, dbeta), each may be None. Apart from the inputs.
    - `grads`: those wanted of "dx", "dalpha", "dbeta"; one that is not costs nothing and comes back as None.
    - `device`, `progress`: as for `softmax_back`.

    The variance is the population's (divided by d), by the corrected two-pass algorithm. dα and dβ are float32, summed
    in chunks of rows, which depend on the number of rows alone, and then over the chunks in order. Within a chunk a CPU
    takes one row after another, a GPU's threads take rows by turns: devices may differ in the last bits.

    **Returns:** `LayerNormGrads(dx, dalpha, dbeta)`: dx as `x`; dalpha and dbeta `(d,)` float32, zeros for 0 rows.

    **Raises:** `ShapeError` if shapes disagree, d = 0, eps < 0 or not finite; `DTypeError`; `DeviceUnavailable`;
    `OutOfMemory`.

    Source of the formulas: Ba, Kiros and Hinton, "Layer Normalization", 2016, differentiated.
    """
    return _gradients(_LayerNorm, x, dy, alpha, eps, out, grads, device, progress)


@host_memory
def rms_norm_back(
    x: npt.ArrayLike | Array,
    dy: npt.ArrayLike | Array,
    alpha: npt.ArrayLike | Array | None = None,
    *,
    eps: float = 1e-5,
    out: Either | Sequence[Either | None] | None = None,
    grads: Sequence[str] = RMS_GRADIENTS,
    device: Device | str | None = None,
    progress: Progress | None = None,
) -> RMSNormGrads:
    r"""Gradients of an RMSNorm over the last axis by its input and its scale.

    $$\hat x = x r, \quad r = (\overline{x^2} + \epsilon)^{-1/2}, \quad u = dy\,\alpha$$
    $$dx = r (u - \hat x\, \overline{u \hat x}), \quad d\alpha = \sum_{rows} dy\,\hat x$$

    **Arguments:**

    - `x`, `dy`, `alpha`, `device`, `progress`: as for `layer_norm_back`.
    - `eps`: added to the mean square, a number of 0 or more: that of the forward pass, whose default differs between
      frameworks.
    - `out`: takes dx; or two of them, (dx, dalpha), each may be None. Apart from the inputs.
    - `grads`: those wanted of "dx" and "dalpha"; the other comes back as None. dalpha costs nothing where it is not
      wanted; dx is computed on the way to it.

    dα is float32, summed as a LayerNorm's.

    **Returns:** `RMSNormGrads(dx, dalpha)`: dx as `x`; dalpha `(d,)` float32, zeros for 0 rows.

    **Raises:** as `layer_norm_back`.

    Source of the formulas: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, differentiated.
    """
    found = _gradients(_RMSNorm, x, dy, alpha, eps, out, grads, device, progress)
    return RMSNormGrads(found.dx, found.dalpha)


def default_device(spec: str = "auto") -> Device:
    """The device of `spec`, opened on the first call and kept; a forked child opens its own."""
    with _default_locks.setdefault(os.getpid(), threading.Lock()):
        device = _default.get(spec)
        if device is None or device._closed or device._process != os.getpid():
            device = _default[spec] = Device(spec)
    return device


class _Operands:
    """The arrays of a call, checked: all of one kind, one device, one shape, one dtype."""

    def __init__(
        self, call: str, given: dict[str, Any], device: Device | str | None, progress: Progress | None
    ) -> None:
        self.call = call
        if progress is not None and not callable(progress):
            raise DTypeError(f"[{call}] expected progress to be a function of two numbers, got {progress!r}")
        self.resident = set(map(type, given.values())) == {Array}
        if not self.resident:
            given, device = _adopted(given, device)
            self.resident = _all_resident(call, given)
        self.arrays: dict[str, Any] = given if self.resident else {name: host_array(one) for name, one in given.items()}
        self.first_name, self.first = next(iter(self.arrays.items()))
        """The operand whose shape and dtype the others follow."""
        self.storage = storage_name(self.first.dtype)
        self._check_types()
        self._check_shapes()
        self.device = self._device(device)
        if self.resident:
            for name, array in given.items():
                self.device._own(array, name, call)

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]

    def output(self, name: str, out: Any, shape: tuple[int, ...] | None = None, dtype: Any = None) -> Any:
        """`out` checked, or a new array of the operands' kind."""
        shape = self.first.shape if shape is None else shape
        dtype = self.first.dtype if dtype is None else dtype
        if out is None:
            return self.device.empty(shape, dtype) if self.resident else np.empty(shape, dtype)
        if self.resident and is_gpu_array(out):
            out = self.device.asarray(out)
        kind = Array if self.resident else np.ndarray
        if not isinstance(out, kind) or isinstance(out, np.ma.MaskedArray):
            raise DTypeError(
                f"[{self.call}] expected {name} as {kind.__name__}, like the inputs, got {type(out).__name__}"
            )
        if out.dtype != dtype:
            raise DTypeError(f"[{self.call}] expected {name} in {np.dtype(dtype)}, got {out.dtype}")
        if out.shape != shape:
            raise ShapeError(f"[{self.call}] expected {name} of shape {shape}, got {out.shape}")
        self._check_apart(name, out)
        return out

    def _check_apart(self, name: str, out: Any) -> None:
        if self.resident:
            self.device._own(out, name, self.call)
            if not out._writable:
                raise ShapeError(f"[{self.call}] expected {name} to be dense and writeable, got a copy or read-only")
            clashes = [one for one, array in self.arrays.items() if array is out]
        else:
            if not out.flags.writeable:
                raise ShapeError(f"[{self.call}] expected {name} to be writeable, got a read-only array")
            if _overlaps_itself(out):
                raise ShapeError(f"[{self.call}] expected {name}'s elements apart, got some that overlap each other")
            clashes = [one for one, array in self.arrays.items() if _overlap(array, out)]
        if clashes:
            raise ShapeError(f"[{self.call}] expected {name} apart from the inputs, got one that overlaps {clashes[0]}")

    def _check_types(self) -> None:
        first, storage, dtype = self.first_name, self.storage, self.first.dtype
        for name, array in self.arrays.items():
            if array.dtype == dtype:
                continue
            allowed = (storage, "float32") if name == "alpha" else (storage,)
            if storage_name(array.dtype) not in allowed:
                raise DTypeError(
                    f"[{self.call}] expected {name} in {' or '.join(dict.fromkeys(allowed))}, beside {first} in"
                    f" {storage}, got {array.dtype}"
                )

    def _check_shapes(self) -> None:
        first, shape = self.first_name, self.first.shape
        if not shape:
            raise ShapeError(f"[{self.call}] expected {first} of shape (..., d), got a single number")
        if shape[-1] == 0:
            raise ShapeError(f"[{self.call}] expected d, the last axis, of at least 1, got shape {shape}")
        for name, array in self.arrays.items():
            wanted = shape[-1:] if name == "alpha" else shape
            if array.shape != wanted:
                raise ShapeError(f"[{self.call}] expected {name} of shape {wanted}, as {first}, got {array.shape}")

    def _device(self, device: Device | str | None) -> Device:
        if device is None:
            return self.first.device if self.resident else default_device()
        if isinstance(device, str):
            return default_device(device)
        if not isinstance(device, Device):
            raise DTypeError(f"[{self.call}] expected device to be a Device or a spec, got {type(device).__name__}")
        device._ready()
        return device


def _adopted(given: dict[str, Any], device: Device | str | None) -> tuple[dict[str, Any], Device | str | None]:
    """Other libraries' GPU arrays as Arrays of `device`, or of the device they lie on."""
    foreign = [name for name, value in given.items() if is_gpu_array(value)]
    if not foreign:
        return given, device
    if device is None:
        resident = next((value.device for value in given.values() if isinstance(value, Array)), None)
        device = resident or spec_of_gpu_array(given[foreign[0]])
    opened = default_device(device) if isinstance(device, str) else device
    if not isinstance(opened, Device):
        return given, device
    return {name: opened.asarray(value) if name in foreign else value for name, value in given.items()}, opened


def _all_resident(call: str, given: dict[str, Any]) -> bool:
    """Whether the operands are Arrays. **Raises:** `DTypeError` where only some are."""
    resident = [name for name, value in given.items() if isinstance(value, Array)]
    if resident and len(resident) < len(given):
        other = next(name for name in given if name not in resident)
        raise DTypeError(
            f"[{call}] expected NumPy arrays or Arrays, not both, got {resident[0]} on a device and {other} on the"
            " host: use device.asarray() or .numpy()"
        )
    return bool(resident)


@dataclass
class _Rows:
    """A host array as rows, whatever its strides."""

    array: AnyArray

    def __post_init__(self) -> None:
        self.shape = (math.prod(self.array.shape[:-1]), self.array.shape[-1])
        self.mapping = _file_mapping(self.array)
        try:
            self.flat: AnyArray | None = self.array.reshape(self.shape, copy=False)
        except ValueError:  # its leading axes do not fall together
            self.flat = None

    def __getitem__(self, rows: slice) -> AnyArray:
        """A view of the rows, or a copy of just those."""
        if self.flat is not None:
            return self.flat[rows]
        return self.array[np.unravel_index(np.arange(rows.start, rows.stop), self.array.shape[:-1])]

    def __setitem__(self, rows: slice, values: AnyArray) -> None:
        if self.flat is not None:
            self.flat[rows] = values
        else:
            self.array[np.unravel_index(np.arange(rows.start, rows.stop), self.array.shape[:-1])] = values

    def forget(self) -> None:
        """Takes a mapped file's pages out of the process's memory; the system has them, and what was written, still."""
        if self.mapping is not None and hasattr(mmap, "MADV_DONTNEED"):  # Windows trims by itself
            with contextlib.suppress(OSError):  # pages that are locked stay
                self.mapping.madvise(mmap.MADV_DONTNEED)


def _file_mapping(array: AnyArray) -> mmap.mmap | None:
    """The mapping of the file that an array lies in; None where there is none, or its changes are in memory alone."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    if not isinstance(owner, np.memmap) or owner.mode == "c":
        return None
    mapping: mmap.mmap | None = owner._mmap  # type: ignore[attr-defined]  # the stubs leave it out
    return mapping


class _Stream:
    """Blocks of rows of host arrays on their way through a device; the first array's shape and type are all arrays'."""

    def __init__(self, device: Device, arrays: Sequence[_Rows], progress: Progress | None) -> None:
        self.device, self.arrays, self.progress = device, arrays, progress
        (self.rows, self.d), self.dtype = arrays[0].shape, arrays[0].array.dtype
        least = row_step(storage_name(self.dtype), whole(self.rows, self.d), device.limits)
        self.step = max(least, BLOCK_BYTES // (self.d * 4) // least * least)
        self._kept: dict[str, Array] = {}

    def blocks(self) -> Iterator[slice]:
        """The blocks in order."""
        for start in range(0, self.rows, self.step):
            stop = min(start + self.step, self.rows)
            yield slice(start, stop)
            for array in self.arrays:
                array.forget()
            if self.progress is not None:
                self.progress(stop, self.rows)

    def upload(self, name: str, rows: AnyArray) -> Array:
        """The rows on the device: lent where it can read host memory, else copied to a buffer kept for the next."""
        lent = self.device._lend(rows)
        if lent is not None:
            return lent
        kept = self.buffer(name)
        kept._write(rows)
        return kept

    def buffer(self, name: str) -> Array:
        """A buffer of a block's size, kept for the next."""
        if name not in self._kept:
            self._kept[name] = self.device.empty((min(self.step, self.rows), self.d), self.dtype)
        return self._kept[name]

    def target(self, name: str, out: _Rows, part: slice) -> tuple[Array, bool]:
        """Where a block's results go: lent host memory (True) or a buffer that has to be downloaded."""
        view = out[part] if out.flat is not None else None
        lent = self.device._lend(view) if view is not None else None
        return (lent, True) if lent is not None else (self.buffer(name), False)

    def download(self, source: Array, out: _Rows, part: slice) -> None:
        """A block's results from the device to the host."""
        view = out[part] if out.flat is not None else None
        if view is not None and view.flags.c_contiguous:
            source._read(view)
        else:
            block = np.empty((part.stop - part.start, self.d), self.dtype)
            source._read(block)
            out[part] = block


def _softmax_host(operands: _Operands, out: AnyArray, progress: Progress | None) -> None:
    y, dy, dx = _Rows(operands["y"]), _Rows(operands["dy"]), _Rows(out)
    (rows, d), storage = y.shape, operands.storage
    stream = _Stream(operands.device, [y, dy, dx], progress)
    with operands.device._held():
        for part in stream.blocks():
            target, lent = stream.target("dx", dx, part)
            buffers = {"y": stream.upload("y", y[part]), "dy": stream.upload("dy", dy[part]), "dx": target}
            extent = replace(whole(rows, d), start=part.start, stop=part.stop)
            _run_by_rows(operands.device, "softmax_back", buffers, storage, storage, extent)
            if not lent:
                stream.download(target, dx, part)


def _gradients(
    kind: "type[_LayerNorm]",
    x: Any,
    dy: Any,
    alpha: Any,
    eps: float,
    out: Any,
    grads: Sequence[str],
    device: Device | str | None,
    progress: Progress | None,
) -> LayerNormGrads:
    """Checks the arguments of a call of that kind and runs it."""
    wanted = _wanted(kind, grads)
    given = {"x": x, "dy": dy} | ({} if alpha is None else {"alpha": alpha})
    operands = _Operands(kind.call, given, device, progress)
    targets = _targets(kind, operands, out, wanted)
    job = kind(operands, _checked_eps(kind, eps), wanted, targets)
    return job.on_arrays() if operands.resident else job.on_host(progress)


class _LayerNorm:
    """One call of `layer_norm_back`: which kernels it needs, on Arrays or on host arrays."""

    call = "layer_norm_back"
    names: tuple[str, ...] = GRADIENTS

    def __init__(self, operands: _Operands, eps: float, wanted: set[str], targets: LayerNormGrads) -> None:
        self.operands, self.wanted, self.targets = operands, wanted, targets
        self.device = operands.device
        shape = operands["x"].shape
        self.rows, self.d = math.prod(shape[:-1]), shape[-1]
        self.extent = whole(self.rows, self.d)
        self.storage = operands.storage
        self.eps = self.device._constant("float32", 1, eps)
        self.sums = bool(wanted & {"dalpha", "dbeta"})

    def on_arrays(self) -> LayerNormGrads:
        """Everything on the device, without waiting."""
        alpha = self.operands.arrays.get("alpha")
        with self.device.batch():
            partial = self._partial()
            self._run_rows(
                self.operands["x"], self.operands["dy"], self._alpha(alpha), self.targets.dx, partial, self.extent
            )
            if partial is not None:
                self._sum(partial, self.targets)
        return self._answer()

    def on_host(self, progress: Progress | None) -> LayerNormGrads:
        """Block after block of rows; the partial sums stay on the device and go on from block to block."""
        operands = self.operands
        x, dy = _Rows(operands["x"]), _Rows(operands["dy"])
        dx = None if self.targets.dx is None else _Rows(self.targets.dx)
        stream = _Stream(self.device, [x, dy, *([] if dx is None else [dx])], progress)
        with self.device._held():
            given = operands.arrays.get("alpha")
            alpha = self._alpha(None if given is None else self.device.asarray(given))
            partial = self._partial()
            for part in stream.blocks() if self.rows else [slice(0, 0)]:
                block_x, block_dy = (stream.upload(name, one[part]) for name, one in (("x", x), ("dy", dy)))
                target, lent = (None, True) if dx is None else stream.target("dx", dx, part)
                extent = replace(self.extent, start=part.start, stop=part.stop)
                self._run_rows(block_x, block_dy, alpha, target, partial, extent)
                if dx is not None and target is not None and not lent:
                    stream.download(target, dx, part)
            if partial is not None:
                self._sum_to_host(partial)
        return self._answer()

    def _run_rows(
        self, x: Array, dy: Array, alpha: Array, dx: Array | None, partial: Array | None, extent: Extent
    ) -> None:
        """The kernels over the rows of `extent`: all at once where the plan can; else dx and stats, or stats alone for
        dalpha, then the partials."""
        stats = self.device.empty((extent.stop - extent.start, 2), np.float32)
        alpha_type = storage_name(alpha.dtype)
        if dx is not None:
            buffers = {"x": x, "dy": dy, "alpha": alpha, "eps": self.eps, "dx": dx, "stats": stats}
            aligned = all(array._aligned for array in buffers.values())
            if partial is not None and one_pass(self.storage, extent, self.device.limits, aligned):
                self._run("layer_norm_grads", buffers | {"partial": partial}, extent, alpha_type)
                return
            _run_by_rows(self.device, "layer_norm_back", buffers, self.storage, alpha_type, extent)
        elif "dalpha" in self.wanted:
            buffers = {"x": x, "eps": self.eps, "stats": stats}
            _run_by_rows(self.device, "layer_norm_stats", buffers, self.storage, self.storage, extent)
        if partial is not None:
            self._run("layer_norm_params", {"x": x, "dy": dy, "stats": stats, "partial": partial}, extent)

    def _sum(self, partial: Array, targets: LayerNormGrads) -> tuple[Array, Array]:
        """dα and dβ on the device, into the targets where those are Arrays."""
        dalpha, dbeta = (
            one if isinstance(one, Array) else self.device.empty(self.d, np.float32)
            for one in (targets.dalpha, targets.dbeta)
        )
        buffers = {"partial": partial, "dalpha": dalpha, "dbeta": dbeta}
        self._run("sum_partials", buffers, self.extent)
        return dalpha, dbeta

    def _sum_to_host(self, partial: Array) -> None:
        for source, target in zip(self._sum(partial, LayerNormGrads(None, None, None)), self.targets[1:], strict=True):
            if target is not None:
                target[...] = source.numpy()

    def _run(self, name: str, buffers: dict[str, Array], extent: Extent, alpha: str | None = None) -> None:
        self.device._run(KERNELS[name], buffers, self.storage, alpha or self.storage, extent)

    def _partial(self) -> Array | None:
        return self.device.empty((self.extent.chunks, 2, self.d), np.float32) if self.sums else None

    def _alpha(self, alpha: Array | None) -> Array:
        return self.device._constant(self.storage, self.d, 1.0) if alpha is None else alpha

    def _answer(self) -> LayerNormGrads:
        return LayerNormGrads(*(self.targets[i] if name in self.wanted else None for i, name in enumerate(GRADIENTS)))


class _RMSNorm(_LayerNorm):
    """One call of `rms_norm_back`, a LayerNorm whose mean is held at 0: the partials are made by the same kernel."""

    call = "rms_norm_back"
    names = RMS_GRADIENTS

    def _run_rows(
        self, x: Array, dy: Array, alpha: Array, dx: Array | None, partial: Array | None, extent: Extent
    ) -> None:
        """dx and stats over the rows of `extent`, then the partials."""
        rows = extent.stop - extent.start
        stats = self.device.empty((rows, 2), np.float32)
        target = self.device.empty((rows, self.d), x.dtype) if dx is None else dx
        buffers = {"x": x, "dy": dy, "alpha": alpha, "eps": self.eps, "dx": target, "stats": stats}
        self._run("rms_norm_back", buffers, extent, storage_name(alpha.dtype))
        if partial is not None:
            self._run("layer_norm_params", {"x": x, "dy": dy, "stats": stats, "partial": partial}, extent)


def _run_by_rows(
    device: Device, name: str, buffers: dict[str, Array], storage: str, alpha: str, extent: Extent
) -> None:
    """The kernel `name` over the rows of `extent`; where they are few and long, the one that cuts them into parts."""
    parts = split(storage, extent, device.limits)
    if parts > 1:
        name, extent = f"{name}_parts", replace(extent, parts=parts)
        shape = (extent.stop - extent.start, parts, *map(int, KERNELS[name].buffers[-1].axes[2:]))
        buffers = buffers | {"sums": device.empty(shape, np.float32)}
    device._run(KERNELS[name], buffers, storage, alpha, extent)


def _targets(kind: type[_LayerNorm], operands: _Operands, out: Any, wanted: set[str]) -> LayerNormGrads:
    """Where each gradient goes; None for one that is not wanted."""
    call, names = kind.call, kind.names
    given = tuple(out) if isinstance(out, (tuple, list)) else (out, *itertools.repeat(None, len(names) - 1))
    if len(given) != len(names):
        raise ShapeError(f"[{call}] expected out as dx or as ({', '.join(names)}), got {len(given)} of them")
    made: list[Any] = []
    for name, one in itertools.zip_longest(GRADIENTS, given):
        if name not in wanted:
            if one is not None:
                raise ShapeError(f"[{call}] expected out for {name} to be None: {name} is not among grads")
            made.append(None)
        elif name == "dx":
            made.append(operands.output("out", one))
        else:
            made.append(operands.output(f"out's {name}", one, operands["x"].shape[-1:], STORAGE["float32"]))
    for one, other in itertools.combinations([one for one in made if one is not None], 2):
        if one is other or (not operands.resident and _overlap(one, other)):
            raise ShapeError(f"[{call}] expected out's arrays apart from each other, got two that overlap")
    return LayerNormGrads(*made)


def _overlap(one: AnyArray, other: AnyArray) -> bool:
    """Whether two arrays share an element; True if that is too hard to say."""
    try:
        return np.shares_memory(one, other, max_work=10_000)  # type: ignore[arg-type]  # the stubs know 0 and -1 only
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(array: AnyArray) -> bool:
    """Whether two elements of an array may share memory: never in what slicing makes of a dense one."""
    reach = array.itemsize
    for stride, length in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if length > 1 and stride < reach:
            return array.size > 0
        reach += stride * (length - 1)
    return False


def _wanted(kind: type[_LayerNorm], grads: Sequence[str]) -> set[str]:
    call, possible = kind.call, kind.names
    try:
        names = [grads] if isinstance(grads, str) else list(grads)
    except TypeError as error:
        raise DTypeError(f"[{call}] expected grads out of {possible}, got {grads!r}") from error
    for name in names:
        if not isinstance(name, str) or name not in possible:
            raise ShapeError(f"[{call}] expected grads out of {possible}, got {name!r}")
    if not names:
        raise ShapeError(f"[{call}] expected at least one of {possible} in grads, got none")
    return set(names)


def _checked_eps(kind: type[_LayerNorm], eps: float) -> float:
    if isinstance(eps, bool) or not isinstance(eps, (int, float, np.floating, np.integer)):
        raise DTypeError(f"[{kind.call}] expected eps as a number, got {type(eps).__name__}")
    value = eps if isinstance(eps, int) else float(eps)
    if not 0 <= value <= float(np.finfo(np.float32).max):
        raise ShapeError(f"[{kind.call}] expected eps to be finite and 0 or more, got {eps}")
    return float(np.float32(value))
