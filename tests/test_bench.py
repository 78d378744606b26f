"""The bench: what it measures, what it tells, and that its yardstick is right."""

import dataclasses
import json
import re
import sys
import time
from contextlib import nullcontext

import numpy as np
import pytest
from grids import inputs
from test_package import PACKAGE, imported

from rowgrad_wgpu import bench, bounds, cli, picture, source
from rowgrad_wgpu.contract import STORAGE, column_additions
from rowgrad_wgpu.device import Device
from rowgrad_wgpu.errors import Error, OutOfMemory
from rowgrad_wgpu.yardstick import webgpu as yardstick_webgpu
from rowgrad_wgpu.yardstick import yardstick_of

EFFORT = bench.Effort(rounds=2, seconds=0.0)
TINY = [
    bench.Case("seed", "softmax_back", "bfloat16", 6, 8, EFFORT),
    bench.Case("seed", "layer_norm_back", "bfloat16", 5, 8, EFFORT),
    bench.Case("cold", "layer_norm_back", "float32", 70, 12, EFFORT),
    bench.Case("sweep", "softmax_back", "float16", 4, 7, EFFORT),
]


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(bench, "cases", lambda quick: TINY)


def test_the_json_is_what_is_promised(tiny, device, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli, "Device", lambda spec: nullcontext(device))
    out = tmp_path / "speed.json"
    assert cli.main(["bench", "--device", device.info.spec, "--json", str(out)]) == 0
    told = json.loads(out.read_text(encoding="utf-8"))
    assert list(told) == ["device", "copy_gbs", "results"]
    assert told["device"] == dataclasses.asdict(device.info)
    assert told["copy_gbs"] > 0
    for case, result in zip(TINY, told["results"], strict=True):
        assert list(result) == ["kernel", "dtype", "shape", "ms", "gbs", "share_of_copy", "speedup_over_seed"]
        assert (result["kernel"], result["dtype"], result["shape"]) == (case.kernel, case.storage, [case.rows, case.d])
        assert result["ms"] > 0
        assert result["gbs"] > 0
        assert result["share_of_copy"] > 0
        taken = device.info.backend != "webgpu" or case.d % 2 == 0
        assert (result["speedup_over_seed"] is not None) == taken
    assert sorted(path.name for path in tmp_path.iterdir()) == ["speed.json"]
    assert device.info.name in capsys.readouterr().out


def test_the_seeds_lines(tiny, capsys):
    assert cli.main(["bench", "--device", "cpu"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[small speed")]
    assert len(lines) == 2
    assert re.fullmatch(r"\[small speed cpu\] softmax backward 6x8: \d+\.\d{3} ms", lines[0])
    assert re.fullmatch(r"\[small speed cpu\] layer norm backward 5x8: \d+\.\d{3} ms", lines[1])


@pytest.mark.parametrize("specs", [["--device", "cpu", "cpu"], ["--device", "cpu", "--device", "cpu"]])
def test_several_devices(tiny, specs, tmp_path, capsys):
    out = tmp_path / "speed.json"
    assert cli.main(["bench", *specs, "--json", str(out)]) == 0
    told = json.loads(out.read_text(encoding="utf-8"))
    assert [one["device"]["spec"] for one in told] == ["cpu", "cpu"]
    assert capsys.readouterr().out.count("softmax backward") == 2


def test_existing_outputs_are_kept(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "run", lambda *given: pytest.fail("measured for nothing"))
    for option in ("--json", "--plot"):
        out = tmp_path / "mine"
        out.write_bytes(b"mine")
        assert cli.main(["bench", "--device", "cpu", option, str(out)]) == 1
        assert "--force" in capsys.readouterr().err
        assert out.read_bytes() == b"mine"
    monkeypatch.undo()
    monkeypatch.setattr(bench, "cases", lambda quick: TINY)
    assert cli.main(["bench", "--device", "cpu", "--json", str(out), "--force"]) == 0
    assert json.loads(out.read_text(encoding="utf-8"))["device"]["spec"] == "cpu"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--json", "FOLDER/no/o.json"], "No such file"),
        (["--json", "FOLDER/o", "--plot", "FOLDER/o"], "two files"),
        (["--json", "FOLDER/o.json", "--device", "cpu", "nonsense"], "wgpu:metal"),
    ],
)
def test_what_cannot_work_is_refused_before_the_work(arguments, text, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "run", lambda *given: pytest.fail("measured for nothing"))
    given = [one.replace("FOLDER", str(tmp_path)) for one in arguments]
    assert cli.main(["bench", *given, *([] if "--device" in given else ["--device", "cpu"])]) == 1
    assert text in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "run", lambda *given: pytest.fail("measured for nothing"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(["bench", "--device", "cpu", "--plot", str(tmp_path / "o.png")]) == 1
    assert "pip install 'rowgrad-wgpu[plot]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_failure_midway_leaves_nothing(tiny, tmp_path, capsys, monkeypatch):
    def fail(*given):
        raise Error("as planned")

    monkeypatch.setattr(bench, "measure", fail)
    assert cli.main(["bench", "--device", "cpu", "--json", str(tmp_path / "o.json")]) == 1
    assert "as planned" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_the_memory_does_not_hold_is_left_out(tiny, tmp_path, capsys, monkeypatch):
    right = bench.measure

    def small_device(device, case, *rest):
        if case.group == "cold":
            raise OutOfMemory("as planned")
        return right(device, case, *rest)

    monkeypatch.setattr(bench, "measure", small_device)
    assert cli.main(["bench", "--device", "cpu", "--json", str(tmp_path / "o.json")]) == 0
    assert "left out, the memory does not hold it: layer_norm_back float32 70×12" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))["results"]) == len(TINY) - 1


def test_the_picture_is_black_and_white(tiny, tmp_path):
    from matplotlib import image

    out = tmp_path / "speed.png"
    assert cli.main(["bench", "--device", "cpu", "cpu", "--plot", str(out)]) == 0
    pixels = image.imread(out)[..., :3]
    assert np.ptp(pixels, axis=-1).max() == 0
    assert pixels.min() == 0
    assert pixels.shape[0] > pixels.shape[1] / 2, "a row of pictures for each device"


@pytest.mark.parametrize("case", [TINY[0], TINY[-1]], ids=["no sweep", "nothing but the sweep"])
def test_a_picture_of_little(cpu, case, tmp_path):
    report = bench.Report(cpu.info, False, [bench.measure(cpu, case, None)], [])
    assert report.copy_gbs is None
    picture.draw([report], tmp_path / "o.png")
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")


def test_figures_are_medians_of_the_rounds():
    case = bench.Case("seed", "softmax_back", "bfloat16", 1000, 500, EFFORT)
    rounds = {"ours": [2.0, 3.0, 2.5], "copy": [1.0, 9.0, 2.0], "seed": [20.0, 25.0, 90.0]}
    result = bench._result(case, rounds, 7)
    assert result.ms == 2.5
    # 1000 × 500 elements of two bytes: y and dy read, dx written; a copy reads one array and writes one.
    assert result.gbs == pytest.approx(3_000_000 / 2.5e-3 / 1e9)
    assert result.copy_gbs == pytest.approx(2_000_000 / 2.0e-3 / 1e9)
    assert result.share_of_copy == pytest.approx(result.gbs / result.copy_gbs)
    assert result.speedup_over_seed == pytest.approx(10)
    assert result.spread == 1.5
    assert (result.shape, result.dtype, result.launches) == ((1000, 500), "bfloat16", 7)


@pytest.mark.parametrize(("storage", "size"), [("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_bytes_are_counted_by_the_type(storage, size):
    for kernel in ("softmax_back", "layer_norm_back"):
        case = bench.Case("seed", kernel, storage, 1_000_000, 1, EFFORT)
        assert bench._result(case, {"ours": [1.0]}, 1).gbs == pytest.approx(3 * size)


def test_contenders_take_turns(cpu, monkeypatch):
    turns = []

    def timed_launch(device, clock, launch, count):
        turns.append((launch, count))
        return 10.0

    monkeypatch.setattr(bench, "_ms_a_launch", timed_launch)
    case = dataclasses.replace(TINY[0], effort=bench.Effort(rounds=3, seconds=0.2))
    assert bench.measure(cpu, case, yardstick_of(cpu)).launches == 20
    warm_ups, measured = turns[:6], turns[6:]
    assert [count for _, count in warm_ups] == [1, bench.WARM_UPS - 1] * 3
    assert len({launch for launch, _ in measured}) == 3
    assert measured == measured[:3] * 3


def test_a_slow_contender_is_timed_once(cpu, monkeypatch):
    slow = yardstick_of(cpu)
    monkeypatch.setattr(slow, "softmax_back", lambda *given: "slow")
    timed = []

    def timed_launch(device, clock, launch, count):
        timed.append(launch)
        return bench.SLOW_MS if launch == "slow" else 1.0

    monkeypatch.setattr(bench, "_ms_a_launch", timed_launch)
    result = bench.measure(cpu, dataclasses.replace(TINY[0], effort=bench.Effort(rounds=3, seconds=0.1)), slow)
    assert result.speedup_over_seed == bench.SLOW_MS
    assert timed.count("slow") == 2, "once to warm up, once for the figure"
    assert len(timed) == 2 + 2 * (2 + 3)


@pytest.mark.parametrize(("ms", "seconds", "launches"), [(1000, 0.1, 1), (10, 0.1, 10), (0.01, 2.0, 50)])
def test_as_many_launches_as_the_seeds_at_most(ms, seconds, launches):
    assert bench._warmed_up(lambda launch, count: ms, lambda: None, seconds) == launches


def test_the_mean_of_launches_behind_one_wait(cpu, monkeypatch):
    events = []
    monkeypatch.setattr(bench.time, "perf_counter", lambda: events.append("clock") or len(events) / 10)
    monkeypatch.setattr(Device, "synchronize", lambda self: events.append("wait"))
    assert bench._ms_a_launch(cpu, None, lambda: events.append("launch"), 3) == pytest.approx((6 - 1) / 10 * 1e3 / 3)
    assert events == ["clock", "launch", "launch", "launch", "wait", "clock"]


def test_the_device_has_a_clock(device, capsys):
    clock = yardstick_of(device).clock()
    assert (clock is None) == (device.info.backend == "cpu")
    if clock is not None:
        assert clock.ms(lambda: time.sleep(0.03)) == pytest.approx(30, rel=0.9)
    case = TINY[1]
    report = bench.run(device, [case], lambda done, total: None)
    assert report.own_clock == (clock is not None)
    cli._print_report(report)
    assert ("device's clock" if clock else "Wall clock") in capsys.readouterr().out


def test_timestamps_that_stand_still_are_not_taken(webgpu, monkeypatch):
    monkeypatch.setattr(yardstick_webgpu.Timestamps, "ms", lambda self, run: 0.0)
    assert yardstick_of(webgpu).clock() is None


def test_the_cases_are_the_seeds_and_more():
    listed = bench.cases(quick=False)
    for storage in STORAGE:
        for kernel, rows, d in (("softmax_back", 16384, 1024), ("layer_norm_back", 8192, 768)):
            found = [
                (one.group, one.rows) for one in listed if (one.kernel, one.storage, one.d) == (kernel, storage, d)
            ]
            assert [("seed", rows), ("cold", 8 * rows)] == [one for one in found if one[0] != "sweep"]
    sweep = [one for one in listed if one.group == "sweep"]
    assert {one.kernel for one in sweep} == {"softmax_back", "layer_norm_back"}
    assert {32, 131_072} <= {one.d for one in sweep}
    assert {one.d + 1 for one in sweep if one.d % 2} <= {one.d for one in sweep}
    for one in sweep:
        assert one.rows * one.d == pytest.approx(1 << 24, rel=0.01)
    assert len(bench.cases(quick=True)) < len(listed)


def arrays(device, rows, d, storage):
    given = inputs(rows, d, storage)
    return given, {name: device.asarray(one) for name, one in given.items()}


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("shape", [(1, 2), (3, 256), (70, 258), (5, 1026), (201, 6)])
def test_the_yardstick_is_right(device, shape, storage):
    given, resident = arrays(device, *shape, storage)
    yardstick = yardstick_of(device)
    dx = device.empty(shape, STORAGE[storage])
    yardstick.softmax_back(resident["y"], resident["dy"], dx)()
    assert bounds.share(dx.numpy(), bounds.softmax_back(given["y"], given["dy"], storage)) <= 1
    sums = [device.empty(shape[1], np.float32) for _ in range(2)]
    yardstick.layer_norm_back(resident["x"], resident["dy"], resident["alpha"], 1e-3, dx, *sums)()
    additions = column_additions(shape[0])
    expected = bounds.layer_norm_back(given["x"], given["dy"], given["alpha"], 1e-3, storage, additions)
    for name, got in zip(("dx", "dalpha", "dbeta"), (dx, *sums), strict=True):
        assert bounds.share(got.numpy(), getattr(expected, name)) <= 1, name


def test_the_yardstick_on_odd_rows(webgpu):
    """WGSL stores whole words: 16-bit rows of odd d are not taken, float32 ones are."""
    yardstick = yardstick_of(webgpu)
    given, resident = arrays(webgpu, 9, 33, "float32")
    dx = webgpu.empty((9, 33), np.float32)
    yardstick.softmax_back(resident["y"], resident["dy"], dx)()
    assert bounds.share(dx.numpy(), bounds.softmax_back(given["y"], given["dy"], "float32")) <= 1
    for storage in ("float16", "bfloat16"):
        _, resident = arrays(webgpu, 9, 33, storage)
        dx, sums = webgpu.empty((9, 33), STORAGE[storage]), [webgpu.empty(33, np.float32) for _ in range(2)]
        assert yardstick.softmax_back(resident["y"], resident["dy"], dx) is None
        assert yardstick.layer_norm_back(resident["x"], resident["dy"], resident["alpha"], 1e-5, dx, *sums) is None


def test_the_yardstick_in_windows(adapter):
    """Bindings of a few rows, a grid of a few workgroups: the same bits as in one piece."""
    rows, d = 299, 48
    _, resident = arrays(adapter, rows, d, "bfloat16")

    def results(yardstick):
        dx, sums = adapter.empty((rows, d), STORAGE["bfloat16"]), [adapter.empty(d, np.float32) for _ in range(2)]
        yardstick.softmax_back(resident["y"], resident["dy"], dx)()
        softmax = dx.numpy().tobytes()
        yardstick.layer_norm_back(resident["x"], resident["dy"], resident["alpha"], 1e-5, dx, *sums)()
        return [softmax, *(one.numpy().tobytes() for one in (dx, *sums))]

    whole, pieces = yardstick_of(adapter), yardstick_of(adapter)
    alignment = adapter.limits.binding_alignment
    pieces._limits = dataclasses.replace(adapter.limits, binding_bytes=500 * alignment, groups_per_dimension=70)
    aligned = alignment // 8  # rows whose (mean, r) a binding may begin with
    most = 70 // aligned * aligned
    assert list(pieces._windows(rows, [2 * d, 8])) == [
        range(start, min(start + most, rows)) for start in range(0, rows, most)
    ]
    assert results(pieces) == results(whole)


@pytest.mark.parametrize("storage", STORAGE)
def test_the_copy_copies(device, storage):
    given, resident = arrays(device, 7, 9, storage)
    target = device.empty((7, 9), STORAGE[storage])
    yardstick_of(device).copy(resident["x"], target)()
    assert target.numpy().tobytes() == given["x"].tobytes()


def test_a_back_end_without_a_yardstick_is_measured_without(cpu, monkeypatch):
    monkeypatch.setattr(Device, "info", dataclasses.replace(cpu.info, backend="another"))
    assert yardstick_of(cpu) is None
    told = []
    report = bench.run(cpu, TINY[:1], lambda done, total: told.append((done, total)))
    assert told == [(0, 1), (1, 1)]
    assert (report.results[0].share_of_copy, report.results[0].speedup_over_seed) == (None, None)
    assert report.as_object()["copy_gbs"] is None


def test_nothing_else_uses_the_yardstick():
    users = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py") if "yardstick" in imported(path)}
    assert users == {"yardstick", "bench.py"}
    readers = {path.parent.name for path in PACKAGE.rglob("*.py") if "yardstick/" in path.read_text(encoding="utf-8")}
    assert readers == {"yardstick"}
    assert "yardstick" not in source.shader_text("softmax_back.wgsl")
