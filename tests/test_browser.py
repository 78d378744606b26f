"""The page of `rowgrad export-web`: what is exported, and what headless Chromium makes of it."""

import json
import queue
import re
import shutil
import subprocess
import threading
from dataclasses import asdict, fields
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from conftest import EXPECTED
from planting import plant

from rowgrad_wgpu import bounds, check, cli, web
from rowgrad_wgpu.check import Result
from rowgrad_wgpu.contract import KERNELS, STORAGE
from rowgrad_wgpu.device import DeviceInfo
from rowgrad_wgpu.plan import Extent, Variant, plan_launch
from rowgrad_wgpu.source import assemble_wgsl

PAGE = Path(__file__).parent.parent / "examples" / "browser"
OWN_FILES = {"index.html", "style.css", "page.js", "check.js"}

MANY_ELEMENTS = 40_000

SMALL = [check.random_case(9, 8, STORAGE["float32"]), *check.hard_cases(STORAGE["float16"])]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web") / "new" / "page"
    assert cli.main(["export-web", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def plan(exported):
    return json.loads((exported / "plan.json").read_text(encoding="utf-8"))


def launches(plan):
    """Every launch, with the limits that it was planned for."""
    for one in plan["cases"]:
        for kind, program in one["programs"].items():
            yield from ((launch, web.LIMITS[kind]) for launch in program["launches"])
    for kind, program in plan["speed"].items():
        yield from ((launch, web.LIMITS[kind]) for launch in program["launches"])


def test_the_files(exported, plan):
    names = {path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()}
    assert names == OWN_FILES | {"plan.json", "values.bin"} | {launch["shader"] for launch, _ in launches(plan)}
    for name in OWN_FILES:
        assert (exported / name).read_bytes() == (PAGE / name).read_bytes()


def test_the_page_needs_nothing_from_elsewhere():
    for name in OWN_FILES:
        assert "//" not in re.sub(r"(?m)^ *//.*|; //.*", "", (PAGE / name).read_text(encoding="utf-8"))


def test_the_plans_and_shaders_are_what_a_device_would_get(exported, plan):
    for launch, limits in launches(plan):
        variant, extent = Variant(**launch["variant"]), Extent(**launch["extent"])
        expected = plan_launch(KERNELS[variant.kernel], variant.storage, variant.alpha, extent, limits)
        shown = {name: launch[name] for name in ("variant", "extent", "dispatches")}
        assert shown == json.loads(json.dumps(asdict(expected)))
        assert (exported / launch["shader"]).read_text(encoding="utf-8") == assemble_wgsl(variant)


def test_every_binding_lies_in_its_buffer(plan):
    for one in plan["cases"]:
        for program in one["programs"].values():
            for launch in program["launches"]:
                for dispatch in launch["dispatches"]:
                    for name, part in dispatch["slices"].items():
                        assert part["offset"] + part["nbytes"] <= program["buffers"][launch["buffers"][name]]


def test_the_cases_are_those_of_the_check(exported, plan):
    values = (exported / "values.bin").read_bytes()
    inputs = [check.seed_case(), *check.cases(full=False)]
    assert len(plan["cases"]) == len(inputs)
    for one, case in zip(plan["cases"], inputs, strict=True):
        assert (one["values"], tuple(one["shape"]), STORAGE[one["dtype"]]) == (case.values, case.x.shape, case.x.dtype)
        if case.x.size > MANY_ELEMENTS:
            continue
        expected = check.expected_of(case)
        assert [(result["kernel"], result["output"]) for result in one["results"]] == list(expected)
        for result, known in zip(one["results"], expected.values(), strict=True):
            assert numbers(values, result["expected"], np.float64).tobytes() == known.value.tobytes()
            assert_a_little_less(numbers(values, result["bounds"], np.float32), known.bound.reshape(-1))
            assert result["bound"] == bounds.room(known)
        for program in one["programs"].values():
            written = [values[begin : begin + size] for begin, size in (write["data"] for write in program["writes"])]
            assert {case.y.tobytes(), case.x.tobytes(), case.dy.tobytes(), case.alpha.tobytes()} < set(written)


def numbers(values, place, dtype):
    begin, nbytes = place
    return np.frombuffer(values[begin : begin + nbytes], dtype)


def assert_a_little_less(stored, bound):
    assert np.array_equal(np.isfinite(stored), np.isfinite(bound) & (bound < np.inf))
    known = np.isfinite(bound)
    assert (stored[known] <= bound[known]).all()
    np.testing.assert_allclose(stored[known], np.minimum(bound[known], np.finfo(np.float32).max), rtol=2e-7)


@pytest.fixture
def few_inputs(monkeypatch):
    monkeypatch.setattr(web, "seed_case", lambda: SMALL[0])
    monkeypatch.setattr(web, "cases", lambda full: [])


def test_what_is_in_the_folder_is_kept(few_inputs, tmp_path, capsys):
    (tmp_path / "index.html").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine too")
    assert cli.main(["export-web", str(tmp_path)]) == 1
    assert "--force" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"index.html", "notes.txt"}
    assert cli.main(["export-web", str(tmp_path), "--force"]) == 0
    assert (tmp_path / "index.html").read_bytes() == (PAGE / "index.html").read_bytes()
    assert (tmp_path / "notes.txt").read_text() == "mine too"


def test_a_file_in_place_of_the_folder(few_inputs, tmp_path, capsys):
    (tmp_path / "page").write_text("mine")
    assert cli.main(["export-web", str(tmp_path / "page")]) == 1
    assert capsys.readouterr().err.startswith("rowgrad: ")
    assert (tmp_path / "page").read_text() == "mine"


# What follows needs Chromium, which brings SwiftShader, a software adapter.

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--no-first-run", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
SOFTWARE = ("--enable-unsafe-webgpu",)  # the switch for WebGPU without a GPU
SECONDS = 240


class Server(SimpleHTTPRequestHandler):
    """Serves a folder and takes the page's report."""

    def do_POST(self):
        self.server.reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *given):
        pass


def visit(folder, profile, switch=SOFTWARE, asked=""):
    """The report of the page in `folder`, from a Chromium of its own."""
    if CHROMIUM is None:
        refuse = pytest.fail if "chromium" in EXPECTED else pytest.skip
        refuse("no chromium on the path: `make test-full` fetches it")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=str(folder))) as server:
        server.reports = queue.Queue()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://localhost:{server.server_port}/?report=report{asked}"
        command = [CHROMIUM, *OPTIONS, *switch, f"--user-data-dir={profile}", url]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return server.reports.get(timeout=SECONDS)
        finally:
            browser.terminate()
            browser.wait(20)
            server.shutdown()
            thread.join()


def visit_small(folder, **more):
    for name, data in web.page_files(SMALL).items():
        (folder / "page" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "page" / name).write_bytes(data)
    return visit(folder / "page", folder / "profile", **more)


@pytest.mark.slow
def test_chromium_certifies_its_adapter(exported, plan, tmp_path):
    report = visit(exported, tmp_path)
    assert report["problem"] is None
    assert report["ok"]
    assert report["device"]["kind"] == report["plan"] == "software"
    assert set(report["device"]) >= {field.name for field in fields(DeviceInfo)}
    assert {frozenset(result) for result in report["results"]} == {frozenset(field.name for field in fields(Result))}
    assert len(report["results"]) == sum(len(one["results"]) for one in plan["cases"])
    assert all(result["ok"] and 0 <= result["share"] <= 1 for result in report["results"])
    assert max(result["share"] for result in report["results"]) > 0.01
    assert report["speed"]["gbs"] > 0
    print(json.dumps(report["device"]), report["browser"], f"{report['seconds']:.1f} s", json.dumps(report["speed"]))


@pytest.mark.slow
def test_chromium_runs_the_plans_of_a_gpu(tmp_path):
    report = visit_small(tmp_path, asked="&plan=hardware")
    assert report["problem"] is None
    assert report["ok"]
    assert report["plan"] == "hardware"


BACK = {"layer_norm_back", "rms_norm_back"}
SUMS = {"layer_norm_params", "rms_norm_back"}

FAULTS = {
    "a wrong term": ("softmax_back.wgsl", "a * (b - inner)", "a * b", {"softmax_back"}),
    "a little wrong": ("softmax_back.wgsl", "a * (b - inner)", "1.00001 * a * (b - inner)", {"softmax_back"}),
    "a NaN": ("lib/gradient.wgsl", "u - means.x", "bitcast<f32>(0x7fc00000u | sizes.d) - means.x", BACK),
    "a NaN that vanishes": (
        *("softmax_back.wgsl", "a * (b - inner)"),
        "select(vec4f(), a * (b - inner), abs(a * (b - inner)) < vec4f(1e30))",
        {"softmax_back"},
    ),
    "a chunk left out": ("sum_partials.wgsl", "var chunk = 0u", "var chunk = 1u", SUMS),
    "another last bit the second time": (
        *("sum_partials.wgsl", "dbeta[j] = beta_sum"),
        "dbeta[j] = bitcast<f32>(bitcast<u32>(beta_sum) ^ select(0u, 1u, dbeta[j] != 0.0))",
        {"layer_norm_params"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_chromium_finds_a_fault(tmp_path, fault, monkeypatch):
    name, right, wrong, kernels = FAULTS[fault]
    plant(monkeypatch, name, right, wrong)
    report = visit_small(tmp_path)
    assert report["problem"] is None
    assert not report["ok"]
    assert {one["kernel"] for one in report["results"] if not one["ok"]} == kernels


@pytest.mark.slow
def test_chromium_tells_what_does_not_compile(tmp_path, monkeypatch):
    plant(monkeypatch, "softmax_back.wgsl", "products += a * b", "product += a * b")
    report = visit_small(tmp_path)
    assert not report["ok"]
    assert re.search(r"softmax_back-\d+\.wgsl does not compile\. Line \d+: .*'product'", report["problem"])


@pytest.mark.slow
def test_chromium_without_an_adapter(tmp_path):
    report = visit_small(tmp_path, switch=())
    assert not report["ok"]
    assert report["device"] is None
    assert "gives no adapter" in report["problem"]
