"""The check as a web page, for the browser's own WebGPU: what `rowgrad export-web` writes.

The check's inputs go through the package's own functions on a device that computes nothing but records what is
launched, so the page runs the plans, the shaders and the fields that a device would get. The oracle's values and the
bounds go with them; the page's JavaScript launches and compares.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from . import __version__ as VERSION  # noqa: N812
from .bench import PASSES, QUICK_FACTOR, SEED_SHAPES
from .bounds import Expected, room
from .check import Case, cases, expected_of, outputs_of, seed_case
from .contract import KERNELS, storage_name
from .device import Adopted, Array, Device, DeviceInfo
from .errors import ShapeError
from .ops import softmax_back
from .plan import CELL_BYTES, WEBGPU, Limits, Plan, Variant
from .reference import Doubles
from .source import assemble_wgsl

LIMITS: Final = {"hardware": WEBGPU, "software": replace(WEBGPU, software=True)}
"""What the launches are planned for; the page takes those of its adapter's kind."""

TIMED_KERNEL, TIMED_ROWS, TIMED_D = SEED_SHAPES[0]
TIMED: Final = {"hardware": TIMED_ROWS, "software": TIMED_ROWS // QUICK_FACTOR}
"""The rows of softmax backward that the page times."""

VALUE_BYTES: Final = 8
"""Arrays begin at a multiple of this: JavaScript reads no float64 elsewhere."""


@cache
def page_folder() -> Traversable:
    """The folder of the page's own files: inside the installed package, or `examples/browser` in a working copy."""
    installed = resources.files(__package__) / "browser"
    if installed.is_dir():
        return installed
    return Path(__file__).resolve().parent.parent / "examples" / "browser"


def write_page(folder: Path, force: bool = False) -> None:
    """Writes the page to a new or an empty folder; with `force` to any, over the files of that name.

    **Raises:** `ShapeError` if there is something in the folder.
    """
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise ShapeError(f"expected a new or an empty folder, got {folder}: pass --force to write over what is there")
    for name, data in page_files([seed_case(), *cases(full=False)]).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def page_files(inputs: Iterable[Case]) -> dict[str, bytes]:
    """Every file of the page that checks these inputs, by its name."""
    export = _Export()
    plan = {
        "version": VERSION,
        "kernels": {name: [asdict(one) for one in kernel.buffers] for name, kernel in KERNELS.items()},
        "cases": [export.case(one) for one in inputs],
        "speed": {kind: export.speed(rows, LIMITS[kind]) for kind, rows in TIMED.items()},
    }
    return {
        **{one.name: one.read_bytes() for one in page_folder().iterdir() if one.is_file()},
        "plan.json": json.dumps(plan, ensure_ascii=False, allow_nan=False).encode(),
        "values.bin": export.values(),
        **{name: assemble_wgsl(variant).encode() for variant, name in export.shaders.items()},
    }


class _Export:
    """What the plan refers to: each array of values once, each variant's shader once."""

    def __init__(self) -> None:
        self.shaders: dict[Variant, str] = {}
        self._places: dict[bytes, int] = {}
        self._nbytes = 0

    def values(self) -> bytes:
        """The file of values."""
        return b"".join(map(_padded, self._places))

    def case(self, case: Case) -> dict[str, Any]:
        """An input of the check: its launches for each kind of adapter, and what has to come out."""
        expected = expected_of(case)
        return {
            "values": case.values,
            "dtype": storage_name(case.x.dtype),
            "shape": case.x.shape,
            "results": [self._result(*key, one) for key, one in expected.items()],
            "programs": {kind: self._program(case, limits, list(expected)) for kind, limits in LIMITS.items()},
        }

    def speed(self, rows: int, limits: Limits) -> dict[str, Any]:
        """The launches that are timed; the page makes the inputs."""
        recorder, device = _recording(limits)
        y, dy = (device.empty((rows, TIMED_D), np.float32) for _ in range(2))
        softmax_back(y, dy)
        return {
            "kernel": TIMED_KERNEL,
            "dtype": "float32",
            "shape": (rows, TIMED_D),
            "bytes": PASSES * y.nbytes,
            "inputs": [y._memory(), dy._memory()],
            **self._recorded(recorder),
        }

    def _result(self, kernel: str, output: str, expected: Expected) -> dict[str, Any]:
        return {
            "kernel": kernel,
            "output": output,
            "bound": room(expected),
            "expected": self._place(expected.value.tobytes()),
            "bounds": self._place(_rounded_down(expected.bound).tobytes()),
        }

    def _program(self, case: Case, limits: Limits, outputs: list[tuple[str, str]]) -> dict[str, Any]:
        recorder, device = _recording(limits)
        places = _places(device, case)
        return {**self._recorded(recorder), "outputs": [asdict(places[key]) for key in outputs]}

    def _recorded(self, recorder: "_Recorder") -> dict[str, Any]:
        return {
            "buffers": recorder.sizes,
            "writes": [{"buffer": buffer, "data": self._place(data)} for buffer, data in recorder.writes],
            "launches": [
                {"shader": self._shader(plan.variant), "buffers": buffers, **asdict(plan)}
                for plan, buffers in recorder.launches
            ],
        }

    def _place(self, data: bytes) -> tuple[int, int]:
        """Where an array lies in the file of values: its first byte, and how many there are."""
        if data not in self._places:
            self._places[data] = self._nbytes
            self._nbytes += len(_padded(data))
        return self._places[data], len(data)

    def _shader(self, variant: Variant) -> str:
        number = 1 + sum(one.kernel == variant.kernel for one in self.shaders)
        return self.shaders.setdefault(variant, f"shaders/{variant.kernel}-{number}.wgsl")


@dataclass(frozen=True)
class _Output:
    """Where an output comes to lie: every `step`-th element of a buffer, from `first` on."""

    buffer: int
    dtype: str
    first: int
    step: int


def _places(device: Device, case: Case) -> dict[tuple[str, str], _Output]:
    """Launches what the check does, and says where its outputs come to lie."""
    y, x, dy, alpha = (device.asarray(one) for one in (case.y, case.x, case.dy, case.alpha))
    return {
        key: _Output(one.array._memory(), storage_name(one.array.dtype), one.first, one.step)
        for key, one in outputs_of(device, y, x, dy, alpha).items()
        if isinstance(one.array, Array)
    }


def _recording(limits: Limits) -> tuple["_Recorder", Device]:
    recorder = _Recorder(limits)
    return recorder, Device._over(DeviceInfo("web", "webgpu", "navigator.gpu", "a browser's GPU", "virtual"), recorder)


class _Recorder:
    """A back end that keeps what it is asked for and computes nothing; a buffer is its number."""

    shares_memory = False

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.sizes: list[int] = []
        self.writes: list[tuple[int, bytes]] = []
        self.launches: list[tuple[Plan, dict[str, int]]] = []

    def allocate(self, nbytes: int) -> int:
        self.sizes.append(-(-nbytes // CELL_BYTES) * CELL_BYTES)
        return len(self.sizes) - 1

    def write(self, buffer: int, data: npt.NDArray[np.uint8]) -> None:
        self.writes.append((buffer, data.tobytes()))

    def launch(self, plan: Plan, buffers: Mapping[str, int]) -> None:
        self.launches.append((plan, dict(buffers)))

    def submit(self) -> None: ...

    def wait(self, deadline: float) -> None: ...

    def read(self, buffer: int, out: npt.NDArray[np.uint8], deadline: float) -> None:
        raise NotImplementedError

    def adopt(self, value: Any) -> Adopted:
        raise NotImplementedError

    def export(self, buffer: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        return {}

    def close(self) -> None: ...


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % VALUE_BYTES)


def _rounded_down(bounds: Doubles) -> npt.NDArray[np.float32]:
    """Bounds in half the bytes, never larger than they are."""
    with np.errstate(over="ignore"):
        near = bounds.astype(np.float32)
    return np.where(near > bounds, np.nextafter(near, np.float32(0)), near)
