"""The shaders as Apple's and Microsoft's compilers get them: naga's translations, and Microsoft's DXC and FXC.

Where wgpu puts the numbers of its bindings and the count of workgroups, these texts have placeholders.
"""

import ctypes
import importlib.util
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compilers import refuse

from rowgrad_wgpu.plan import Variant
from rowgrad_wgpu.source import assemble_wgsl

ROOT = Path(__file__).parent.parent
NAGA = ROOT / "build" / "naga" / "node_modules" / "naga-wasm"
FETCHED = "`make test-full` fetches it"


def translate(texts: dict[str, str], folder: Path) -> None:
    """Writes `folder`/<name>.metal, .5_1.hlsl and .6_2.hlsl of each WGSL text."""
    if not NAGA.is_dir():
        raise FileNotFoundError(f"expected naga's translator in {NAGA}: {FETCHED}")
    for name, text in texts.items():
        (folder / f"{name}.wgsl").write_text(text, encoding="utf-8")
    command = [Path(sys.executable).parent / "node", ROOT / "tools" / "translate.mjs", NAGA, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Translations:
    """The translations of `variants`."""

    def __init__(self, variants: Iterable[Variant], folder: Path) -> None:
        self._names = {variant: f"{index:04}" for index, variant in enumerate(variants)}
        self._folder = folder
        translate({name: assemble_wgsl(variant) for variant, name in self._names.items()}, folder)

    def text(self, variant: Variant, ending: str) -> str:
        """One of them: `metal`, `5_1.hlsl` or `6_2.hlsl`."""
        return (self._folder / f"{self._names[variant]}.{ending}").read_text(encoding="utf-8")


class FXC:
    """Microsoft's compiler before DXC, which Windows has built in; here under wine, with the flags that wgpu gives it.

    It knows no 16-bit types, but the shaders convert by integers; nor subgroups, so wgpu offers none with it.
    """

    COMMAND = ROOT / "build" / "fxc" / "fxc"
    TIMES = COMMAND.with_name("times.json")

    def __init__(self) -> None:
        if not self.COMMAND.exists():
            refuse("fxc", f"expected FXC in {self.COMMAND}: `make build/fxc/fxc` fetches it or says why not")

    def compile(self, texts: dict[str, str], entry_point: str) -> dict[str, float]:
        """The seconds of processor time that it takes for each text. One process of wine takes them all.

        **Raises:** `ValueError` with the compiler's message.
        """
        with tempfile.TemporaryDirectory() as folder:
            for name, text in texts.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
            command = [self.COMMAND, entry_point, *texts]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(done.stderr)
        lines = (line.split(maxsplit=1) for line in done.stdout.splitlines())
        return {name: int(milliseconds) / 1000 for milliseconds, name in lines}


class _Text(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("nbytes", ctypes.c_size_t), ("encoding", ctypes.c_uint32))


class DXC:
    """Microsoft's shader compiler, with the arguments that wgpu gives it.

    Its COM objects are called by the index of their methods, and never released: a few hundred small ones.
    """

    COMPILER_CLASS = "73e22d93-e6ce-47f3-b5bf-f0664f39c1b0"
    COMPILER = "228b4687-5a6a-4730-900c-9702b2203f54"
    RESULT = "58346cda-dde7-4497-9461-6f87af5e0659"
    COMPILE, STATUS, RESULT_BUFFER, ERRORS = 3, 3, 4, 5
    ARGUMENTS = ("-HV", "2018", "-no-warnings", "-Ges")
    UTF8 = 65001

    def __init__(self) -> None:
        self._compiler = ctypes.c_void_p()
        create = ctypes.CDLL(str(_dxc_library())).DxcCreateInstance
        failed = create(_guid(self.COMPILER_CLASS), _guid(self.COMPILER), ctypes.byref(self._compiler))
        assert not failed, f"DxcCreateInstance gave {failed:#x}"

    def compile(self, hlsl: str, entry_point: str) -> bytes:
        """The DXIL of a compute shader. **Raises:** `ValueError` with the compiler's message."""
        source = hlsl.encode()
        text = _Text(source, len(source), self.UTF8)
        words = ("-E", entry_point, "-T", "cs_6_2", *self.ARGUMENTS)
        arguments = (ctypes.c_wchar_p * len(words))(*words)
        given = (ctypes.byref(text), arguments, ctypes.c_uint32(len(words)), None, _guid(self.RESULT))
        result = _object(self._compiler, self.COMPILE, *given)
        status = ctypes.c_int32()
        _call(result, self.STATUS, ctypes.byref(status))
        if status.value:
            raise ValueError(_contents(_object(result, self.ERRORS)).decode())
        return _contents(_object(result, self.RESULT_BUFFER))


def _dxc_library() -> Path:
    package = importlib.util.find_spec("compushady")
    if package is None:
        raise FileNotFoundError(f"expected DXC out of the package compushady-lrtu: {FETCHED}")
    (folder,) = package.submodule_search_locations or []
    return next(Path(folder).rglob("libdxcompiler*.so"))


def _guid(text: str) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(uuid.UUID(text).bytes_le, 16)


def _call(instance: ctypes.c_void_p, method: int, *arguments: Any, gives: type = ctypes.c_int32) -> Any:
    table = ctypes.cast(instance, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
    return ctypes.CFUNCTYPE(gives)(table[method])(instance, *arguments)


def _object(instance: ctypes.c_void_p, method: int, *arguments: Any) -> ctypes.c_void_p:
    """The object that a method gives through its last argument."""
    given = ctypes.c_void_p()
    failed = _call(instance, method, *arguments, ctypes.byref(given))
    assert not failed, f"DXC gave {failed & 0xFFFFFFFF:#x}"
    return given


def _contents(blob: ctypes.c_void_p) -> bytes:
    address = _call(blob, 3, gives=ctypes.c_void_p)
    return ctypes.string_at(address, _call(blob, 4, gives=ctypes.c_size_t))
