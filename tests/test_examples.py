"""The examples, each as the script it is, in this process: what starting Python costs is no part of them."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from rowgrad_wgpu import layer_norm_back
from rowgrad_wgpu.contract import STORAGE

EXAMPLES = Path(__file__).parent.parent / "examples"
ONES = np.ones((2, 3), np.float32)
NAMES = ("quickstart.py", "resident.py", "verify_my_gradients.py", "train_layernorm.py")


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs an example on a device; gives its exit status and what it prints."""

    def script(name, spec, *arguments):
        monkeypatch.setenv("ROWGRAD_DEVICE", spec)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        try:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        except SystemExit as end:
            return end.code, "".join(capsys.readouterr())
        return 0, "".join(capsys.readouterr())

    return script


def test_all_examples_are_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs(named_device, run, name):
    status, told = run(name, named_device.info.spec)
    assert status == 0
    assert named_device.info.spec in told


def test_gradients_that_do_not_hold_are_found(run, tmp_path):
    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, 10, 8), dtype=np.float32)
    np.savez(tmp_path / "mine.npz", x=x, dy=dy, dbeta=dy.sum(0), dalpha=dy.sum(0))
    status, told = run("verify_my_gradients.py", "cpu", str(tmp_path / "mine.npz"))
    assert status == 1
    assert "dalpha DOES NOT HOLD" in told
    assert "dbeta  holds" in told


@pytest.fixture
def verified(run, tmp_path):
    """What verify_my_gradients.py says of such arrays: its exit status and what it prints."""

    def verify(held, *options):
        np.savez(tmp_path / "mine.npz", **held)
        return run("verify_my_gradients.py", "cpu", str(tmp_path / "mine.npz"), *options)

    return verify


@pytest.mark.parametrize("storage", ["float16", "bfloat16"])
def test_gradients_in_16_bits_hold(verified, storage):
    """As a framework in half precision leaves them: a float32 sum rounded at the end."""
    dtype = STORAGE[storage]
    x, dy = np.random.default_rng(0).standard_normal((2, 10, 8)).astype(dtype)
    grads = layer_norm_back(x, dy, device="cpu")
    rounded = {name: one.astype(dtype) for name, one in grads._asdict().items()}
    status, told = verified({"x": x, "dy": dy} | rounded, "--bfloat16")
    assert (status, told.count(" holds: ")) == (0, 3)
    wrong = rounded | {"dalpha": (grads.dalpha * 1.02).astype(dtype)}
    status, told = verified({"x": x, "dy": dy} | wrong, "--bfloat16")
    assert (status, told.count(" holds: ")) == (1, 2)


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ({"x": ONES}, "expected x and dy in mine.npz, got x"),
        ({"x": np.ones((2, 3)), "dy": np.ones((2, 3))}, "got float64; convert"),
        (dict.fromkeys(("x", "dy"), np.ones((2, 3), STORAGE["bfloat16"])), "got |V2: pass --bfloat16?"),
        (dict.fromkeys(("x", "dy", "dbeta"), ONES), "expected dbeta of shape (3,), got (2, 3)"),
        ({"x": ONES, "dy": ONES[:1]}, "expected dy of shape (2, 3), as x, got (1, 3)"),
        ({"x": ONES, "dy": ONES, "alpha": ONES[0, :2]}, "expected alpha of shape (3,), as x, got (2,)"),
    ],
)
def test_arrays_that_cannot_be_verified(verified, held, text):
    status, told = verified(held)
    assert status == 2
    assert text in told


@pytest.mark.parametrize(
    ("fill", "text"),
    [
        (lambda file: np.save(file, np.ones((2, 3))), "expected an .npz, got one array"),
        (lambda file: file.write(b"PK\x03\x04 and no more"), "not a zip file"),
        (lambda file: file.write(b"x dy alpha"), "pickled"),
        (lambda file: None, "No data left in file"),
    ],
)
def test_a_file_that_cannot_be_verified(run, tmp_path, fill, text):
    path = tmp_path / "mine.npz"
    with path.open("wb") as file:
        fill(file)
    status, told = run("verify_my_gradients.py", "cpu", str(path))
    assert status == 2
    assert text in told
