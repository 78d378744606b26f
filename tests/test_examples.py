import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, spec: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env={**os.environ, "ROWGRAD_DEVICE": spec},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_all_examples_are_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(NAMES)


NAMES = ("quickstart.py", "resident.py", "verify_my_gradients.py", "train_layernorm.py")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs(named_device, name):
    done = run(name, named_device.info.spec)
    assert done.returncode == 0, done.stderr
    assert named_device.info.spec in done.stdout


def test_gradients_that_do_not_hold_are_found(tmp_path):
    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, 10, 8), dtype=np.float32)
    np.savez(tmp_path / "mine.npz", x=x, dy=dy, dbeta=dy.sum(0), dalpha=dy.sum(0))
    done = run("verify_my_gradients.py", "cpu", str(tmp_path / "mine.npz"))
    assert done.returncode == 1
    assert "dalpha DOES NOT HOLD" in done.stdout
    assert "dbeta  holds" in done.stdout
