import io
import json
import os
import pickle
import platform
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from grids import inputs

import rowgrad_wgpu as rg
from rowgrad_wgpu import check, cli

NO_ADAPTER = dict.fromkeys(("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES"), "/nonexistent")


def python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture
def files(tmp_path):
    """y, x, dy, alpha as .npy files in a folder with an awkward name."""
    folder = tmp_path / "a folder with ünïcode"
    folder.mkdir()
    for name, array in inputs(7, 33, "float32").items():
        np.save(folder / f"{name}.npy", array)
    return folder


@pytest.fixture
def few_cases(monkeypatch):
    """`rowgrad check` with some of its cases."""
    monkeypatch.setattr(cli, "cases", lambda full: list(check.cases(full))[::20])


def test_info_names_every_device(capsys):
    assert cli.main(["info", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["spec"] for one in told["devices"]] == [one.spec for one in rg.devices()]
    assert told["auto"] == told["devices"][0]
    assert cli.main(["info"]) == 0
    assert "auto takes" in capsys.readouterr().out


HIDDEN = """
import sys
from rowgrad_wgpu import cli

cli.cases = lambda full: []  # the seed's alone
statuses = [cli.main(arguments.split()) for arguments in ("info --json", "check --device wgpu", "check --json")]
assert statuses == [0, 1, 0], statuses
"""


@pytest.mark.skipif(sys.platform != "linux", reason="hides the drivers as Linux finds them")
def test_without_an_adapter():
    done = python("-c", HIDDEN, ROWGRAD_DEVICE="", **NO_ADAPTER)
    assert done.returncode == 0, done.stderr
    told, end = json.JSONDecoder().raw_decode(done.stdout)
    assert [one["spec"] for one in told["devices"]] == ["cpu"]
    assert "driver" in told["missing"][0]["reason"]
    assert "mesa-vulkan-drivers" in done.stderr
    assert json.loads(done.stdout[end:])["device"]["spec"] == "cpu"


def test_check_prints_the_seeds_lines_and_a_table(named_device, capsys):
    assert cli.main(["check", "--device", named_device.info.spec]) == 0
    told = capsys.readouterr().out
    assert f"[softmax back {named_device.info.spec}]" in told
    assert "dα" in told
    assert "every one is within its bound" in told


def test_an_encoding_without_greek_letters(few_cases, monkeypatch):
    """Windows has no α in the code page that it takes for files and pipes."""
    printed = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", printed)
    assert cli.main(["check", "--device", "cpu"]) == 0
    printed.flush()
    told = printed.buffer.getvalue().decode("ascii")
    assert "d?" in told
    assert "every one is within its bound" in told


def test_check_as_json(few_cases, capsys):
    assert cli.main(["check", "--device", "cpu", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    assert told["device"]["spec"] == "cpu"
    assert told["version"] == rg.__version__
    assert platform.python_version() in told["platform"]
    assert told["details"]["numpy"] == np.__version__
    assert set(told["results"][0]) >= {"kernel", "dtype", "shape", "output", "gap", "bound", "ok"}


def test_a_check_that_fails(few_cases, capsys, monkeypatch):
    right = check.softmax_back
    monkeypatch.setattr(check, "softmax_back", lambda *given, **more: right(*given, **more) * 0)
    assert cli.main(["check", "--device", "cpu"]) == 1
    assert "NOT within" in capsys.readouterr().out
    assert cli.main(["check", "--device", "cpu", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_a_spec_that_means_nothing(capsys):
    assert cli.main(["check", "--device", "nonsense"]) == 1
    assert "wgpu:metal" in capsys.readouterr().err


def test_run_softmax_back(files):
    """By the command itself, as the others call what is behind it."""
    out = files / "dx of mine.npy"
    inputs_and_output = (files / "y.npy", files / "dy.npy", "-o", out)
    assert python("-m", "rowgrad_wgpu", "run", "softmax-back", *inputs_and_output, "--device", "cpu").returncode == 0
    expected = rg.softmax_back(np.load(files / "y.npy"), np.load(files / "dy.npy"), device="cpu")
    assert np.array_equal(np.load(out), expected)


@pytest.mark.parametrize("with_alpha", [True, False])
@pytest.mark.parametrize("norm", ["layer_norm_back", "rms_norm_back"])
def test_run_a_norm(files, norm, with_alpha):
    names = ("x", "dy", "alpha") if with_alpha else ("x", "dy")
    paths = [str(files / f"{name}.npy") for name in names]
    out = files / "grads.npz"
    operation = norm.replace("_", "-")
    assert cli.main(["run", operation, *paths, "-o", str(out), "--device", "cpu", "--eps", "0.01"]) == 0
    expected = getattr(rg, norm)(*map(np.load, paths), eps=0.01, device="cpu")._asdict()
    with np.load(out) as got:
        assert got.files == list(expected)
        for name, gradient in expected.items():
            assert np.array_equal(got[name], gradient)
    assert sorted(path.name for path in files.iterdir()) == ["alpha.npy", "dy.npy", "grads.npz", "x.npy", "y.npy"]


@pytest.mark.parametrize("shape", [(2, 3, 8), (0, 8)])
def test_run_on_other_shapes(files, shape):
    array = np.ones(shape, np.float16)
    np.save(files / "y.npy", array)
    arguments = ["run", "softmax-back", str(files / "y.npy"), str(files / "y.npy"), "-o", str(files / "o.npy")]
    assert cli.main([*arguments, "--device", "cpu"]) == 0
    assert np.load(files / "o.npy").shape == shape


def test_run_on_bfloat16(files, capsys):
    y = inputs(4, 5, "bfloat16")["y"]
    np.save(files / "y.npy", y)
    arguments = ["run", "softmax-back", str(files / "y.npy"), str(files / "y.npy"), "-o", str(files / "o.npy")]
    assert cli.main([*arguments, "--device", "cpu"]) == 1
    assert "--bfloat16" in capsys.readouterr().err
    assert cli.main([*arguments, "--device", "cpu", "--bfloat16"]) == 0
    got = np.load(files / "o.npy").view(ml_dtypes.bfloat16)
    assert got.tobytes() == rg.softmax_back(y, y, device="cpu").tobytes()


def test_an_existing_output_is_kept(files, capsys):
    out = files / "o.npy"
    out.write_bytes(b"mine")
    arguments = ["run", "softmax-back", str(files / "y.npy"), str(files / "dy.npy"), "-o", str(out), "--device", "cpu"]
    assert cli.main(arguments) == 1
    assert "--force" in capsys.readouterr().err
    assert out.read_bytes() == b"mine"
    assert cli.main([*arguments, "--force"]) == 0
    assert np.load(out).shape == (7, 33)


class Trap:
    """Unpickling this makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def spoil(kind, path, trap):
    whole = path.read_bytes()
    match kind:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(whole[:-20])
        case "header alone":
            path.write_bytes(whole[:10])
        case "empty":
            path.write_bytes(b"")
        case "garbage":
            path.write_bytes(b"no array at all")
        case "a pickle":
            path.write_bytes(pickle.dumps(Trap(trap)))
        case "objects":
            np.save(path, np.array([[Trap(trap)]], object), allow_pickle=True)
        case "float64":
            np.save(path, np.zeros((7, 33)))
        case "another shape":
            np.save(path, np.zeros((7, 32), np.float32))
        case "an archive":
            with path.open("wb") as file:
                np.savez(file, a=np.zeros(3))
        case "a folder":
            path.unlink()
            path.mkdir()


@pytest.mark.parametrize(
    "kind",
    [
        *("missing", "truncated", "header alone", "empty", "garbage", "a pickle", "objects", "float64"),
        *("another shape", "an archive", "a folder"),
    ],
)
@pytest.mark.parametrize("operation", ["softmax-back", "layer-norm-back", "rms-norm-back"])
def test_a_file_that_cannot_be_used(files, kind, operation, capsys):
    trap = str(files.parent / "sprung")
    spoil(kind, files / "dy.npy", trap)
    before = sorted(files.iterdir())
    first = files / ("y.npy" if operation == "softmax-back" else "x.npy")
    arguments = ["run", operation, str(first), str(files / "dy.npy"), "-o", str(files / "o.npy"), "--device", "cpu"]
    assert cli.main(arguments) == 1
    assert capsys.readouterr().err.startswith("rowgrad: ")
    assert sorted(files.iterdir()) == before
    assert not os.path.exists(trap)


def test_a_folder_that_is_not_there(files, capsys):
    arguments = ["run", "softmax-back", str(files / "y.npy"), str(files / "dy.npy"), "-o", str(files / "no" / "o.npy")]
    assert cli.main([*arguments, "--device", "cpu"]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("operation", ["layer-norm-back", "rms-norm-back"])
def test_a_negative_eps(files, operation, capsys):
    arguments = ["run", operation, str(files / "x.npy"), str(files / "dy.npy"), "-o", str(files / "o.npz")]
    assert cli.main([*arguments, "--device", "cpu", "--eps", "-1"]) == 1
    assert "eps" in capsys.readouterr().err
    assert not (files / "o.npz").exists()


@pytest.mark.parametrize("norm", ["layer_norm_back", "rms_norm_back"])
def test_a_failure_midway_leaves_nothing(files, norm, monkeypatch):
    def fail(*given, **more):
        more["out"][:] = 1
        raise rg.OutOfMemory("as planned")

    monkeypatch.setattr(cli, norm, fail)
    before = sorted(files.iterdir())
    arguments = ["run", norm.replace("_", "-"), str(files / "x.npy"), str(files / "dy.npy"), "-o", str(files / "o.npz")]
    assert cli.main([*arguments, "--device", "cpu"]) == 1
    assert sorted(files.iterdir()) == before
