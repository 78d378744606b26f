"""What a call costs beside its kernel, and how time grows with the data: WebGPU, one run, contenders in turns.

    python benchmarks/calls.py [--device wgpu:vulkan] [--quick]

A resident call on 8×64 against wgpu-py's own record and submit of the same dispatch; a NumPy call on 70×768 against
`wgpu.utils.compute.compute_with_buffers` with the same shader; time an element from 10^5 to 10^8 elements.
"""

import argparse
import statistics
import time
from dataclasses import replace
from functools import partial

import numpy as np
import wgpu
from rich.console import Console
from rich.table import Table
from wgpu.utils.compute import compute_with_buffers

import rowgrad_wgpu as rg
from rowgrad_wgpu.contract import KERNELS
from rowgrad_wgpu.plan import plan_launch, whole
from rowgrad_wgpu.source import assemble_wgsl

ROUNDS = 11
CALLS = 200  # behind one wait
ELEMENTS = (10**5, 10**6, 10**7, 10**8)
QUICK_ELEMENTS = (10**5, 10**6)
D = 1000


def milliseconds(contenders, wait, calls, rounds):
    """The median over rounds of each contender's mean over `calls` behind one wait; the first round warms up."""
    found = {name: [] for name in contenders}
    for _ in range(rounds + 1):
        for name, call in contenders.items():
            begun = time.perf_counter()
            for _ in range(calls):
                call()
            wait()
            found[name].append((time.perf_counter() - begun) / calls * 1e3)
    return {name: statistics.median(times[1:]) for name, times in found.items()}


def random_pair(rows, d):
    """y and dy."""
    random = np.random.default_rng(0)
    return random.random((rows, d), np.float32) / d, random.standard_normal((rows, d), np.float32)


def resident_call(device):
    """ms: `softmax_back` on Arrays, with `out` and with a new output, and its dispatch as wgpu-py records it."""
    y, dy = map(device.asarray, random_pair(8, 64))
    out = device.empty(y.shape, y.dtype)
    rg.softmax_back(y, dy, out=out)
    inner = device._backend
    gpu, pipeline, group, grid = inner._device, *recorded(inner)

    def raw():
        encoder = gpu.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        compute_pass.set_pipeline(pipeline)
        compute_pass.set_bind_group(0, group)
        compute_pass.dispatch_workgroups(*grid)
        compute_pass.end()
        gpu.queue.submit([encoder.finish()])

    contenders = {
        "raw": raw,
        "out=": partial(rg.softmax_back, y, dy, out=out),
        "new output": partial(rg.softmax_back, y, dy),
    }
    return milliseconds(contenders, device.synchronize, CALLS, ROUNDS)


def recorded(inner):
    """The pipeline, the bind group and the grid of the call that was just made."""
    plan, pipeline, group = next(reversed(inner._bindings.values()))
    return pipeline, group, plan.dispatches[-1].grid


def numpy_call(device):
    """ms: `softmax_back` on NumPy arrays, and `compute_with_buffers` with the shader that it runs.

    wgpu's function binds storage alone, calls `main` and asks for no subgroups, so the fields lie in a storage buffer
    there, and rows are summed through workgroup memory.
    """
    y, dy = random_pair(70, 768)
    plan = plan_launch(KERNELS["softmax_back"], "float32", "float32", whole(*y.shape), device.limits)
    [dispatch] = plan.dispatches
    text = assemble_wgsl(replace(plan.variant, subgroup=False))
    text = text.replace("var<uniform>", "var<storage, read>").replace("fn softmax_back(", "fn main(")
    fields = np.array(dispatch.fields, np.uint32)

    def by_wgpu():
        return compute_with_buffers({0: y, 1: dy, 3: fields}, {2: (*y.shape, "f")}, text, n=(*dispatch.grid, 1))[2]

    ours = partial(rg.softmax_back, y, dy, device=device)
    assert np.abs(np.asarray(by_wgpu()) - ours()).max() < 1e-6
    return milliseconds({"raw": by_wgpu, "ours": ours}, lambda: None, 10, ROUNDS)


def time_an_element(device, elements, launch_ms):
    """ns an element of a resident `softmax_back`, what a launch costs taken off."""
    y, dy = map(device.asarray, random_pair(elements // D, D))
    out = device.empty(y.shape, y.dtype)
    calls = max(1, min(50, 10**7 // elements))
    contenders = {"ours": partial(rg.softmax_back, y, dy, out=out)}
    found = milliseconds(contenders, device.synchronize, calls, 5)
    return (found["ours"] - launch_ms) * 1e6 / elements


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="wgpu", help="a WebGPU device")
    parser.add_argument("--quick", action="store_true", help="up to 10^6 elements")
    options = parser.parse_args()
    table = Table("what", "ms or ns", "of the other")
    with rg.Device(options.device) as device:
        resident = resident_call(device)
        for name, ms in resident.items():
            table.add_row(f"resident 8×64, {name}", f"{ms:.4f} ms", f"{ms / resident['raw']:.2f} × raw")
        hosts = numpy_call(device)
        table.add_row("compute_with_buffers 70×768", f"{hosts['raw']:.2f} ms")
        table.add_row(
            "NumPy call 70×768", f"{hosts['ours']:.2f} ms", f"{hosts['raw'] / hosts['ours']:.1f} times as fast"
        )
        sizes = QUICK_ELEMENTS if options.quick else ELEMENTS
        ns = {size: time_an_element(device, size, resident["out="]) for size in sizes}
        for size, one in ns.items():
            table.add_row(f"{size:,} elements", f"{one:.2f} ns an element", f"{one / min(ns.values()):.2f} × the best")
        table.title = f"{device.info.name}, wgpu {wgpu.__version__}, medians of {ROUNDS} rounds"
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
