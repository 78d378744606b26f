"""The examples, each as the script it is, in this process: what starting Python costs is no part of them."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
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
            return end.code, capsys.readouterr().out
        return 0, capsys.readouterr().out

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
