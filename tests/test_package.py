"""The package as a whole: what it imports, which way, and that the shaders travel with it."""

import ast
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import rowgrad_wgpu

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "rowgrad_wgpu"

# Imports point down this line; the back ends stand beside each other.
ORDER = (
    *("errors", "contract", "plan", "source", "reference", "bounds", "device"),
    *("backends", "ops", "check", "yardstick", "bench", "picture", "web", "cli", "__main__"),
)


def python(code: str, **environment: str) -> str:
    command = [sys.executable, "-P", "-c", code]  # -P: not the working copy's own folder
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_imports_no_gpu_library():
    loaded = python("import sys, rowgrad_wgpu; print([m for m in ('wgpu', 'cupy', 'rich') if m in sys.modules])")
    assert loaded.strip() == "[]"


def imported(path: Path) -> set[str]:
    """The modules of the package that a file imports, by the first step of their names."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            names |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    return names - {"__version__"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    inside = path.relative_to(PACKAGE).parts
    own = inside[0] if len(inside) > 1 else path.stem
    if own == "__init__":
        return
    for name in imported(path) - {own}:  # a folder's files may use what the folder itself defines
        assert ORDER.index(name) < ORDER.index(own), f"{own} imports {name}"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def shaders() -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (ROOT / "shaders").rglob("*") if path.is_file()}


def page() -> set[str]:
    return {path.name for path in (ROOT / "examples" / "browser").iterdir()}


def test_the_wheel_holds_the_shaders_and_works_without_the_folder(built, tmp_path):
    wheel = next(built.glob("*.whl"))
    held = shaders() | {f"browser/{name}" for name in page()} | {"py.typed"}
    with zipfile.ZipFile(wheel) as archive:
        assert {f"rowgrad_wgpu/{name}" for name in held} <= set(archive.namelist())
        archive.extractall(tmp_path)
    code = "import rowgrad_wgpu.source as s, rowgrad_wgpu.web as w; print(s.__file__); print(w.page_folder());"
    code += "print(s.shader_text('softmax_back.wgsl')[:15])"
    *where, text = python(code, PYTHONPATH=str(tmp_path)).splitlines()
    assert all(one.startswith(str(tmp_path)) for one in where)
    assert text == "// softmax_back"
    check = "import sys, rowgrad_wgpu.cli as c; sys.exit(c.main(['check', '--device', 'cpu']))"
    assert "every one is within its bound" in python(check, PYTHONPATH=str(tmp_path))


def test_the_source_archive_holds_what_it_is_built_from(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {f"examples/browser/{name}" for name in page()} < names
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "tools").iterdir()} | {"Makefile"} < names
    assert shaders() | {"pyproject.toml", "README.md", "LICENSE", "rowgrad_wgpu/py.typed"} <= names


def test_the_editable_install_reads_the_folder_at_the_top():
    from rowgrad_wgpu import source

    assert Path(str(source.shader_folder())).is_dir()
    assert source.shader_text("lib/row.wgsl").startswith("// row: ")


def test_the_version_is_the_projects():
    assert f'version = "{rowgrad_wgpu.__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
