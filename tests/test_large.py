"""Arrays beyond 31 and 32 bits of bytes and elements: files that are streamed, and Arrays as large as a device takes.

All but a few rows are zeros, which take no room on the disk and add nothing to a sum; those few lie at both sides of
each edge, and come out with the bits that they have alone.
"""

import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from grids import check_layer_norm, check_softmax, inputs, small_where_slow
from watching import watched

import rowgrad_wgpu as rg
from rowgrad_wgpu import bounds, ops

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
long = pytest.mark.timeout(3000)

D = 1024
ROW_BYTES = 2 * D
STORAGE = "float16"
MOST_MEMORY = 1500 << 20


def marked_rows(rows: int) -> list[int]:
    """The first, the last, and those beside each edge, in bytes and in elements."""
    edges = [edge // length for edge in (1 << 27, 1 << 31, 1 << 32) for length in (ROW_BYTES, D)]
    beside = {row for edge in edges for row in (edge - 1, edge) if row < rows}
    return sorted({0, *beside, rows - 1})


def fill(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Sets the marked rows, and gives them."""
    marked = marked_rows(len(arrays["dy"]))
    given = inputs(len(marked), D, STORAGE)
    for name, array in arrays.items():
        array[marked] = given[name]
    return given


def check_dx(blocks, rows: int, expected: np.ndarray) -> None:
    """`blocks` gives dx in order, some rows at a time: right where they are marked, zeros elsewhere."""
    marked, start = np.array(marked_rows(rows)), 0
    for block in blocks:
        here = (start <= marked) & (marked < start + len(block))
        assert block[marked[here] - start].tobytes() == expected[here].tobytes()
        assert np.count_nonzero(block.view(np.uint16) & 0x7FFF) == np.count_nonzero(expected[here])
        start += len(block)
    assert start == rows


def check_sums(got, given: dict[str, np.ndarray]) -> None:
    """dα and dβ: the marked rows alone add anything."""
    rows = len(given["x"])
    expected = bounds.layer_norm_back(given["x"], given["dy"], np.ones(D), 1e-5, STORAGE, rows)
    for name in ("dalpha", "dbeta"):
        assert bounds.share(got[name], getattr(expected, name)) <= 1


def blocks_of(file):
    """The rows of a .npy file, without the memory for all."""
    version = np.lib.format.read_magic(file)
    assert version == (1, 0)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    while data := file.read(ROW_BYTES << 14):
        yield np.frombuffer(data, dtype).reshape(-1, *shape[1:])


@pytest.fixture
def disk(tmp_path):
    """A folder with room, emptied at once: pytest keeps its own for days."""
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        if shutil.disk_usage(folder).free < 20 << 30:
            pytest.skip("less than 20 GiB of disk are free")
        yield Path(folder)


RUN = """
import sys
from rowgrad_wgpu import cli

assert cli.main(sys.argv[1:]) == 0
with open("/proc/self/status") as file:
    print(next(line.split()[1] for line in file if line.startswith("VmHWM")))  # KiB
"""


@linux
@pytest.mark.slow
@long
@pytest.mark.parametrize("spec", ["cpu", "wgpu:vulkan"])
def test_files_of_8_gigabytes_in_little_memory(open_device, disk, spec):
    """More than 2^32 elements. A mapped file's pages count as memory until they are let go of."""
    device = open_device(spec)
    rows = (1 << 32) // D + 3
    names = ("x", "y", "dy")
    files = {name: disk / f"{name}.npy" for name in names}
    given = fill({name: np.lib.format.open_memmap(files[name], "w+", STORAGE, (rows, D)) for name in names})

    def run(operation: str, first: str, out: Path) -> None:
        (peak,) = watched(
            *("-c", RUN, "run", operation, str(files[first]), str(files["dy"]), "-o", str(out), "--device", spec),
            quiet=1200,
        )
        assert int(peak) << 10 < MOST_MEMORY

    run("softmax-back", "y", disk / "dx.npy")
    with (disk / "dx.npy").open("rb") as file:
        check_dx(blocks_of(file), rows, rg.softmax_back(given["y"], given["dy"], device=device))
    (disk / "dx.npy").unlink()

    run("layer-norm-back", "x", disk / "grads.npz")
    with zipfile.ZipFile(disk / "grads.npz") as archive, archive.open("dx.npy") as file:
        check_dx(blocks_of(file), rows, rg.layer_norm_back(given["x"], given["dy"], device=device).dx)
    with np.load(disk / "grads.npz") as grads:
        check_sums({name: grads[name] for name in ("dalpha", "dbeta")}, given)


def available_memory() -> int:
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


def pieces(array: np.ndarray):
    """Its rows, some at a time: checking takes copies."""
    return (array[start : start + (1 << 14)] for start in range(0, len(array), 1 << 14))


@linux
@pytest.mark.slow
@long
@pytest.mark.parametrize(
    ("spec", "rows"),
    [pytest.param("cpu", (1 << 32) // ROW_BYTES + 3, id="cpu"), pytest.param("wgpu:vulkan", 900_003, id="vulkan")],
)
def test_arrays_of_gigabytes(open_device, spec, rows):
    """On the processor beyond 2^31 elements and 2^32 bytes; WebGPU's largest buffer is 2 GiB, of 14 bindings."""
    if available_memory() < 4 * rows * ROW_BYTES:
        pytest.skip("too little memory is free")
    device = open_device(spec)
    host = np.zeros((rows, D), STORAGE)
    given = fill({"dy": host})["dy"]
    array = device.asarray(host)
    del host
    dx = rg.softmax_back(array, array)
    check_dx(pieces(dx.numpy()), rows, rg.softmax_back(given, given, device=device))
    dx.free()
    grads = rg.layer_norm_back(array, array)
    check_dx(pieces(grads.dx.numpy()), rows, rg.layer_norm_back(given, given, device=device).dx)
    check_sums({name: getattr(grads, name).numpy() for name in ("dalpha", "dbeta")}, {"x": given, "dy": given})


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
def test_three_million_rows(device, storage):
    rows, d = 3_000_000, 3
    small_where_slow(device, rows, d)
    given = inputs(rows, d, storage)
    check_softmax(device, given["y"], given["dy"], storage)
    check_layer_norm(device, given, storage)


def resident_bytes(path: Path) -> int:
    """Bytes of a mapped file that are in this process's memory."""
    with open("/proc/self/smaps") as file:
        lines = iter(file)
        return sum(
            int(next(line for line in lines if line.startswith("Rss:")).split()[1]) << 10
            for line in lines
            if line.rstrip().endswith(str(path))
        )


@linux
@pytest.mark.parametrize("spec", ["cpu", "wgpu:vulkan"])
def test_a_mapped_file_is_let_go_of_block_by_block(open_device, tmp_path, monkeypatch, spec):
    device = open_device(spec)
    monkeypatch.setattr(ops, "BLOCK_BYTES", 1 << 18)
    given = inputs(2048, 64, "float32")
    files = {name: tmp_path / f"{name}.npy" for name in ("x", "dy", "dx")}
    for name in ("x", "dy"):
        np.save(files[name], given[name])
    x, dy = (np.load(files[name], mmap_mode="r") for name in ("x", "dy"))
    dx = np.lib.format.open_memmap(files["dx"], "w+", np.float32, x.shape)
    assert x.tobytes() + dy.tobytes() == given["x"].tobytes() + given["dy"].tobytes()
    assert sum(map(resident_bytes, files.values())) >= x.nbytes + dy.nbytes
    seen = []

    def look(done: int, rows: int) -> None:
        seen.append(sum(map(resident_bytes, files.values())))

    rg.layer_norm_back(x[1:], np.asarray(dy)[1:], out=dx[1:], device=device, progress=look)
    assert seen == [0, 0]
    assert dx[1:].tobytes() == rg.layer_norm_back(given["x"][1:], given["dy"][1:], device=device).dx.tobytes()


def test_a_mapped_file_whose_changes_are_in_memory_alone_keeps_them(device, tmp_path):
    given = inputs(6, 33, "float32")
    np.save(tmp_path / "y.npy", np.zeros_like(given["y"]))
    y = np.load(tmp_path / "y.npy", mmap_mode="c")
    y[:] = given["y"]
    rg.softmax_back(y, given["dy"], device=device)
    assert y.tobytes() == given["y"].tobytes()
