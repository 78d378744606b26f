"""The picture of `rowgrad bench`: for each device a roofline and the sweep over d, in black and white.

matplotlib comes with the extra `plot` and is imported here alone, when a picture is asked for.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from .bench import PASSES, TITLES, Report, Result
from .contract import STORAGE
from .errors import Error

OPERATIONS: Final = {"softmax_back": 4, "layer_norm_back": 17}
"""Additions and multiplications an element: y dy and its sum, dy − sum, times y; for LayerNorm with dα and dβ,
mean 1, variance 3, x̂ 2, u 1, their two sums 3, dx 4, dα 2, dβ 1."""

MARKERS: Final = {"bfloat16": "o", "float32": "s", "float16": "^"}
FILLS: Final = {"softmax_back": "black", "layer_norm_back": "white"}
LINES: Final = {"softmax_back": "-", "layer_norm_back": "--"}
INK: Final = {"color": "black", "markeredgecolor": "black", "markersize": 6}


def require_matplotlib() -> Any:
    """matplotlib's Figure.

    **Raises:** `Error` that names the extra.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Error(
            f"expected matplotlib for --plot, got {error}: it comes with the extra plot,"
            " pip install 'rowgrad-wgpu[plot]'"
        ) from error
    return Figure


def draw(reports: Sequence[Report], path: Path) -> None:
    """A PNG with a row of two pictures for each device."""
    figure = require_matplotlib()(figsize=(12, 4.8 * len(reports)), layout="constrained")
    axes = figure.subplots(len(reports), 2, squeeze=False)
    for report, (left, right) in zip(reports, axes, strict=True):
        _roofline(left, report, [one for one in report.results if one.group != "sweep"])
        _sweep(right, report, [one for one in report.results if one.group == "sweep"])
    figure.savefig(path, format="png", dpi=120)


def _roofline(axes: Any, report: Report, measured: Sequence[Result]) -> None:
    """Operations a second over operations a byte, under the line that the device's own copy draws."""
    if not measured:
        axes.set_axis_off()
        return
    for kernel, storage in _kinds(measured):
        found = _of(measured, kernel, storage)
        intensities = [_intensity(one) for one in found]
        speeds = [one.gbs * _intensity(one) for one in found]
        axes.plot(intensities, speeds, linestyle="", **_look(kernel, storage))
    if report.copy_gbs is not None:
        ends = [min(map(_intensity, measured)) / 2, max(map(_intensity, measured)) * 2]
        axes.plot(ends, [report.copy_gbs * one for one in ends], **_copy_look(report.copy_gbs))
    axes.set(xlabel="operations a byte", ylabel="10⁹ operations a second", title=f"{report.device.spec}: roofline")
    _finish(axes, base=2)


def _sweep(axes: Any, report: Report, measured: Sequence[Result]) -> None:
    """Bytes a second over d at one number of elements, the seed's algorithm dotted."""
    if not measured:
        axes.set_axis_off()
        return
    for kernel, storage in _kinds(measured):
        found = _of(measured, kernel, storage)
        axes.plot(_widths(found), [one.gbs for one in found], linestyle=LINES[kernel], **_look(kernel, storage))
        seeds = [one for one in found if one.speedup_over_seed is not None]
        speeds = [one.gbs / (one.speedup_over_seed or 1) for one in seeds]
        axes.plot(_widths(seeds), speeds, linestyle=":", **_look(kernel, storage) | {"label": None, "markersize": 3})
    if report.copy_gbs is not None:
        axes.axhline(report.copy_gbs, **_copy_look(report.copy_gbs))
    axes.plot([], [], color="black", linestyle=":", label="the seed's algorithm, same marks")
    axes.set(xlabel="d", ylabel="GB/s", title=f"{report.device.name}: length of a row")
    _finish(axes, base=4)


def _kinds(results: Sequence[Result]) -> list[tuple[str, str]]:
    """The pairs of kernel and type among the results, in their order."""
    return list(dict.fromkeys((one.kernel, one.dtype) for one in results))


def _of(results: Sequence[Result], kernel: str, storage: str) -> list[Result]:
    return [one for one in results if (one.kernel, one.dtype) == (kernel, storage)]


def _widths(results: Sequence[Result]) -> list[int]:
    return [one.shape[1] for one in results]


def _intensity(result: Result) -> float:
    """Operations for each byte that has to move."""
    return OPERATIONS[result.kernel] / (PASSES * STORAGE[result.dtype].itemsize)


def _look(kernel: str, storage: str) -> dict[str, Any]:
    return INK | {
        "marker": MARKERS[storage],
        "markerfacecolor": FILLS[kernel],
        "label": f"{TITLES[kernel]} {storage}",
    }


def _copy_look(gbs: float) -> dict[str, Any]:
    return {"color": "black", "linewidth": 0.8, "label": f"own copy, {gbs:.3g} GB/s"}


def _finish(axes: Any, base: int) -> None:
    axes.set_xscale("log", base=base)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(color="0.85", linewidth=0.5)
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False)
