"""The benchmark of a GPU, run end to end on the host GPU, and what it says of a contender that fails."""

import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rowgrad_wgpu import check, reference
from rowgrad_wgpu.contract import STORAGE
from rowgrad_wgpu.device import Device

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "gpu.py"

on_host_gpu = pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux", reason="the host GPU is for Linux on x86-64"
)


@pytest.fixture(scope="module")
def gpu():
    spec = importlib.util.spec_from_file_location("benchmarks_gpu", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(*arguments):
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=280)


@on_host_gpu
def test_it_runs_end_to_end(tmp_path):
    out = tmp_path / "figures.json"
    done = run("--stand-in", "--json", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no figure here is of a GPU" in done.stdout
    told = json.loads(out.read_text(encoding="utf-8"))
    assert told["stand_in"] is True
    assert told["checks"]["cuda"]["results"] > 0
    assert {*told["checks"], *told["absent"]} == {"cuda", "wgpu:vulkan", "PyTorch", "QuACK", "Liger"}
    assert all(told["absent"].values())
    measured = {
        (one["kernel"], one["dtype"]) for one in told["results"] if one["contender"] == "cuda" and one["ms"] > 0
    }
    assert measured == {(kernel, storage) for kernel in ("softmax_back", "layer_norm_back") for storage in STORAGE}
    for name in told["absent"]:
        assert name in done.stdout


@on_host_gpu
def test_results_are_for_figures_of_gpus():
    path = SCRIPT.parent / "results" / "mine.json"
    done = run("--stand-in", "--json", str(path))
    assert done.returncode == 2
    assert "results/ is for figures of GPUs" in done.stderr
    assert not path.exists()


def test_without_a_gpu_it_says_what_is_missing(gpu, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 1
    assert "cuda13x" in capsys.readouterr().err


class Contender:
    """The CPU device, by the clock; `factor` makes it wrong."""

    def __init__(self, gpu, factor=1.0, ms=1.0):
        self.inner, self.factor, self.told_ms = gpu.Rowgrad(Device("cpu"), None), factor, ms

    def softmax_back(self, y, dy):
        return self.inner.softmax_back(y, dy)

    def host(self, output):
        return output.numpy().astype(np.float32) * self.factor

    def ms(self, launches, count):
        return self.told_ms, False


class Failing(Contender):
    def ms(self, launches, count):
        raise ValueError("a kernel that does not compile")


def measured(gpu, deadline, **contenders):
    case = gpu.Case("softmax_back", "bfloat16", 4, 8)
    rows = gpu.measure(case, contenders, SimpleNamespace(cache=10 * case.nbytes), 3, deadline)
    return {one.contender: one for one in rows}


def test_a_contender_that_is_wrong_or_fails_is_a_row(gpu):
    later = time.monotonic() + 100
    rows = measured(gpu, later, cuda=Contender(gpu), other=Contender(gpu, factor=1.2), PyTorch=Failing(gpu))
    assert rows["cuda"].rounds_ms == [1.0, 1.0, 1.0]
    assert rows["cuda"].gap < 0.01
    assert rows["other"].reason == "its gradient is another one: a gap of 2.0e-01"
    assert rows["PyTorch"].reason == "ValueError: a kernel that does not compile"
    assert rows["other"].ms is rows["PyTorch"].ms is None


def test_a_nan_in_any_output_is_found(gpu):
    case = gpu.Case("layer_norm_back", "float32", 4, 8)
    given = gpu.operands(case)
    outputs = [one.copy() for one in given.expected]
    contender = SimpleNamespace(
        layer_norm_back=lambda *arrays: lambda: outputs, host=np.asarray, ms=lambda *_: (1.0, False)
    )
    assert gpu.prepared(contender, case, given, 1)[2] == 0
    outputs[1][3] = np.nan
    with pytest.raises(gpu.Absent, match="a gap of nan"):
        gpu.prepared(contender, case, given, 1)


def test_when_the_time_is_over_the_rest_is_left_out(gpu):
    assert measured(gpu, time.monotonic() - 1, cuda=Contender(gpu))["cuda"].reason == "no time was left"
    left_out = gpu.held_to_float64(Device("cpu"), 1e9, time.monotonic() - 1)
    assert (left_out["results"], left_out["cases_left_out"]) == (0, len(list(check.cases(full=False))))


@pytest.mark.parametrize("kernel", ["softmax_back", "layer_norm_back"])
def test_repeated_rows_have_the_gradients_of_the_whole(gpu, kernel):
    case = gpu.Case(kernel, "float16", 3 * gpu.REPEATED_ROWS, 8)
    found = gpu.operands(case)
    first, dy, *alpha = found.given
    assert first.shape == dy.shape == (case.rows, case.d)
    if kernel == "softmax_back":
        wanted = [reference.softmax_back(first, dy)]
    else:
        truth = reference.layer_norm_back(first, dy, *alpha, 1e-5)
        wanted = [truth.dx, (dy * truth.xhat).sum(0), dy.sum(0, dtype=np.float64)]
    for got, whole in zip(found.expected, wanted, strict=True):
        np.testing.assert_allclose(got, whole[: len(got)], rtol=1e-9)


def test_the_operands_of_a_round_exceed_the_cache(gpu):
    case = gpu.Case("softmax_back", "float32", 16, 8)
    made = []
    contender = Contender(gpu)
    contender.softmax_back = lambda y, dy: made.append(1) or contender.inner.softmax_back(y, dy)
    gpu.measure(case, {"cuda": contender}, SimpleNamespace(cache=2 * case.nbytes), 1, time.monotonic() + 100)
    assert len(made) == 8


def test_the_goals(gpu):
    rows = measured(
        gpu,
        time.monotonic() + 100,
        **{"cuda": Contender(gpu, ms=1.0), "wgpu:vulkan": Contender(gpu, ms=1.25), "PyTorch": Contender(gpu, ms=2.0)},
    )
    with_ratios = gpu.with_ratios(list(rows.values()), copy_gbs=rows["cuda"].gbs)
    share, speedup, vulkan = gpu.goals(with_ratios)
    assert (share["reached"], share["met"]) == (1.0, True)
    assert (speedup["reached"], speedup["met"]) == (2.0, True)
    assert (vulkan["reached"], vulkan["met"]) == (0.8, False)
    assert [one["met"] for one in gpu.goals(with_ratios[:1])] == [True, True, None]


def test_launches_that_waited_for_the_host_are_measured_behind_more_copies(gpu):
    """An event that is over before the last launch has gone out says that the GPU may have waited."""
    copies, needed = [], 20

    class Event:
        def record(self):
            self.done = len(copies) < needed

        def synchronize(self):
            copies.clear()

    clock = gpu.Gpu.__new__(gpu.Gpu)
    clock.cupy = SimpleNamespace(cuda=SimpleNamespace(Event=Event, get_elapsed_time=lambda start, stop: 6.0))
    clock.copy = lambda: copies.append(1)
    assert clock.ms([lambda: None], 3) == (2.0, False)
    needed = 10 * gpu.MOST_AHEAD
    assert clock.ms([lambda: None], 3) == (2.0, True)


def test_a_wrong_result_is_the_exit_status(gpu, monkeypatch):
    right = check.softmax_back
    monkeypatch.setattr(check, "softmax_back", lambda *given, **more: right(*given, **more) * np.float32(1.01))
    checks = {"cuda": gpu.held_to_float64(Device("cpu"), 500, time.monotonic() + 100)}
    assert json.loads(json.dumps(checks))["cuda"]["wrong"]
    assert not gpu.sound({"checks": checks, "tensors_in_place": {}})
    monkeypatch.undo()
    checks = {"cuda": gpu.held_to_float64(Device("cpu"), 500, time.monotonic() + 100)}
    assert gpu.sound({"checks": checks, "tensors_in_place": {"float32": True}})
    assert not gpu.sound({"checks": checks, "tensors_in_place": {"float32": False}})
