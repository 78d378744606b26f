"""What a hostile caller passes: values, layouts, things that are no arrays, calls with one thing wrong."""

import math
import tempfile
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import rowgrad_wgpu as rg
from rowgrad_wgpu.contract import Kernel

VALUES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "zeros": lambda random, shape: np.zeros(shape) * random.choice([1, -1]),
    "constant": lambda random, shape: np.full(shape, random.standard_normal() * 100),
    "far from 0": lambda random, shape: 1000 + random.standard_normal(shape),
    "subnormal": lambda random, shape: random.standard_normal(shape) * 1e-39,
    "subnormal halves": lambda random, shape: random.standard_normal(shape) * 1e-6,
    "largest": lambda random, shape: random.choice([1, -1], shape) * 3.4e38,
    "largest halves": lambda random, shape: random.choice([65504, -65504, 1], shape),
    "squares overflow": lambda random, shape: random.standard_normal(shape) * 1e25,
    "every exponent": lambda random, shape: random.standard_normal(shape) * 2.0 ** random.integers(-130, 120, shape),
    "one NaN": lambda random, shape: sprinkled(random, shape, np.nan),
    "one Inf": lambda random, shape: sprinkled(random, shape, random.choice([np.inf, -np.inf])),
}


def sprinkled(random: np.random.Generator, shape: tuple[int, ...], value: float) -> np.ndarray:
    array = random.standard_normal(shape)
    if array.size:
        array.reshape(-1)[random.integers(array.size)] = value
    return array


class Subclass(np.ndarray):
    """A NumPy array that is not quite one."""


def shifted(array: np.ndarray) -> np.ndarray:
    """The same array, its elements at odd addresses."""
    moved = np.ndarray(array.shape, array.dtype, np.zeros(array.nbytes + 1, np.uint8), 1)
    moved[...] = array
    return moved


def mapped(array: np.ndarray) -> np.ndarray:
    if not array.size:
        return array
    with tempfile.TemporaryFile() as file:
        room = np.memmap(file, array.dtype, "w+", shape=array.shape)
    room[...] = array
    return room


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "dense": lambda array: array,
    "strided": lambda array: np.repeat(array, 2, -1)[..., ::2],
    "reversed": lambda array: np.flip(np.flip(array).copy()),
    "Fortran": lambda array: np.asarray(array, order="F"),
    "shifted": shifted,
    "mapped": mapped,
    "subclass": lambda array: array.view(Subclass),
}
READ_ONLY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "read-only": read_only,
    "broadcast": lambda array: np.broadcast_to(array[:1], array.shape) if len(array) else array,
}


class Evil:
    """An object whose conversion to an array fails."""

    def __array__(self, *given: object, **more: object) -> np.ndarray:
        raise RuntimeError("evil")


def junk() -> list[Any]:
    """What is an array, an Array, a number, a device or a name to nobody."""
    return [
        *(object(), b"bytes", {}, {"x": 1}, Evil(), Evil, range(3), 3 + 4j, 10**400, [[1], [1, 2]], [None], "no such"),
        *(np.zeros((2, 2), complex), np.array([{}]), np.zeros(3, "f4,f4"), np.array(["a"]), np.zeros((2, 2))),
        *(np.ma.masked_all((2, 2), np.float32), np.zeros((2, 2), ">f4"), np.datetime64(1, "s"), np.ones(2, bool)),
        *(memoryview(b"12345678"), lambda: None, ..., NotImplemented, type, float("nan"), -1, math),
    ]


IMPOSSIBLE_SHAPES = (
    *((1,) * 65, (0,) * 99, "ab", None, 2.5, (2, None), {}, -1, (2, -3), (0, 10**30), (1 << 63, 0)),
    *((1 << 40, 1 << 40), (1 << 62, 1 << 62), 1 << 40, (1 << 20, 1 << 20), 10**30),
)

CALL_FAULTS = (
    *("another dtype", "float64", "big-endian", "another shape", "d of 0", "no axis", "a mixture", "another device's"),
    *("two devices", "a closed device's", "a closed device", "out of another shape", "out of another dtype"),
    *("out read-only", "out masked", "out an Array", "out over dy", "out over the first", "out over itself"),
    "progress a number",
)
NORM_FAULTS = (
    *("alpha too long", "alpha a row", "alpha in another dtype", "negative eps", "infinite eps", "NaN eps"),
    *("eps a text", "eps true", "an unknown gradient", "no gradient", "an out too few", "an out too many"),
    *("an out not wanted", "one out twice"),
)


def wrong_call(
    fault: str, given: dict[str, Any], device: rg.Device, spare: rg.Device, orphan: rg.Array
) -> dict[str, Any]:
    """The arguments of a call with one thing wrong; `given` are right host arrays, (y, dy) or (x, dy, alpha).

    `spare` is another device, `orphan` an Array of a closed one.
    """
    first, dy = next(iter(given)), given["dy"]
    here = {"device": device}
    match fault:
        case "another dtype":
            return {**given, **here, "dy": np.zeros(dy.shape, other_dtype(dy))}
        case "float64":
            return {**given, **here, first: np.zeros(dy.shape)}
        case "big-endian":
            return {**given, **here, "dy": np.zeros(dy.shape, ">f4")}
        case "another shape":
            return {**given, **here, "dy": np.zeros((7, *dy.shape), dy.dtype)}
        case "d of 0":
            return {**given, **here, first: dy[..., :0], "dy": dy[..., :0]}
        case "no axis":
            return {**given, **here, first: np.float32(1), "dy": np.float32(1)}
        case "a mixture":
            return {**given, **here, "dy": device.asarray(dy)}
        case "another device's":
            return {name: spare.asarray(array) for name, array in given.items()} | here
        case "two devices":
            return {name: (device if name == "dy" else spare).asarray(array) for name, array in given.items()}
        case "a closed device's":
            return {first: orphan, "dy": orphan}
        case "a closed device":
            return {**given, "device": orphan.device}
        case "out over dy" | "out over the first":
            name = first if fault.endswith("first") else "dy"
            turned = np.zeros((1, *dy.shape), dy.dtype)[0]
            return {**given, **here, name: turned, "out": turned[..., ::-1]}
        case "progress a number":
            return {**given, **here, "progress": 3}
    return {**given, **here, "out": wrong_out(fault, dy, device)}


def wrong_out(fault: str, like: np.ndarray, device: rg.Device) -> Any:
    match fault:
        case "out of another shape":
            return np.empty((7, *like.shape), like.dtype)
        case "out of another dtype":
            return np.empty(like.shape)
        case "out read-only":
            return read_only(like)
        case "out masked":
            return np.ma.masked_all(like.shape, like.dtype)
        case "out an Array":
            return device.empty(like.shape, like.dtype)
        case "out over itself":
            return np.lib.stride_tricks.as_strided(np.zeros(1, like.dtype), like.shape, (0,) * like.ndim)
    raise ValueError(fault)


def wrong_norm(fault: str, given: dict[str, Any], gradients: tuple[str, ...], device: rg.Device) -> dict[str, Any]:
    """The arguments of a norm with those gradients, with one thing wrong that softmax does not have."""
    d = given["alpha"].size
    column, nowhere = np.empty(d, np.float32), [None] * len(gradients)
    wrong: dict[str, dict[str, Any]] = {
        "alpha too long": {"alpha": np.ones(d + 1, np.float32)},
        "alpha a row": {"alpha": given["alpha"].reshape(1, -1)},
        "alpha in another dtype": {"alpha": np.ones(d, other_dtype(given["dy"]))},
        "negative eps": {"eps": -1e-5},
        "infinite eps": {"eps": float("inf")},
        "NaN eps": {"eps": float("nan")},
        "eps a text": {"eps": "1e-5"},
        "eps true": {"eps": True},
        "an unknown gradient": {"grads": ("dx", "dgamma" if "dbeta" in gradients else "dbeta")},
        "no gradient": {"grads": ()},
        "an out too few": {"out": nowhere[1:]},
        "an out too many": {"out": [*nowhere, None]},
        "an out not wanted": {"grads": ("dx",), "out": [*nowhere[1:], column]},
        "one out twice": {"out": [*nowhere[2:], column, column]},
    }
    return {**given, "device": device, **wrong[fault]}


def other_dtype(array: np.ndarray) -> np.dtype:
    """A 16-bit type that is not the array's."""
    return np.dtype(np.float16 if array.dtype == ml_dtypes.bfloat16 else ml_dtypes.bfloat16)


LAUNCH_FAULTS = (
    *("missing", "misnamed", "one too many", "a NumPy array", "None", "another device's", "a closed device's", "freed"),
    *("another shape", "one longer", "one wider", "no axis", "empty", "another dtype", "written and read"),
    "written twice",
)


def wrong_launch(
    fault: str, buffers: dict[str, Any], target: str, kernel: Kernel, spare: rg.Device, orphan: rg.Array
) -> dict[str, Any]:
    """The buffers of a launch, all float32, with something wrong about `target`."""
    device, host = buffers[target].device, buffers[target].numpy()
    match fault:
        case "missing":
            return {name: array for name, array in buffers.items() if name != target}
        case "misnamed":
            return {"z" if name == target else name: array for name, array in buffers.items()}
        case "one too many":
            return {**buffers, "another": buffers[target]}
        case "written and read":
            written = kernel.outputs[0].name
            return {**buffers, next(name for name in buffers if name != written): buffers[written]}
        case "written twice":
            return {**buffers, **{one.name: buffers[kernel.outputs[0].name] for one in kernel.outputs}}
        case "freed":
            array = device.asarray(host)
            array.free()
            return {**buffers, target: array}
    wrong = {
        "a NumPy array": host,
        "None": None,
        "another device's": spare.asarray(host),
        "a closed device's": orphan,
        "another shape": device.asarray(np.ones((3, 3, 3), np.float32)),
        "one longer": device.asarray(np.ones((len(host) + 1, *host.shape[1:]), np.float32)),
        "one wider": device.asarray(np.ones((*host.shape[:-1], host.shape[-1] + 1), np.float32)),
        "no axis": device.asarray(np.ones((), np.float32)),
        "empty": device.empty((0, 0, 0), np.float32),
        "another dtype": device.asarray(host.astype(np.float16)),
    }
    return {**buffers, target: wrong[fault]}
