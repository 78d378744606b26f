"""This package against others: one machine, one run, one gradient, the data resident and the output ready.

    pip install 'rowgrad-wgpu[peers]'
    python benchmarks/peers.py [--device SPEC] [--quick]

float32, the type that all of them have. Each contender has a process of its own and is checked against the float64
oracle before it is timed; one that is not installed, fails, crashes or does not answer is a row that says why. Rounds
go round the contenders, so that what slows the machine slows all. Each computes in the fastest of its own ways that
was found: PyTorch by its backward operators, its LayerNorm with the mean and r that its forward pass leaves; MLX and
ferrotensor by the backward pass of their own layer_norm; the others by the formulas, compiled where they compile.
"""

import argparse
import multiprocessing
import os
import platform
import statistics
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from rowgrad_wgpu import reference

EPS = 1e-5
GAP = 1e-5  # the seed's tolerance: the largest error over the largest value
LAUNCHES = 50  # behind one wait, at most
PATIENCE = 300.0  # seconds

SHAPES = (("softmax_back", 4096, 1024), ("softmax_back", 16384, 1024), ("layer_norm_back", 8192, 768))
QUICK_SHAPES = (("softmax_back", 512, 1024), ("layer_norm_back", 512, 768))


class Absent(Exception):
    """A contender that cannot compete here, and why."""


def softmax_formula(y, dy, row_sum):
    return (y * (dy - row_sum(dy * y)),)


def layer_norm_formula(x, dy, alpha, row_mean, column_sum):
    centred = x - row_mean(x)
    r = (row_mean(centred * centred) + EPS) ** -0.5
    xhat = centred * r
    u = dy * alpha
    dx = r * (u - row_mean(u) - xhat * row_mean(u * xhat))
    return dx, column_sum(dy * xhat), column_sum(dy)


class Rowgrad:
    """This package; `softmax_back` and `layer_norm_back` of every contender give a launch that returns its outputs."""

    def __init__(self, spec):
        import rowgrad_wgpu

        self.library, self.device = rowgrad_wgpu, rowgrad_wgpu.Device(spec)
        self.version = f"{rowgrad_wgpu.__version__} on {self.device.info.spec}, {self.device.info.name}"

    def softmax_back(self, y, dy):
        y, dy, dx = map(self.device.asarray, (y, dy, dy))
        return lambda: (self.library.softmax_back(y, dy, out=dx),)

    def layer_norm_back(self, x, dy, alpha):
        x, dy, alpha, dx, dalpha, dbeta = map(self.device.asarray, (x, dy, alpha, dy, alpha, alpha))
        return lambda: self.library.layer_norm_back(x, dy, alpha, eps=EPS, out=(dx, dalpha, dbeta))

    def wait(self, outputs):
        self.device.synchronize()

    def host(self, output):
        return output.numpy()


class Numpy:
    def __init__(self):
        self.version = np.__version__

    def softmax_back(self, y, dy):
        return lambda: softmax_formula(y, dy, lambda a: a.sum(-1, keepdims=True))

    def layer_norm_back(self, x, dy, alpha):
        return lambda: layer_norm_formula(x, dy, alpha, lambda a: a.mean(-1, keepdims=True), lambda a: a.sum(0))

    def wait(self, outputs):
        pass

    def host(self, output):
        return output


class Tinygrad:
    def __init__(self, device):
        if device == "WEBGPU":
            os.environ.setdefault("WEBGPU_PATH", str(dawn_library()))
        from tinygrad import Device, Tensor, TinyJit

        self.tensor, self.jit, self.name, self.device = Tensor, TinyJit, device, Device[device]
        self.version = version("tinygrad")
        if device == "WEBGPU":
            self.version += f", dawn-python {version('dawn-python')}"

    def softmax_back(self, y, dy):
        return self._launch(partial(softmax_formula, row_sum=lambda a: a.sum(-1, keepdim=True)), y, dy)

    def layer_norm_back(self, x, dy, alpha):
        row_mean, column_sum = lambda a: a.mean(-1, keepdim=True), lambda a: a.sum(0)
        formula = partial(layer_norm_formula, row_mean=row_mean, column_sum=column_sum)
        return self._launch(formula, x, dy, alpha)

    def _launch(self, formula, *arrays):
        given = [self.tensor(array, device=self.name).realize() for array in arrays]

        @self.jit
        def jitted(*tensors):
            outputs = formula(*tensors)
            self.tensor.realize(*outputs)
            return outputs

        return lambda: jitted(*given)

    def wait(self, outputs):
        self.device.synchronize()

    def host(self, output):
        return output.numpy()


def dawn_library():
    """The library that dawn-python brings."""
    found = find_spec("pydawn")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("pydawn")
    ending = {"linux": "so", "darwin": "dylib"}.get(sys.platform, "dll")
    machine = "" if ending == "dll" else f"_{platform.machine()}"
    return Path(found.origin).parent / "lib" / f"libwebgpu_dawn{machine}.{ending}"


class Ferrotensor:
    """Waits for every launch: with two of 4096×1024 under way its process dies on lavapipe (0.3.0)."""

    def __init__(self):
        import ferrotensor

        self.library, self.version = ferrotensor, version("ferrotensor")
        if not ferrotensor.Device.gpu_available():
            raise Absent("it finds no adapter")

    def softmax_back(self, y, dy):
        y, dy = self._tensors(y, dy)
        return lambda: self._done(softmax_formula(y, dy, lambda a: a.sum(-1, True)))

    def layer_norm_back(self, x, dy, alpha):
        x, alpha, beta = leaves = self._tensors(x, alpha, alpha, requires_grad=True)
        (dy,) = self._tensors(dy)
        out = self.library.nn.functional.layer_norm(x, alpha, beta, EPS)

        def launch():
            for leaf in leaves:
                leaf.grad = None
            out.backward(dy)
            return self._done(tuple(leaf.grad for leaf in leaves))

        return launch

    def _tensors(self, *arrays, requires_grad=False):
        return [self.library.tensor(one, device="gpu", requires_grad=requires_grad) for one in arrays]

    def _done(self, outputs):
        outputs[-1].flatten().narrow(0, 0, 1).item()
        return outputs

    def wait(self, outputs):
        pass

    def host(self, output):
        return np.array(output.tolist(), np.float32)


class Torch:
    def __init__(self, device):
        import torch

        there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        if not there[device]:
            raise Absent(f"it finds no {device} device")
        self.torch, self.device, self.version = torch, device, torch.__version__

    def softmax_back(self, y, dy):
        y, dy = self._tensors(y, dy)
        return lambda: (self.torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype),)

    def layer_norm_back(self, x, dy, alpha):
        x, dy, alpha = self._tensors(x, dy, alpha)
        shape = [x.shape[-1]]
        _, mean, r = self.torch.ops.aten.native_layer_norm(x, shape, alpha, alpha, EPS)
        backward = self.torch.ops.aten.native_layer_norm_backward
        return lambda: backward(dy, x, shape, mean, r, alpha, alpha, [True, True, True])

    def _tensors(self, *arrays):
        return [self.torch.from_numpy(array).to(self.device) for array in arrays]

    def wait(self, outputs):
        if self.device != "cpu":
            getattr(self.torch, self.device).synchronize()

    def host(self, output):
        return output.cpu().numpy()


class Jax:
    def __init__(self):
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax

        self.jax, self.version = jax, jax.__version__

    def softmax_back(self, y, dy):
        return self._launch(partial(softmax_formula, row_sum=lambda a: a.sum(-1, keepdims=True)), y, dy)

    def layer_norm_back(self, x, dy, alpha):
        row_mean, column_sum = lambda a: a.mean(-1, keepdims=True), lambda a: a.sum(0)
        formula = partial(layer_norm_formula, row_mean=row_mean, column_sum=column_sum)
        return self._launch(formula, x, dy, alpha)

    def _launch(self, formula, *arrays):
        given, jitted = self.jax.device_put(arrays), self.jax.jit(formula)
        return lambda: jitted(*given)

    def wait(self, outputs):
        self.jax.block_until_ready(outputs)

    def host(self, output):
        return np.asarray(output)


class Mlx:
    def __init__(self):
        import mlx.core

        self.mlx = mlx.core
        self.version = f"{version('mlx')} on {mlx.core.default_device()}"

    def softmax_back(self, y, dy):
        row_sum = partial(self.mlx.sum, axis=-1, keepdims=True)
        return self._launch(self.mlx.compile(partial(softmax_formula, row_sum=row_sum)), y, dy)

    def layer_norm_back(self, x, dy, alpha):
        forward = partial(self.mlx.fast.layer_norm, eps=EPS)
        return self._launch(lambda x, dy, alpha: self.mlx.vjp(forward, [x, alpha, alpha], [dy])[1], x, dy, alpha)

    def _launch(self, gradients, *arrays):
        given = [self.mlx.array(array) for array in arrays]
        self.mlx.eval(given)

        def launch():
            outputs = tuple(gradients(*given))
            self.mlx.async_eval(outputs)
            return outputs

        return launch

    def wait(self, outputs):
        self.mlx.eval(outputs)

    def host(self, output):
        return np.array(output)


def contenders(spec):
    """Names and how each is opened, this package first."""
    return {
        "rowgrad_wgpu": partial(Rowgrad, spec),
        "rowgrad_wgpu cpu": partial(Rowgrad, "cpu"),
        "NumPy": Numpy,
        "tinygrad WEBGPU": partial(Tinygrad, "WEBGPU"),
        "tinygrad CPU": partial(Tinygrad, "CPU"),
        "ferrotensor gpu": Ferrotensor,
        "PyTorch cpu": partial(Torch, "cpu"),
        "PyTorch cuda": partial(Torch, "cuda"),
        "PyTorch mps": partial(Torch, "mps"),
        "JAX cpu": Jax,
        "MLX": Mlx,
    }


def work(pipe, opened):
    """A contender's process: answers (True, value) or (False, the reason)."""
    try:
        contender = opened()
        pipe.send((True, contender.version))
        launch, count = None, 0
        while True:
            task, *given = pipe.recv()
            if task == "prepare":
                launch, count = prepared(contender, *given)
                pipe.send((True, count))
            else:
                pipe.send((True, ms_a_launch(contender, launch, count)))
    except EOFError:
        pass
    except ImportError as error:
        pipe.send((False, f"not installed ({error}): pip install 'rowgrad-wgpu[peers]'"))
    except Absent as error:
        pipe.send((False, str(error)))
    except Exception as error:
        text = str(error).strip().splitlines()
        pipe.send((False, f"{type(error).__name__}: {text[-1] if text else ''}"[:200]))


def prepared(contender, kernel, rows, d, seconds):
    """The launch on resident data, warmed up, and how many of them take about `seconds`."""
    check(contender, kernel, d)
    launch = getattr(contender, kernel)(*arrays_of(kernel, rows, d))
    ms_a_launch(contender, launch, 1)
    ms = ms_a_launch(contender, launch, 2)
    return launch, min(LAUNCHES, max(1, round(seconds * 1e3 / ms)))


def check(contender, kernel, d):
    """Refuses a contender whose gradient is another one."""
    given = arrays_of(kernel, 70, d)
    outputs = [contender.host(one) for one in getattr(contender, kernel)(*given)()]
    if kernel == "softmax_back":
        wanted = [reference.softmax_back(*given)]
    else:
        truth = reference.layer_norm_back(*given, EPS)
        wanted = [truth.dx, (given[1] * truth.xhat).sum(0), given[1].sum(0, dtype=np.float64)]
    for got, expected in zip(outputs, wanted, strict=True):
        gap = np.abs(got - expected).max() / np.abs(expected).max()
        if not gap < GAP:
            raise Absent(f"its gradient is another one: a gap of {gap:.1e}")


def arrays_of(kernel, rows, d):
    random = np.random.default_rng([rows, d])
    x, dy = random.standard_normal((2, rows, d), dtype=np.float32)
    if kernel == "softmax_back":
        powers = np.exp(x)
        return powers / powers.sum(-1, keepdims=True), dy
    return x, dy, 1 + random.standard_normal(d, dtype=np.float32) / 2


def ms_a_launch(contender, launch, count):
    begun = time.perf_counter()
    for _ in range(count):
        outputs = launch()
    contender.wait(outputs)
    return (time.perf_counter() - begun) * 1e3 / count


@dataclass
class Seat:
    """A contender's process as the judge sees it; `reason` is set once it is out."""

    name: str
    opened: object
    version: str = ""
    reason: str = ""
    rounds: list = field(default_factory=list)

    def start(self):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, self.opened), daemon=True)
        self.process.start()
        other.close()
        self.version = self.answer() or ""

    def ask(self, *task):
        """The answer to a task, None from one that is out."""
        if self.reason:
            return None
        with suppress(OSError):  # it has died; the answer says so
            self.pipe.send(task)
        return self.answer()

    def answer(self):
        try:
            if not self.pipe.poll(PATIENCE):
                self.reason = f"no answer in {PATIENCE:.0f} s"
                self.process.kill()
                return None
            well, value = self.pipe.recv()
        except EOFError:
            self.process.join()
            well, value = False, f"its process ended with status {self.process.exitcode}"
        if not well:
            self.reason = value
        return value if well else None


def compete(seats, kernel, rows, d, rounds, seconds):
    """A table of one gradient at one shape."""
    for seat in seats:
        seat.rounds = []
        seat.ask("prepare", kernel, rows, d, seconds)
    for _ in range(rounds):
        for seat in seats:
            ms = seat.ask("time")
            if ms is not None:
                seat.rounds.append(ms)
    table = Table("", "version", title=f"{kernel} float32 {rows}×{d}")
    for title in ("ms", "slowest round", f"× {seats[0].name}", f"× {seats[1].name}"):
        table.add_column(title, justify="right")
    for seat in seats:
        table.add_row(*row(seat, seats[:2]))
    return table


def row(seat, ours):
    if seat.reason:
        return seat.name, f"{seat.version} {seat.reason}".strip(), "", "", "", ""
    ms = statistics.median(seat.rounds)
    ratios = ["" if one.reason else f"{ms / statistics.median(one.rounds):.2f}" for one in ours]
    return seat.name, seat.version, f"{ms:.2f}", f"+{100 * (max(seat.rounds) / min(seat.rounds) - 1):.0f} %", *ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto", metavar="SPEC", help="this package's device beside its CPU device")
    parser.add_argument("--quick", action="store_true", help="small shapes, fewer rounds")
    options = parser.parse_args()
    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    seats = [Seat(name, opened) for name, opened in contenders(options.device).items()]
    for seat in seats:
        seat.start()
    for shape in QUICK_SHAPES if options.quick else SHAPES:
        console.print(compete(seats, *shape, *((3, 0.1) if options.quick else (5, 0.5))))


if __name__ == "__main__":
    main()
