"""An NVIDIA GPU in one run: every kernel held to float64, then its speed beside the GPU's own copy and other libraries.

    pip install 'rowgrad-wgpu[cuda13x]' torch
    python benchmarks/gpu.py --json h200.json

The goals, in bfloat16: softmax at 85 % of the bandwidth of a copy within the GPU's memory, LayerNorm with dx, dα and dβ
at 75 %, each 1.8 times as fast as PyTorch, and wgpu:vulkan at 0.85 of the speed of cuda. Bytes are those of three
passes over rows × d: two operands in, dx out.

CUDA's launches are timed by the GPU's events, and stand in its queue behind copies that take longer than the host takes
to launch them, so that no host's time counts. Vulkan's are timed by the clock from the end of their recording on: what
wgpu does to submit them counts. Operands go round several sets, so that none lies in a cache. Rounds go round the
contenders, so that what slows the GPU slows all; figures are medians over the rounds. PyTorch, QuACK and Liger are
called at their backward operators, with the mean and r that a forward pass leaves; each is checked before it is timed,
and its largest gap is told. What is missing is a row that says why. No network is used. When --seconds are over the
rest is left out. The exit status is 1 if anything of ours is wrong.
"""

import argparse
import contextlib
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import rowgrad_wgpu as rg
from rowgrad_wgpu import check, reference
from rowgrad_wgpu.bench import COLD_FACTOR, EPS, PASSES, SEED_SHAPES, STORAGES
from rowgrad_wgpu.contract import STORAGE, storage_name

GAP = 0.1  # largest error over largest value: PyTorch's CPU sums bfloat16 to 0.08, another gradient is further off
GOALS = {"softmax_back": 0.85, "layer_norm_back": 0.75}  # of the copy's bandwidth
SPEEDUP_GOAL = 1.8
VULKAN_GOAL = 0.85

ROUNDS = 5
ROUND_MS = 20.0
LAUNCHES = 100  # in a round, at most
CACHES = 4  # times that the operands of a round exceed the cache
COPIED_BYTES = 1 << 30
MOST_AHEAD = 256  # copies before a round, at most
CHECK_SHARE = 0.4  # of --seconds
REPEATED_ROWS = 1024

STAND_IN_SHAPES = (("softmax_back", 3, 32), ("layer_norm_back", 5, 32))
STAND_IN_BYTES = 1 << 16
STAND_IN_ELEMENTS = 500

RESULTS = Path(__file__).parent / "results"


class Absent(Exception):
    """What cannot be measured here, and why."""


@dataclass(frozen=True)
class Case:
    kernel: str
    storage: str
    rows: int
    d: int

    @property
    def nbytes(self):
        return PASSES * self.rows * self.d * STORAGE[self.storage].itemsize


@dataclass
class Row:
    """A contender's figures in a case, or the reason why there are none."""

    kernel: str
    dtype: str
    shape: tuple[int, int]
    contender: str
    ms: float | None = None
    gbs: float | None = None
    share_of_copy: float | None = None
    speedup_over_torch: float | None = None
    rounds_ms: list[float] = field(default_factory=list)
    gap: float | None = None
    host_bound: bool = False
    reason: str = ""


class Gpu:
    """The GPU's clock, cache and copy, through CuPy."""

    def __init__(self, copied_bytes):
        import cupy

        self.cupy = cupy
        self.cache = cupy.cuda.runtime.getDeviceProperties(0).get("l2CacheSize", 0)
        self.source, self.target = (cupy.empty(copied_bytes, np.uint8) for _ in range(2))

    def copy(self):
        self.cupy.copyto(self.target, self.source)

    def copy_gbs(self):
        return 2 * self.source.nbytes / min(self.ms([self.copy], 10)[0] for _ in range(3)) / 1e6

    def ms(self, launches, count):
        """The GPU's time for one of `count` launches, and whether it may have waited for the host in between: if so, it
        is given more copies to do before, up to a limit."""
        ahead = 1
        while True:
            start, stop = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            for _ in range(ahead):
                self.copy()
            start.record()
            for index in range(count):
                launches[index % len(launches)]()
            waited = start.done
            stop.record()
            stop.synchronize()
            if not waited or ahead >= MOST_AHEAD:
                return self.cupy.cuda.get_elapsed_time(start, stop) / count, waited
            ahead *= 4

    def tidy(self):
        """Gives back the memory of what was measured last."""
        self.cupy.get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()


class Rowgrad:
    """This package on a device; `softmax_back` and `layer_norm_back` of every contender give a launch."""

    def __init__(self, device, gpu):
        self.device, self.gpu = device, gpu

    def softmax_back(self, y, dy):
        y, dy, dx = self.device.asarray(y), self.device.asarray(dy), self.device.empty(y.shape, y.dtype)
        return lambda: (rg.softmax_back(y, dy, out=dx),)

    def layer_norm_back(self, x, dy, alpha):
        dx = self.device.empty(x.shape, x.dtype)
        sums = [self.device.empty(alpha.shape, np.float32) for _ in range(2)]
        x, dy, alpha = map(self.device.asarray, (x, dy, alpha))
        return lambda: rg.layer_norm_back(x, dy, alpha, eps=EPS, out=(dx, *sums))

    def ms(self, launches, count):
        return self.gpu.ms(launches, count)

    def host(self, output):
        return output.numpy()


class RowgradVulkan(Rowgrad):
    def ms(self, launches, count):
        """By the clock: one submission and one wait."""
        with self.device.batch():
            for index in range(count):
                launches[index % len(launches)]()
            begun = time.perf_counter()
        self.device.synchronize()
        return (time.perf_counter() - begun) * 1e3 / count, False


class Torch:
    """PyTorch's operators; QuACK and Liger below take its tensors."""

    def __init__(self, gpu):
        self.gpu = gpu
        self.torch = imported("torch")
        if not self.torch.cuda.is_available():
            raise Absent("PyTorch finds no GPU")

    def softmax_back(self, y, dy):
        y, dy = self.tensors(y, dy)
        return lambda: (self.torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype),)

    def layer_norm_back(self, x, dy, alpha):
        x, dy, alpha = self.tensors(x, dy, alpha)
        shape = [x.shape[-1]]
        _, mean, r = self.torch.ops.aten.native_layer_norm(x, shape, alpha, alpha, EPS)
        backward = self.torch.ops.aten.native_layer_norm_backward
        return lambda: backward(dy, x, shape, mean, r, alpha, alpha, [True, True, True])

    def tensors(self, *arrays):
        return [self.tensor(one) for one in arrays]

    def tensor(self, array):
        """By its bits: PyTorch does not read ml_dtypes."""
        bits = array.view(np.int32 if array.dtype.itemsize == 4 else np.int16)
        return self.torch.from_numpy(bits).cuda().view(getattr(self.torch, storage_name(array.dtype)))

    def ms(self, launches, count):
        return self.gpu.ms(launches, count)

    def host(self, output):
        return output.float().cpu().numpy()


class Quack(Torch):
    def __init__(self, gpu):
        super().__init__(gpu)
        self.softmax, self.norm = imported("quack.softmax", "quack-kernels"), imported("quack.rmsnorm", "quack-kernels")

    def softmax_back(self, y, dy):
        y, dy = self.tensors(y, dy)
        return lambda: (self.softmax.softmax_bwd(dy, y),)

    def layer_norm_back(self, x, dy, alpha):
        x, dy, alpha = self.tensors(x, dy, alpha.astype(np.float32))  # the only type of alpha that it takes
        _, r, mean = self.norm.layernorm_fwd(x, alpha, alpha, EPS, return_rstd=True, return_mean=True)
        return lambda: self.norm.layernorm_bwd(x, alpha, dy, r, mean)


class Liger(Torch):
    def __init__(self, gpu):
        super().__init__(gpu)
        self.softmax = imported("liger_kernel.ops.softmax", "liger-kernel")
        self.norm = imported("liger_kernel.ops.layer_norm", "liger-kernel")

    def softmax_back(self, y, dy):
        y, dy = self.tensors(y, dy)
        settings = self.softmax.calculate_settings(y.shape[-1])
        return lambda: (self.softmax._softmax_backward(dy, y, *settings, False),)

    def layer_norm_back(self, x, dy, alpha):
        x, dy, alpha = self.tensors(x, dy, alpha)
        _, _, mean, r, *_ = self.norm.layer_norm_forward(x, alpha, alpha, EPS)
        return lambda: self.norm.layer_norm_backward(dy, x, alpha, alpha, mean, r)


def imported(module, package=None):
    try:
        return __import__(module, fromlist=["*"])
    except ImportError as error:
        raise Absent(f"not installed ({error}): pip install {package or module}") from None


def vulkan(software_too):
    """The device wgpu:vulkan, for submissions of any length: a server's GPU has no watchdog."""
    try:
        device = rg.Device("wgpu:vulkan")
    except rg.Error as error:
        raise Absent(str(error)) from None
    if device.info.kind == "software" and not software_too:
        raise Absent(f"the GPU has no Vulkan driver here, there is {device.info.name} alone")
    device._backend.limits = replace(device.limits, dispatch_elements=1 << 40)
    return device


def held_to_float64(device, most_elements, deadline):
    """The worst share of a bound for each dtype, and what was not within it."""
    worst, wrong, count, left_out = dict.fromkeys(STORAGE, 0.0), [], 0, 0
    for case in check.cases(full=False):
        if case.x.size > most_elements or time.monotonic() > deadline:
            left_out += 1
            continue
        for result in check.check_case(device, case):
            count += 1
            worst[result.dtype] = max(worst[result.dtype], result.share)
            if not result.ok:
                wrong.append(asdict(result))
    return {"results": count, "worst_share": worst, "wrong": wrong, "cases_left_out": left_out}


def shared_with_torch(device, torch):
    """Whether PyTorch's tensors are read in place and give the bits of our own copies, by dtype."""
    told = {}
    for storage, dtype in STORAGE.items():
        case = check.random_case(66, 96, dtype)
        y, dy = torch.tensors(case.y, case.dy)
        with_tensors = rg.softmax_back(y, dy, device=device).numpy()
        in_place = device.asarray(y)._buffer.array.data.ptr == y.data_ptr()
        told[storage] = in_place and with_tensors.tobytes() == rg.softmax_back(case.y, case.dy, device=device).tobytes()
    return told


@dataclass(frozen=True)
class Operands:
    """y a softmax or x, dy and alpha. Rows repeat themselves, for speed depends on no value: so do those of dx."""

    given: list[np.ndarray]
    expected: list[np.ndarray]


def operands(case):
    random = np.random.default_rng(1)
    rows = min(case.rows, REPEATED_ROWS)
    repeats = case.rows // rows
    first, dy = random.standard_normal((2, rows, case.d), np.float32)
    if case.kernel == "softmax_back":
        first = np.exp(first)
        first /= first.sum(-1, keepdims=True)
    alpha = 1 + random.standard_normal(case.d, np.float32) / 2
    first, dy, alpha = (one.astype(STORAGE[case.storage]) for one in (first, dy, alpha))
    tall = [np.tile(one, (repeats, 1)) for one in (first, dy)]
    if case.kernel == "softmax_back":
        return Operands(tall, [reference.softmax_back(first, dy)])
    truth = reference.layer_norm_back(first, dy, alpha, EPS)
    sums = (dy * truth.xhat).sum(0), dy.sum(0, dtype=np.float64)
    return Operands([*tall, alpha], [truth.dx, *(repeats * one for one in sums)])


def prepared(contender, case, given, sets):
    """The contender's launches, one for each set of operands, how many of them fill a round, and its largest gap.

    **Raises:** `Absent` if its gradient is another one.
    """
    launches = [getattr(contender, case.kernel)(*given.given) for _ in range(sets)]
    outputs = [contender.host(one) for one in launches[0]()]
    gap = float(np.max([gap_of(*pair) for pair in zip(outputs, given.expected, strict=True)]))
    if not gap < GAP:
        raise Absent(f"its gradient is another one: a gap of {gap:.1e}")
    ms, _ = contender.ms(launches, 1)
    return launches, max(sets, min(LAUNCHES, round(ROUND_MS / max(ms, 1e-3)))), gap


def gap_of(output, expected):
    """The largest error over the largest value, of the rows that are expected; NaN if there is one."""
    return np.abs(output[: len(expected)].astype(np.float64) - expected).max() / np.abs(expected).max()


def measure(case, contenders, gpu, rounds, deadline):
    """A row for each contender; they are all there."""
    given = operands(case)
    sets = max(1, math.ceil(CACHES * gpu.cache / case.nbytes))
    rows = {name: Row(case.kernel, case.storage, (case.rows, case.d), name) for name in contenders}
    ready = {}
    for name, contender in contenders.items():
        late = time.monotonic() > deadline
        found = Absent("no time was left") if late else got(prepared, contender, case, given, sets)
        if isinstance(found, Absent):
            rows[name].reason = str(found)
        else:
            *ready[name], rows[name].gap = found
    for _ in range(rounds):
        for name, (launches, count) in ready.items():
            time_round(rows[name], contenders[name], launches, count)
    return [summed_up(row, case.nbytes) for row in rows.values()]


def time_round(row, contender, launches, count):
    found = got(contender.ms, launches, count)
    if isinstance(found, Absent):
        row.reason = str(found)
    else:
        row.rounds_ms.append(found[0])
        row.host_bound |= found[1]


def summed_up(row, nbytes):
    if row.rounds_ms:
        row.ms = statistics.median(row.rounds_ms)
        row.gbs = nbytes / row.ms / 1e6
    return row


def with_ratios(rows, copy_gbs):
    torch = {(one.kernel, one.dtype, one.shape): one.ms for one in rows if one.contender == "PyTorch"}
    for one in rows:
        if one.ms is not None:
            one.share_of_copy = one.gbs / copy_gbs
            other = torch.get((one.kernel, one.dtype, one.shape))
            one.speedup_over_torch = other / one.ms if other else None
    return rows


def goals(rows):
    """Each goal, what was reached, and whether that is enough; None where it was not measured."""
    found = {(one.kernel, one.shape, one.contender): one for one in rows if one.dtype == "bfloat16"}
    told = []

    def tell(text, wanted, reached):
        met = None if reached is None else reached >= wanted
        told.append({"goal": text, "wanted": wanted, "reached": reached, "met": met})

    for (kernel, shape, contender), one in found.items():
        if contender == "cuda":
            other = found.get((kernel, shape, "wgpu:vulkan"))
            ratio = one.ms / other.ms if other and one.ms and other.ms else None
            text = f"{kernel} bfloat16 {shape[0]}×{shape[1]}"
            tell(f"{text}: share of copy", GOALS[kernel], one.share_of_copy)
            tell(f"{text}: times PyTorch", SPEEDUP_GOAL, one.speedup_over_torch)
            tell(f"{text}: wgpu:vulkan's speed over cuda's", VULKAN_GOAL, ratio)
    return told


def machine(device):
    """The card, its driver and the versions of what was measured."""
    packages = ("rowgrad-wgpu", "numpy", "wgpu", "torch", "quack-kernels", "liger-kernel", "triton")
    found = {}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    driver = Path("/proc/driver/nvidia/version")
    return {
        "card": device.info.name,
        "driver": driver.read_text().splitlines()[0] if driver.exists() else "unknown",
        "device": device.describe(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": found,
    }


def got(what: Callable, *given):
    """What a call gives, or why it gave nothing: another library's failure is a row."""
    try:
        return what(*given)
    except Absent as error:
        return error
    except Exception as error:
        return Absent(f"{type(error).__name__}: {error}"[:200])


def report(options):
    """Everything that is found."""
    begun = time.monotonic()
    cuda = rg.Device("cuda:0")
    other = got(vulkan, options.stand_in)
    gpu = Gpu(STAND_IN_BYTES if options.stand_in else COPIED_BYTES)
    made = {
        "cuda": Rowgrad(cuda, gpu),
        "wgpu:vulkan": other if isinstance(other, Absent) else RowgradVulkan(other, gpu),
        **{name: got(kind, gpu) for name, kind in (("PyTorch", Torch), ("QuACK", Quack), ("Liger", Liger))},
    }
    contenders = {name: one for name, one in made.items() if not isinstance(one, Absent)}

    most = STAND_IN_ELEMENTS if options.stand_in else math.inf
    until = {"cuda": begun + options.seconds * CHECK_SHARE / 2, "wgpu:vulkan": begun + options.seconds * CHECK_SHARE}
    told = {
        "stand_in": options.stand_in,
        "machine": machine(cuda),
        "absent": {name: str(one) for name, one in made.items() if isinstance(one, Absent)},
        "checks": {
            name: held_to_float64(contenders[name].device, most, until[name]) for name in until if name in contenders
        },
        "tensors_in_place": shared_with_torch(cuda, contenders["PyTorch"]) if "PyTorch" in contenders else {},
    }
    before, rows = gpu.copy_gbs(), []
    for case in cases(options.stand_in):
        rows += measure(case, contenders, gpu, 1 if options.stand_in else ROUNDS, begun + options.seconds)
        gpu.tidy()
    told["copy_gbs"] = max(before, gpu.copy_gbs())
    told["results"] = [asdict(one) for one in with_ratios(rows, told["copy_gbs"])]
    told["goals"] = goals(rows)
    told["seconds"] = time.monotonic() - begun
    return told


def cases(stand_in):
    shapes = STAND_IN_SHAPES if stand_in else SEED_SHAPES
    factors = (1,) if stand_in else (1, COLD_FACTOR)
    return [
        Case(kernel, storage, factor * rows, d)
        for factor in factors
        for storage in STORAGES
        for kernel, rows, d in shapes
    ]


def show(told, console):
    mark = "; a stand-in, no figure here is of a GPU" if told["stand_in"] else ""
    console.print(f"{told['machine']['card']}{mark}; driver {told['machine']['driver']}; {told['machine']['versions']}")
    console.print(checks_table(told), results_table(told), goals_table(told))


def checks_table(told):
    table = Table("device", "results", *(f"worst {name}" for name in STORAGE), "wrong", "cases left out")
    table.title = "against float64, errors as shares of their bounds"
    for name, found in told["checks"].items():
        shares = (f"{found['worst_share'][storage]:.2f}" for storage in STORAGE)
        table.add_row(name, str(found["results"]), *shares, str(len(found["wrong"])), str(found["cases_left_out"]))
    if told["tensors_in_place"]:
        table.add_row(
            "PyTorch's, in place", "", *("as copies" if told["tensors_in_place"][one] else "WRONG" for one in STORAGE)
        )
    return table


def results_table(told):
    table = Table(title=f"a copy within the GPU's memory: {told['copy_gbs']:,.0f} GB/s, read and written")
    for title in ("gradient", "dtype", "rows × d", "by"):
        table.add_column(title)
    for title in ("ms", "GB/s", "of copy", "× PyTorch", "slowest round"):
        table.add_column(title, justify="right")
    for one in told["results"]:
        rows, d = one["shape"]
        table.add_row(one["kernel"], one["dtype"], f"{rows}×{d}", one["contender"], *figures(one))
    for name, reason in told["absent"].items():
        table.add_row("", "", "", name, "", "", "", "", reason)
    return table


def figures(one):
    if one["ms"] is None:
        return "", "", "", "", one["reason"]
    speedup = "" if one["speedup_over_torch"] is None else f"{one['speedup_over_torch']:.2f}"
    slowest = f"+{100 * (max(one['rounds_ms']) / min(one['rounds_ms']) - 1):.0f} %"
    if one["host_bound"]:
        slowest += ", may have waited for the host"
    return f"{one['ms']:.4f}", f"{one['gbs']:,.0f}", f"{100 * one['share_of_copy']:.0f} %", speedup, slowest


def goals_table(told):
    table = Table("goal", "wanted", "reached", "")
    for one in told["goals"]:
        reached = "not measured" if one["reached"] is None else f"{one['reached']:.2f}"
        table.add_row(
            one["goal"], f"{one['wanted']:.2f}", reached, {True: "met", False: "MISSED", None: ""}[one["met"]]
        )
    return table


def sound(told):
    """Whether all that was checked is right."""
    return not any(one["wrong"] for one in told["checks"].values()) and all(told["tensors_in_place"].values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="PATH", help="where everything found is written")
    parser.add_argument("--seconds", type=float, default=210.0, help="when they are over, the rest is left out")
    parser.add_argument("--stand-in", action="store_true", help="on the tests' host GPU: no figure is of a GPU")
    options = parser.parse_args()
    if options.stand_in and options.json and RESULTS in options.json.resolve().parents:
        parser.error(f"{RESULTS.name}/ is for figures of GPUs")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 160)
    with stand_in() if options.stand_in else contextlib.nullcontext():
        try:
            told = report(options)
        except rg.DeviceUnavailable as error:
            parser.exit(1, f"{error}\n")
    show(told, console)
    if options.json:
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    sys.exit(not sound(told))


def stand_in():
    """The tests' host GPU in CuPy's place."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    import hostgpu

    return hostgpu.as_cupy(hostgpu.cupy.module())


if __name__ == "__main__":
    main()
