"""The command line: `rowgrad info`, `check`, `bench`, `run`, `export-web`."""

import argparse
import dataclasses
import io
import json
import os
import platform
import signal
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from . import __version__ as VERSION  # noqa: N812
from . import bench as benchmark
from . import picture
from .check import Result, cases, check_case, check_seed
from .device import AnyArray, Candidate, Device, DeviceInfo, survey
from .errors import DTypeError, Error, ShapeError
from .ops import LayerNormGrads, RMSNormGrads, layer_norm_back, rms_norm_back, softmax_back
from .web import write_page

SHOWN_RESULTS = 24
"""Rows of the table of gaps: the worst; --json gives all."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; the exit status is 0 if all is well, 1 if a check or a run failed, 2 for a misuse, 130 if it was
    interrupted."""
    _print_what_the_encoding_has()
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except Error as error:
        print(f"rowgrad: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"rowgrad: {error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("rowgrad: interrupted", file=sys.stderr)
        return 130
    return status


def _print_what_the_encoding_has() -> None:
    """A question mark for what the encoding lacks: Windows writes files and pipes in a code page without α."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rowgrad", description="Row gradients of softmax, LayerNorm and RMSNorm on any GPU."
    )
    parser.add_argument("--version", action="version", version=f"rowgrad {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="every device found, and why each other one was not")
    info.add_argument("--json", action="store_true", help="print one JSON object")
    info.set_defaults(run=_info)

    check = commands.add_parser("check", help="certify a device against the float64 oracle")
    _add_device(check)
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.add_argument("--full", action="store_true", help="more shapes, up to a minute or two")
    check.set_defaults(run=_check)

    bench = commands.add_parser("bench", help="the speed of devices, against their own copy and the seed's algorithm")
    bench.add_argument(
        "--device", nargs="+", action="extend", metavar="SPEC", help="one or more, as in Device(spec); auto if none"
    )
    bench.add_argument("--json", type=Path, metavar="F", help="write one JSON object, a list of them for more devices")
    bench.add_argument("--plot", type=Path, metavar="F.png", help="draw a roofline and the sweep over d")
    bench.add_argument("--quick", action="store_true", help="fewer rows and shapes: half a minute, not several")
    bench.add_argument("--force", action="store_true", help="overwrite existing outputs")
    bench.set_defaults(run=_bench)

    run = commands.add_parser("run", help="gradients of tensors in .npy files, streamed")
    operations = run.add_subparsers(required=True, metavar="OPERATION")
    softmax = operations.add_parser("softmax-back", help="dx of a softmax")
    softmax.add_argument("inputs", nargs=2, type=Path, metavar="Y.npy DY.npy")
    softmax.set_defaults(run=_run_softmax)
    layer = operations.add_parser("layer-norm-back", help="dx, dalpha and dbeta of a LayerNorm, in one .npz")
    layer.set_defaults(run=_run_layer_norm)
    rms = operations.add_parser("rms-norm-back", help="dx and dalpha of an RMSNorm, in one .npz")
    rms.set_defaults(run=_run_rms_norm)
    for norm, what in ((layer, "variance"), (rms, "mean square")):
        norm.add_argument("inputs", nargs="+", type=Path, metavar="X.npy DY.npy [ALPHA.npy]")
        norm.add_argument("--eps", type=float, default=1e-5, help=f"added to the {what} (1e-5)")
    for operation in (softmax, layer, rms):
        operation.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
        operation.add_argument("--force", action="store_true", help="overwrite an existing output")
        operation.add_argument(
            "--bfloat16", action="store_true", help="16-bit files without a type of NumPy's hold bfloat16"
        )
        _add_device(operation)

    web = commands.add_parser("export-web", help="the check as a web page, for a browser's own GPU")
    web.add_argument("folder", type=Path, metavar="DIR", help="a new or an empty folder")
    web.add_argument("--force", action="store_true", help="write over what is in the folder")
    web.set_defaults(run=_export_web)
    return parser


def _add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", default="auto", metavar="SPEC", help="as in Device(spec): auto, wgpu, wgpu:gl, cpu …"
    )


def _info(options: argparse.Namespace) -> int:
    candidates, missing = survey()
    chosen, details, failure = _auto()
    if options.json:
        _print_json(
            {
                "version": VERSION,
                "devices": [dataclasses.asdict(one.info) for one in candidates],
                "missing": [dataclasses.asdict(one) for one in missing],
                "auto": None if chosen is None else dataclasses.asdict(chosen),
                "details": details,
            }
        )
        return 0
    console = _console()
    console.print(_devices_table(candidates))
    for one in missing:
        console.print(f"not there: {one.spec}: {one.reason}", markup=False, highlight=False)
    if chosen is None:
        console.print(f"auto: {failure}", markup=False, highlight=False)
    else:
        console.print(f"auto takes {chosen.spec}: {chosen.name}", markup=False, highlight=False)
    for name, value in details.items():
        console.print(f"  {name}: {value}", markup=False, highlight=False)
    return 0


def _auto() -> tuple[DeviceInfo | None, dict[str, Any], str]:
    try:
        with Device() as device:
            return device.info, device.describe(), ""
    except Error as error:
        return None, {}, str(error)


def _devices_table(candidates: list[Candidate]) -> Table:
    table = Table("spec", "api", "kind", "name")
    for one in candidates:
        table.add_row(one.info.spec, one.info.api, one.info.kind, one.info.name)
    return table


def _check(options: argparse.Namespace) -> int:
    begun = time.monotonic()
    with Device(options.device) as device:
        console = _console()
        if not options.json:
            console.print(f"{device.info.spec}: {device.info.name}", markup=False, highlight=False)
        seed = check_seed(device)
        if not options.json:
            _print_seed(seed, device.info.spec)
        results = seed + _check_cases(device, options)
        info, details = device.info, device.describe()
    ok = all(result.ok for result in results)
    if options.json:
        _print_json(
            {
                "version": VERSION,
                "platform": f"{platform.platform()}, Python {platform.python_version()}",
                "device": dataclasses.asdict(info),
                "details": details,
                "ok": ok,
                "results": list(map(_result_object, results)),
            }
        )
    else:
        results.sort(key=lambda result: -result.share)
        console.print(_gaps_table(results))
        failed = sum(not result.ok for result in results)
        verdict = "every one is within its bound" if ok else f"{failed} are NOT within their bounds"
        console.print(
            f"{len(results)} outputs in {time.monotonic() - begun:.1f} s: {verdict}", markup=False, highlight=False
        )
    return 0 if ok else 1


def _check_cases(device: Device, options: argparse.Namespace) -> list[Result]:
    listed = list(cases(options.full))
    results: list[Result] = []
    with _bar("checking", hidden=options.json) as advance:
        for index, case in enumerate(listed):
            results += check_case(device, case)
            advance(index + 1, len(listed))
    return results


def _print_seed(results: list[Result], name: str) -> None:
    """The three lines of figures of the seed's test."""
    gaps = {(result.kernel, result.output): result.gap for result in results}
    print(f"[softmax back {name}] {gaps['softmax_back', 'dx']:.2e}")
    print(f"[layer norm back {name}] dx {gaps['layer_norm_back', 'dx']:.2e}")
    print(
        f"[layer norm back {name}] dα {gaps['layer_norm_params', 'dalpha']:.2e},"
        f" dβ {gaps['layer_norm_params', 'dbeta']:.2e}"
    )


def _gaps_table(results: list[Result]) -> Table:
    table = Table("kernel", "output", "dtype", "shape", "values", "gap", "bound", "of its bound", "ok")
    for result in results[:SHOWN_RESULTS]:
        table.add_row(
            result.kernel,
            result.output,
            result.dtype,
            "×".join(map(str, result.shape)),
            result.values,
            f"{result.gap:.1e}",
            f"{result.bound:.1e}",
            f"{100 * result.share:.0f} %",
            "yes" if result.ok else "NO",
        )
    if len(results) > SHOWN_RESULTS:
        table.caption = f"the {SHOWN_RESULTS} nearest to their bounds of {len(results)}; --json gives all"
    return table


def _result_object(result: Result) -> dict[str, Any]:
    """A result as JSON takes it: Inf and NaN are not numbers there."""
    fields = dataclasses.asdict(result)
    return {
        name: value if not isinstance(value, float) or np.isfinite(value) else None for name, value in fields.items()
    }


def _bench(options: argparse.Namespace) -> int:
    if options.json is not None and options.json == options.plot:
        raise ShapeError(f"expected two files for --json and --plot, got {options.json} twice")
    with ExitStack() as stack:
        targets = {
            name: stack.enter_context(_target(path, options.force))
            for name, path in (("json", options.json), ("plot", options.plot))
            if path is not None
        }
        if "plot" in targets:
            picture.require_matplotlib()
        devices = [stack.enter_context(Device(spec)) for spec in options.device or ["auto"]]
        listed = benchmark.cases(options.quick)
        reports = []
        for device in devices:
            with _bar(device.info.spec) as advance:
                reports.append(benchmark.run(device, listed, advance))
            _print_report(reports[-1])
        if "json" in targets:
            objects = [report.as_object() for report in reports]
            targets["json"].write_text(_json_text(objects[0] if len(objects) == 1 else objects), encoding="utf-8")
        if "plot" in targets:
            picture.draw(reports, targets["plot"])
    return 0


def _print_report(report: benchmark.Report) -> None:
    console = _console()
    console.print(f"{report.device.spec}: {report.device.name}", markup=False, highlight=False)
    for result in report.results:
        if result.group == "seed" and result.dtype == "bfloat16":
            shape = "x".join(map(str, result.shape))
            print(f"[small speed {report.device.spec}] {benchmark.TITLES[result.kernel]} {shape}: {result.ms:.3f} ms")
    console.print(_speeds_table(report))
    for case in report.left_out:
        what = f"{case.kernel} {case.storage} {case.rows}×{case.d}"
        console.print(f"left out, the memory does not hold it: {what}", markup=False, highlight=False)


def _speeds_table(report: benchmark.Report) -> Table:
    numbers = ("ms a launch", "slowest round", "launches", "GB/s", "of own copy", "over the seed's")
    table = Table("kernel", "dtype", "shape")
    for title in numbers:
        table.add_column(title, justify="right")
    for result in report.results:
        table.add_row(
            result.kernel,
            result.dtype,
            "×".join(map(str, result.shape)),
            f"{result.ms:.3f}",
            f"+{100 * (result.spread - 1):.0f} %",
            str(result.launches),
            f"{result.gbs:.3g}",
            "" if result.share_of_copy is None else f"{100 * result.share_of_copy:.0f} %",
            "" if result.speedup_over_seed is None else f"{result.speedup_over_seed:.1f} ×",
        )
    copy = "" if report.copy_gbs is None else f" Its own copy: {report.copy_gbs:.3g} GB/s, read and written."
    clock = "The device's clock" if report.own_clock else "Wall clock"
    table.caption = f"{clock}: the mean of the launches behind one wait, the median over rounds.{copy}"
    return table


def _run_softmax(options: argparse.Namespace) -> int:
    y, dy = (_load(path, options.bfloat16) for path in options.inputs)
    with _target(options.output, options.force) as partial, Device(options.device) as device, _bar("rows") as advance:
        out = _mapped(partial, y.shape, y.dtype)
        softmax_back(y, dy, out=out, device=device, progress=advance)
        _flush(out)
        del out  # Windows renames no file that is mapped
    _report(options.output, device.info)
    return 0


def _run_layer_norm(options: argparse.Namespace) -> int:
    return _run_norm(options, layer_norm_back)


def _run_rms_norm(options: argparse.Namespace) -> int:
    return _run_norm(options, rms_norm_back)


def _run_norm(options: argparse.Namespace, function: Callable[..., LayerNormGrads | RMSNormGrads]) -> int:
    if len(options.inputs) not in (2, 3):
        raise ShapeError(f"expected X.npy DY.npy and perhaps ALPHA.npy, got {len(options.inputs)} files")
    x, dy, *rest = (_load(path, options.bfloat16) for path in options.inputs)
    alpha = rest[0] if rest else None
    with _target(options.output, options.force) as partial, Device(options.device) as device:
        scratch = tempfile.TemporaryDirectory(dir=partial.parent, prefix=".rowgrad-")
        with scratch as folder, _bar("rows") as advance:
            out = _mapped(Path(folder) / "dx.npy", x.shape, x.dtype)
            grads = function(x, dy, alpha, eps=options.eps, out=out, device=device, progress=advance)
            _flush(out)
            for name in grads._fields[1:]:
                np.save(Path(folder) / f"{name}.npy", getattr(grads, name))
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
                for name in grads._fields:
                    archive.write(Path(folder) / f"{name}.npy", f"{name}.npy")
            del out, grads
    _report(options.output, device.info)
    return 0


def _export_web(options: argparse.Namespace) -> int:
    write_page(options.folder, options.force)
    print(f"{options.folder} written; browsers give a GPU only to a served page:")
    print(f'  python -m http.server --bind localhost --directory "{options.folder}"')
    return 0


def _load(path: Path, bfloat16: bool) -> AnyArray:
    """A .npy file, memory-mapped; never unpickled."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise DTypeError(f"expected a .npy file, got {path}, which is no file")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # whatever a header makes NumPy raise
        raise DTypeError(f"expected a .npy file of numbers, got {path}: {error}") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise DTypeError(f"expected a .npy file, got the archive {path}: save its arrays one by one with numpy.save")
    if array.dtype in (np.dtype("V2"), np.dtype(np.uint16)):
        if not bfloat16:
            raise DTypeError(
                f"expected a floating-point type in {path}, got {array.dtype}: pass --bfloat16 if it is that"
            )
        return array.view(ml_dtypes.bfloat16)
    return array


@contextmanager
def _target(output: Path, force: bool) -> Iterator[Path]:
    """A file that takes the output's name when all is written, alone in a folder beside it.

    The folder goes whatever happens, unless the process is killed outright.
    """
    _check_output(output, force)
    place = tempfile.TemporaryDirectory(dir=output.parent, prefix=".rowgrad-", ignore_cleanup_errors=True)
    with _terminated_as_interrupted(), place as folder:
        partial = Path(folder) / output.name
        yield partial
        _check_output(output, force)
        os.replace(partial, output)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does, so that all is cleaned up; only the main thread may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_output(output: Path, force: bool) -> None:
    if output.is_dir():
        raise ShapeError(f"expected a file to write, got {output}, a folder")
    if os.path.lexists(output) and not force:
        raise ShapeError(f"expected a new file, got {output}, which exists: pass --force to overwrite it")


def _mapped(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> AnyArray:
    """A new .npy file, memory-mapped, its room on the disk taken first: a full disk would kill a mapped write."""
    if not int(np.prod(shape)):
        with path.open("wb") as file:
            np.save(file, np.empty(shape, dtype))
        return np.empty(shape, dtype)
    mapped = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return mapped


def _flush(out: AnyArray) -> None:
    if isinstance(out, np.memmap):
        out.flush()


def _report(output: Path, info: DeviceInfo) -> None:
    print(f"{output} written by {info.spec}: {info.name}", file=sys.stderr)


@contextmanager
def _bar(what: str, hidden: bool = False) -> Iterator[Any]:
    """A progress bar on stderr; gives the function that moves it."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=hidden or not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _console() -> Console:
    """Standard output; wide where it is not a terminal, so that no cell is cut."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def _print_json(value: object) -> None:
    print(_json_text(value))


def _json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False)
