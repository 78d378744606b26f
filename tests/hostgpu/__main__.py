"""Checks the CUDA kernels on the host GPU: `python -m hostgpu FLAVOUR WARP ORDER ROWSxD…`, for a process of its own.

Sanitizers end the process at what they find; a wrong number is an exit of 1. HOSTGPU_FAULT plants a fault first: a JSON
list of a file of `shaders`, a text in it, and what takes its place. With HOSTGPU_PARTS short rows are cut into parts.
"""

import json
import os
import sys

import numpy as np
from planting import planted

from rowgrad_wgpu import check, plan, source
from rowgrad_wgpu.contract import STORAGE, chunk_count

from . import open_device


def separate_kernels(device, case):
    """The kernels that `layer_norm_back` leaves out where one pass does it all."""
    rows, d = case.x.shape
    arrays = {name: device.asarray(getattr(case, name)) for name in ("x", "dy", "alpha")}
    eps = device.asarray(np.array([1e-5], np.float32))
    dx, stats = device.empty((rows, d), case.x.dtype), device.empty((rows, 2), np.float32)
    partial = device.empty((chunk_count(rows), 2, d), np.float32)
    device.launch("layer_norm_stats", x=arrays["x"], eps=eps, stats=stats)
    device.launch("layer_norm_back", **arrays, eps=eps, dx=dx, stats=stats)
    device.launch("layer_norm_params", x=arrays["x"], dy=arrays["dy"], stats=stats, partial=partial)
    if not np.isfinite(partial.numpy()).all():
        raise SystemExit("layer_norm_params left an element out")


def cut_short_rows():
    """Few rows of 128 elements are cut into parts of 64, and none of them is taken in one pass."""
    plan.LONG_D, plan.PART, plan.SUMMED_ELEMENTS = 128, {False: 64}, {False: 0}


def main(flavour, warp, order, *shapes):
    if "HOSTGPU_FAULT" in os.environ:
        source.shader_text = planted(*json.loads(os.environ["HOSTGPU_FAULT"]))
    device = open_device(int(warp), flavour, int(order))
    device._backend._most_blocks = 2  # so that a block goes on with further rows
    if "HOSTGPU_PARTS" in os.environ:
        cut_short_rows()
    sizes = [tuple(map(int, shape.split("x"))) for shape in shapes]
    cases = [check.random_case(*size, dtype) for size in sizes for dtype in STORAGE.values()]
    if flavour == "plain":
        cases += check.hard_cases(STORAGE["float32"])
    count = 0
    for case in cases:
        results = check.check_case(device, case)
        wrong = [result for result in results if not result.ok]
        if wrong:
            raise SystemExit(f"wrong: {wrong[0]}")
        if flavour != "plain":
            separate_kernels(device, case)
        count += len(results)
    print(f"{count} results are right")


main(*sys.argv[1:])
