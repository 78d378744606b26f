import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from grids import variants_of

from rowgrad_wgpu.contract import CHUNK_ROWS, KERNELS, MOST_CHUNKS, STORAGE, chunk_count, storage_name
from rowgrad_wgpu.errors import DTypeError
from rowgrad_wgpu.plan import SOFTWARE_TEAM, UNLIMITED, WEBGPU
from rowgrad_wgpu.source import PROBE, cuda_files, part_files, shader_folder, shader_text

SHADERS = Path(str(shader_folder()))
WGSL = sorted(path.relative_to(SHADERS).as_posix() for path in SHADERS.rglob("*.wgsl"))
CUDA = sorted(path.relative_to(SHADERS).as_posix() for path in SHADERS.rglob("*.cu*"))
KERNEL = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)

BINDING = re.compile(r"@group\(0\) @binding\((\d+)\) var<([\w, ]+)> (\w+): ([\w<>]+);")


def code_of(text):
    return re.sub(r"//[^\n]*", "", text)


def functions_of(text):
    """Every function's name, parameters and body; a function ends with the first brace in the first column."""
    found = re.findall(r"\bfn (\w+)\((.*?)\)[^{;]*\{(.*?)\n\}", code_of(text), flags=re.DOTALL)
    return {name: (parameters, body) for name, parameters, body in found}


@pytest.mark.parametrize(
    ("rows", "chunks"),
    [
        (0, 1),
        (1, 1),
        (CHUNK_ROWS, 1),
        (CHUNK_ROWS + 1, 2),
        (CHUNK_ROWS * MOST_CHUNKS - CHUNK_ROWS, MOST_CHUNKS - 1),
        (CHUNK_ROWS * MOST_CHUNKS, MOST_CHUNKS),
        (CHUNK_ROWS * MOST_CHUNKS + 1, MOST_CHUNKS),
        (3_000_000, MOST_CHUNKS),
    ],
)
def test_chunk_count(rows, chunks):
    assert chunk_count(rows) == chunks


def test_chunk_constants_are_the_seeds():
    assert (CHUNK_ROWS, MOST_CHUNKS) == (64, 256)


@pytest.mark.parametrize(
    ("dtype", "name"), [(np.float32, "float32"), ("float16", "float16"), (ml_dtypes.bfloat16, "bfloat16")]
)
def test_storage_name(dtype, name):
    assert storage_name(dtype) == name
    assert storage_name(STORAGE[name]) == name


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (np.float64, "expected float32, float16 or bfloat16 .* got float64; convert with .astype"),
        (np.int32, "got int32"),
        (np.bool_, "got bool"),
        (np.complex64, "got complex64"),
        (np.object_, "got object"),
        (ml_dtypes.float8_e4m3fn, "got float8_e4m3fn"),
        (np.dtype(">f4"), "native byte order, got >f4"),
        ("nonsense", "expected a NumPy dtype, got 'nonsense'"),
        (3.5, "expected a NumPy dtype, got 3.5"),
    ],
)
def test_storage_name_refuses(dtype, text):
    with pytest.raises(DTypeError, match=text):
        storage_name(dtype)


@KERNEL
def test_bindings_are_the_records(kernel):
    found = BINDING.findall(code_of(shader_text(f"{kernel.name}.wgsl")))
    wanted = [
        (str(index), "storage, read_write" if buffer.written else "storage, read", shader_name(buffer.name))
        for index, buffer in enumerate(kernel.buffers)
    ]
    wanted.append((str(len(kernel.buffers)), "uniform", "sizes"))
    assert [binding[:3] for binding in found] == wanted
    assert found[-1][3] == "Meta"


def shader_name(name):
    return "partial_" if name == "partial" else name  # "partial" is reserved in WGSL


@KERNEL
def test_bindings_fit_every_adapter(kernel):
    assert len(kernel.buffers) <= 7
    assert code_of(shader_text(f"{kernel.name}.wgsl")).count("var<uniform>") == 1


@KERNEL
def test_header_table_is_the_records(kernel):
    rows = re.findall(r"^//   (\d+) +(\w+) +(\[[\w, ]+\]|Meta)", shader_text(f"{kernel.name}.wgsl"), flags=re.MULTILINE)
    shapes = [f"[{', '.join(map(str, buffer.axes))}]" for buffer in kernel.buffers]
    wanted = [(str(index), buffer.name, shapes[index]) for index, buffer in enumerate(kernel.buffers)]
    assert rows == [*wanted, (str(len(kernel.buffers)), "sizes", "Meta")]


@KERNEL
def test_meta_is_the_records(kernel):
    (body,) = re.findall(r"struct Meta \{(.*?)\}", code_of(shader_text(f"{kernel.name}.wgsl")), flags=re.DOTALL)
    assert re.findall(r"(\w+): (\w+),", body) == [(name, "u32") for name in kernel.meta + kernel.window]


@KERNEL
def test_entry_point_is_the_stem(kernel):
    code = code_of(shader_text(f"{kernel.name}.wgsl"))
    assert re.findall(r"@compute @workgroup_size\(THREADS\)\s*fn (\w+)\(", code) == [kernel.name]
    assert code.count("@compute") == 1


def test_every_kernel_file_has_a_record():
    assert {name.removesuffix(".wgsl") for name in WGSL if "/" not in name} == set(KERNELS)
    assert {name.removesuffix(".cu") for name in CUDA if "/" not in name} == set(KERNELS)


def cuda_fields(kernel):
    """What a CUDA kernel takes behind its buffers: pointers need no origins."""
    names = [name for name in kernel.meta + kernel.window if not name.endswith("origin")]
    return [(name, "int" if name == "d" else "long long") for name in names]


CUDA_TYPES = {"F": "F", "A": "A", "float32": "float"}


@KERNEL
def test_cuda_parameters_are_the_records(kernel):
    code = code_of(shader_text(f"{kernel.name}.cu"))
    ((name, parameters),) = re.findall(r"KERNEL (\w+)\(\s*(.*?)\)", code, flags=re.DOTALL)
    found = [re.sub(r"\s+", " ", one).replace(" __restrict__", "").strip() for one in parameters.split(",")]
    pointers = [
        f"{'' if buffer.written else 'const '}{CUDA_TYPES[buffer.element]}* {buffer.name}" for buffer in kernel.buffers
    ]
    assert name == kernel.name
    assert found == [*pointers, *(f"{kind} {field}" for field, kind in cuda_fields(kernel))]


@KERNEL
def test_cuda_header_table_is_the_records(kernel):
    text = shader_text(f"{kernel.name}.cu")
    rows = re.findall(r"^//   (\d+) +(\w+) +(\[[\w, ]+\]|int32|int64)", text, flags=re.MULTILINE)
    wanted = [(buffer.name, f"[{', '.join(map(str, buffer.axes))}]") for buffer in kernel.buffers]
    wanted += [(name, "int32" if kind == "int" else "int64") for name, kind in cuda_fields(kernel)]
    assert rows == [(str(index), *row) for index, row in enumerate(wanted)]


def formulas_of(name):
    """The lines of a kernel's header before its table."""
    header, _, _ = shader_text(name).partition("//   binding")
    return re.findall(r"^//   .*=.*$", header.partition("//   argument")[0], flags=re.MULTILINE)


@KERNEL
def test_twins_have_one_formula(kernel):
    assert formulas_of(f"{kernel.name}.wgsl") == formulas_of(f"{kernel.name}.cu") != []


@pytest.mark.parametrize("name", [*WGSL, *CUDA])
def test_first_line_names_the_file(name):
    stem = name.removeprefix("lib/").rpartition(".")[0]
    assert shader_text(name).startswith(f"// {stem}: ")


def test_every_part_is_used():
    used = {PROBE}
    with_subgroups = replace(WEBGPU, software=True, subgroup=SOFTWARE_TEAM)
    for kernel, limits in product(KERNELS.values(), (WEBGPU, with_subgroups)):
        for variant in variants_of(kernel, (4, 5), limits):
            used.update(part_files(variant))
    assert used == {name for name in WGSL if name.startswith("lib/")}


def test_every_cuda_part_is_used():
    used = set()
    for kernel in KERNELS.values():
        for variant in variants_of(kernel, (8, 5), UNLIMITED):
            used.update(cuda_files(variant))
    assert used == {name for name in CUDA if not name.startswith("yardstick/")}


@KERNEL
@pytest.mark.parametrize("ending", ["wgsl", "cu"])
def test_the_header_names_the_parts(kernel, ending):
    """The files and folders of `shaders/lib` that come with it; gpu.cuh comes with every CUDA text."""
    variant = next(iter(variants_of(kernel, (8,), WEBGPU if ending == "wgsl" else UNLIMITED)))
    files = part_files(variant) if ending == "wgsl" else cuda_files(variant)[1:-1]
    header, _, _ = shader_text(f"{kernel.name}.{ending}").partition("\n\n")
    assert set(re.findall(r"lib/\w+", header.partition("Parts:")[2])) == {re.match(r"lib/\w+", one)[0] for one in files}


@KERNEL
def test_a_kernel_has_a_test_of_its_name(kernel):
    assert (Path(__file__).parent / f"test_{kernel.name}.py").is_file()


@pytest.mark.parametrize("name", CUDA)
def test_cuda_needs_no_header(name):
    """hipcc alone wants its own; NVRTC and hipRTC have no standard ones."""
    included = re.findall(r"#\s*include.*", code_of(shader_text(name)))
    assert [one.strip() for one in included] == (["#include <hip/hip_runtime.h>"] if name == "lib/gpu.cuh" else [])


@pytest.mark.parametrize("name", CUDA)
def test_cuda_functions_are_marked(name):
    """A function without __device__ compiles with CuPy's options alone."""
    functions = re.findall(
        r"^ *[\w :<>*&]+ [*&]?\w+\([^;{]*\) (?:const )?\{", code_of(shader_text(name)), flags=re.MULTILINE
    )
    functions = [one for one in functions if not re.match(r" *(?:if|for|UNROLL|return|else)\b", one)]
    assert all("__device__" in one or one.startswith("KERNEL") for one in functions), functions
    assert functions or name in ("lib/cell.cuh", "lib/alpha/float32.cuh", "lib/alpha/storage.cuh")


LINTS = {
    "enable": r"^\s*enable\b",
    "infinity or NaN as a literal": r"bitcast<f32>\(\s*0[xX][7fF][fF][89a-fA-F]",
    "pack2x16float": r"pack2x16float",
    "comparison with itself": r"(?<![\w.)\]])([\w.]+)\s*[!=]=\s*\1(?![\w.(\[])",
    "pointer to memory as a parameter": r"ptr<\s*(storage|workgroup)",
}


def faults_of(text):
    code = code_of(text)
    return [fault for fault, pattern in LINTS.items() if re.search(pattern, code, flags=re.MULTILINE)]


@pytest.mark.parametrize("name", WGSL)
def test_lints(name):
    assert faults_of(shader_text(name)) == []


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("enable", "enable f16;"),
        ("infinity or NaN as a literal", "const INFINITY = bitcast<f32>(0x7f800000u);"),
        ("infinity or NaN as a literal", "const NAN = bitcast<f32>(0xFFC00000u);"),
        ("pack2x16float", "let word = pack2x16float(quad.xy);"),
        ("comparison with itself", "if (quad.x != quad.x) {"),
        ("comparison with itself", "let is_nan = !(a == a);"),
        ("pointer to memory as a parameter", "fn f(p: ptr<storage, array<f32>, read>) {"),
    ],
)
def test_lints_find(fault, text):
    assert faults_of(text) == [fault]
    assert faults_of(f"// {text}") == []


def barrier_words(texts):
    """`workgroupBarrier` and every function through which it is reached."""
    bodies = [(name, body) for text in texts for name, (_, body) in functions_of(text).items()]
    words = {"workgroupBarrier"}
    while True:
        found = {name for name, body in bodies if calls(body, words)}
        if found <= words:
            return words
        words |= found


def calls(body, words):
    return [match.start() for match in re.finditer(r"\b(\w+)\(", body) if match[1] in words]


def early_returns(text, words):
    found = []
    for name, (_, body) in functions_of(text).items():
        barriers = calls(body, words)
        if barriers and re.search(r"\breturn\b", body[: barriers[-1]]):
            found.append(name)
    return found


def test_no_return_before_a_barrier():
    texts = [shader_text(name) for name in WGSL]
    words = barrier_words(texts)
    assert {"team_sum", "turn_sum", "statistics_of", "layer_norm_row", *KERNELS} - {"sum_partials"} <= words
    assert [name for text in texts for name in early_returns(text, words)] == []


def test_a_return_before_a_barrier_is_found():
    text = "fn sum() {\n  workgroupBarrier();\n}\nfn row(q: u32) -> f32 {\n  if (q > 3u) { return 0.0; }\n  sum();\n}\n"
    assert early_returns(text, barrier_words([text])) == ["row"]
