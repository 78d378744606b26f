"""Files that `rowgrad run` cannot use, or only just: refused in one line, nothing unpickled, nothing left behind."""

import os
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from grids import inputs

import rowgrad_wgpu as rg
from rowgrad_wgpu import cli

NORMS = ("layer-norm-back", "rms-norm-back")
OPERATIONS = ("softmax-back", *NORMS)

FIELDS = "{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


@pytest.fixture
def files(tmp_path):
    for name, array in inputs(7, 33, "float32").items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def npy(header=None, descr="'<f4'", order="False", shape="(7, 33)", data=bytes(7 * 33 * 4), version=(1, 0)):
    """The bytes of a .npy file with that header."""
    text = FIELDS.format(descr=descr, order=order, shape=shape) if header is None else header
    text = text if isinstance(text, bytes) else text.encode()
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version[0] == 1 else "<I", len(text)) + text + data


def run(operation, *paths, out, options=()):
    return cli.main(["run", operation, *map(str, paths), "-o", str(out), "--device", "cpu", *options])


MALFORMED = {
    "truncated": npy(data=bytes(900)),
    "no data": npy(data=b""),
    "an unknown version": npy(version=(9, 9)),
    "a header of 4 GB": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}",
    "a header of 2 GB": b"\x93NUMPY\x03\x00\xff\xff\xff\x7f{}",
    "a negative shape": npy(shape="(-1, 33)"),
    "two negative lengths": npy(shape="(-7, -33)"),
    "a shape whose size overflows": npy(shape="(4294967296, 4294967296)"),
    "a shape beyond 64 bits": npy(shape="(18446744073709551616, 33)"),
    "a shape of petabytes": npy(shape="(9223372036854775807, 33)"),
    "a shape of terabytes": npy(shape="(1099511627776, 33)"),
    "a shape of floats": npy(shape="(7.0, 33)"),
    "a shape of truths": npy(shape="(True, 231)"),
    "a shape of nothing": npy(shape="None"),
    "a list for a shape": npy(shape="[7, 33]"),
    "65 axes": npy(shape="(" + "1," * 65 + ")"),
    "no axis": npy(shape="()"),
    "d of 0": npy(shape="(7, 0)", data=b""),
    "an order that is no truth": npy(order="'no'"),
    "objects": npy(descr="'|O'"),
    "a record": npy(descr="[('a', '<f4')]"),
    "a record of 16 bits": npy(descr="[('a', '<u2')]"),
    "an empty record": npy(descr="[('a', [('b', [])])]"),
    "a number for a type": npy(descr="5"),
    "no such type": npy(descr="'<q9'"),
    "a type with a NUL": npy(descr="'<f4\\0'"),
    "dates": npy(descr="'<M8[ns]'"),
    "texts": npy(descr="'|S4'"),
    "complex numbers": npy(descr="'<c8'"),
    "float64": npy(descr="'<f8'"),
    "big-endian floats": npy(descr="'>f4'"),
    "big-endian 16 bits": npy(descr="'>u2'"),
    "signed 16 bits": npy(descr="'<i2'"),
    "nested beyond the parser": npy(header="(" * 5000 + ")" * 5000),
    "a tower of signs": npy(header="-" * 9000 + "1"),
    "a call for a header": npy(header="__import__('os').system('touch sprung')"),
    "a number for a header": npy(header="3"),
    "half a header": npy(header="{'descr': '<f4'"),
    "a field too many": npy(header="{'descr': '<f4', 'fortran_order': False, 'shape': (7, 33), 'x': 1}"),
    "a header that is no text": npy(header=b"\xff\xfe{"),
}


SAID_TO_BE_BFLOAT16 = ("objects", *(kind for kind in MALFORMED if "16 bits" in kind))


@pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, ()) for kind in MALFORMED), *((kind, ("--bfloat16",)) for kind in SAID_TO_BE_BFLOAT16)],
)
def test_a_malformed_file(files, kind, options, capsys, monkeypatch):
    monkeypatch.chdir(files)
    (files / "bad.npy").write_bytes(MALFORMED[kind])
    before = sorted(files.iterdir())
    for operation in OPERATIONS:
        for paths in (["bad.npy", "bad.npy"], ["x.npy", "bad.npy"]):
            assert run(operation, *paths, out="out.npy", options=options) == 1
            assert capsys.readouterr().err.startswith("rowgrad: ")
    for operation in NORMS:
        assert run(operation, "x.npy", "dy.npy", "bad.npy", out="out.npz") == 1
    assert sorted(files.iterdir()) == before


def test_more_bytes_than_the_header_says(files):
    whole = (files / "y.npy").read_bytes()
    (files / "longer.npy").write_bytes(whole + b"more")
    assert run("softmax-back", files / "longer.npy", files / "dy.npy", out=files / "out.npy") == 0
    expected = rg.softmax_back(np.load(files / "y.npy"), np.load(files / "dy.npy"), device="cpu")
    assert np.array_equal(np.load(files / "out.npy"), expected)


def test_fortran_order(files):
    np.save(files / "turned.npy", np.asfortranarray(np.load(files / "y.npy")))
    assert run("softmax-back", files / "turned.npy", files / "dy.npy", out=files / "out.npy") == 0
    assert run("softmax-back", files / "y.npy", files / "dy.npy", out=files / "same.npy") == 0
    assert np.array_equal(np.load(files / "out.npy"), np.load(files / "same.npy"))


@pytest.mark.parametrize("name", ["bomb.npz", "bomb.npy"])
def test_a_zip_bomb_is_not_unpacked(files, name, capsys):
    bomb = files / name
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("y.npy", npy(shape="(262144, 32)", data=bytes(32 << 20)))
    assert bomb.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        assert run("softmax-back", bomb, files / "dy.npy", out=files / "out.npy") == 1
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert "archive" in capsys.readouterr().err


@pytest.mark.parametrize("operation", NORMS)
def test_one_file_for_a_norm(files, operation, capsys):
    assert run(operation, files / "x.npy", out=files / "out.npz") == 1
    assert "got 1 files" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_is_not_waited_for(files, capsys):
    os.mkfifo(files / "pipe.npy")
    assert run("softmax-back", files / "pipe.npy", files / "dy.npy", out=files / "out.npy") == 1
    assert "no file" in capsys.readouterr().err


@pytest.fixture
def link(files):
    """Makes a symlink in the folder."""

    def make(name, goal):
        try:
            (files / name).symlink_to(goal)
        except OSError as error:
            pytest.skip(f"no symlinks here: {error}")
        return files / name

    return make


@pytest.mark.parametrize("goal", ["nowhere.npy", "link.npy", ".", os.devnull])
def test_an_input_that_links_out_of_place(files, link, goal, capsys):
    assert run("softmax-back", link("link.npy", goal), files / "dy.npy", out=files / "out.npy") == 1
    assert capsys.readouterr().err.startswith("rowgrad: ")
    assert not (files / "out.npy").exists()


def test_an_input_may_be_a_link(files, link):
    assert run("softmax-back", link("link.npy", "y.npy"), files / "dy.npy", out=files / "out.npy") == 0


@pytest.mark.parametrize("goal", ["nowhere.npy", "link.npy", "y.npy"])
def test_an_output_that_links_somewhere_is_kept_and_never_followed(files, link, goal, capsys):
    out = link("link.npy", goal)
    kept = (files / "y.npy").read_bytes()
    assert run("softmax-back", files / "y.npy", files / "dy.npy", out=out) == 1
    assert "--force" in capsys.readouterr().err
    assert run("softmax-back", files / "y.npy", files / "dy.npy", out=out, options=["--force"]) == 0
    assert not out.is_symlink()
    assert np.load(out).shape == (7, 33)
    assert (files / "y.npy").read_bytes() == kept
    assert not (files / "nowhere.npy").exists()


def test_a_folder_for_an_output(files, capsys):
    (files / "folder").mkdir()
    arguments = [files / "y.npy", files / "dy.npy"]
    assert run("softmax-back", *arguments, out=files / "folder", options=["--force"]) == 1
    assert "a folder" in capsys.readouterr().err


def test_an_output_that_comes_up_meanwhile_is_kept(files, monkeypatch):
    right = cli.softmax_back

    def slow(*given, **more):
        (files / "out.npy").write_bytes(b"another's")
        return right(*given, **more)

    monkeypatch.setattr(cli, "softmax_back", slow)
    assert run("softmax-back", files / "y.npy", files / "dy.npy", out=files / "out.npy") == 1
    assert (files / "out.npy").read_bytes() == b"another's"


def test_an_input_may_be_overwritten(files):
    expected = rg.softmax_back(np.load(files / "y.npy"), np.load(files / "dy.npy"), device="cpu")
    assert run("softmax-back", files / "y.npy", files / "dy.npy", out=files / "y.npy", options=["--force"]) == 0
    assert np.array_equal(np.load(files / "y.npy"), expected)


NAMES = [
    "with spaces.npy",
    "ünï¢ødé 梯度 🚀.npy",
    "[red]markup[bold].npy",
    "a\nline.npy",
    "no ending",
    "x" * 255,
    "%s{0}.npy",
]


@pytest.mark.skipif(os.name == "nt", reason="Windows takes fewer names")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_names(files, name, operation):
    before = sorted(files.iterdir())
    (files / "y.npy").rename(files / f"y{name[1:]}")
    assert run(operation, files / f"y{name[1:]}", files / "dy.npy", out=files / name) == 0
    (files / f"y{name[1:]}").rename(files / "y.npy")
    np.load(files / name)
    assert sorted(files.iterdir()) == sorted([*before, files / name])


@pytest.mark.skipif(os.name == "nt" or os.uname().sysname == "Darwin", reason="names are texts on this system")
def test_a_name_that_is_no_text(files):
    name = os.fsdecode(os.fsencode(files) + b"/\xff\xfe.npy")
    os.rename(files / "y.npy", name)
    assert run("softmax-back", name, files / "dy.npy", out=os.fsdecode(os.fsencode(files) + b"/out\xff.npy")) == 0
