"""The CUDA kernels through NVRTC for NVIDIA and clang for AMD, without a GPU.

Every variant that the plan sends to a GPU compiles, keeps what it keeps in registers (no spills, no local memory),
reads and writes 16 bytes at once where rows are aligned, and meets other warps at barriers only where it has to.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from unittest import mock

import compilers
import pytest
from compilers import Compiled, in_parallel
from grids import takes, variants_of, whole

from rowgrad_wgpu.contract import KERNELS, STORAGE, Kernel
from rowgrad_wgpu.plan import (
    EASY_ELEMENTS,
    HARDWARE_CELLS,
    HARDWARE_KEPT,
    HARDWARE_KEPT_OF_ONE,
    HARDWARE_TEAM,
    SUMMED_CELLS,
    SUMMED_ELEMENTS,
    UNLIMITED,
    WIDEST_TEAM,
    Variant,
    choose_variant,
)
from rowgrad_wgpu.source import assemble_cuda

EASY_D = HARDWARE_TEAM * EASY_ELEMENTS
SUMMED_D = WIDEST_TEAM * SUMMED_ELEMENTS[False]
SUMMED_SINGLES_D = HARDWARE_TEAM * SUMMED_CELLS
SINGLES_D = WIDEST_TEAM * HARDWARE_CELLS
BOTH_D = WIDEST_TEAM * HARDWARE_KEPT
ONE_D = WIDEST_TEAM * HARDWARE_KEPT_OF_ONE
THRESHOLDS = (SUMMED_SINGLES_D, EASY_D, 2 * EASY_D, 4 * EASY_D, SUMMED_D, SINGLES_D, BOTH_D, ONE_D)

# Both sides of each threshold, aligned and not; those that need the most registers; and a few for every GPU.
WIDTHS = (*(1, 7, 32, 33, 768, 769), *(d + more for d in THRESHOLDS for more in (-1, 0, 1, 8)))
HARD_WIDTHS = (SUMMED_SINGLES_D - 1, 768, SINGLES_D - 1, SUMMED_D, BOTH_D, ONE_D, ONE_D + 8)
FEW = (("bfloat16", SUMMED_SINGLES_D - 1), ("bfloat16", 768), ("float32", SINGLES_D - 1), ("float32", SUMMED_D))

NVIDIA = (75, 80, 90, 100, 120)
AMD = {"gfx90a": 64, "gfx942": 64, "gfx1100": 32, "gfx1201": 32}
WARP = 32
REGISTERS = 1 << 16  # of a multiprocessor, on all of these
REGISTER_STEP = 8

slow = pytest.mark.slow
by_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def on_gpus(architectures: Iterable[object]) -> list[object]:
    """Every kernel on every GPU; those that take parts of rows keep nothing, so they are left to the long suite."""
    return [
        pytest.param(kernel, one, marks=slow if kernel.phases > 1 else (), id=f"{kernel.name}-{one}")
        for kernel, one in product(KERNELS.values(), architectures)
    ]


@pytest.fixture(scope="module")
def nvrtc():
    compilers.need_nvrtc()
    return compilers.nvrtc


@pytest.fixture(scope="module")
def clang():
    compilers.need_clang()
    return compilers.clang


def variants(kernel: Kernel, widths: tuple[int, ...]) -> list[Variant]:
    """Every variant of these widths, for buffers that begin with a cell and for others, each text once."""
    found = [one for aligned in (True, False) for one in variants_of(kernel, widths, UNLIMITED, aligned)]
    return list({assemble_cuda(one): one for one in found}.values())


def few(kernel: Kernel) -> list[Variant]:
    """Aligned and not, short and as long as is kept, where the plan sends them to this kernel."""
    found: dict[str, Variant] = {}
    for storage, d in FEW if kernel.parts else FEW[:1]:
        if takes(kernel, storage, whole(64, d), UNLIMITED):
            one = variant(kernel.name, d, storage)
            found[assemble_cuda(one)] = one
    return list(found.values())


def variant(kernel: str, d: int, storage: str = "bfloat16") -> Variant:
    return choose_variant(KERNELS[kernel], storage, storage, whole(64, d), UNLIMITED)


def expected_traits(one: Variant, warp: int) -> set[str]:
    """The kinds of instruction that a variant needs; no others of those looked for may be there."""
    kernel = KERNELS[one.kernel]
    wide = one.aligned and bool(kernel.parts)
    needed = {
        "wide loads": wide,
        "wide stores": wide and one.kernel != "layer_norm_stats",
        "barriers": ("row" in kernel.parts and one.team > warp) or ("turns" in kernel.parts and one.teams > 1),
        "shuffles": "row" in kernel.parts,
    }
    return {name for name, is_needed in needed.items() if is_needed}


def faults(one: Variant, compiled: Compiled, warp: int) -> list[str]:
    """What is wrong with a variant."""
    held = {
        "free of spills": compiled.spilled == 0,
        "free of local memory": compiled.local == 0,
        "within shared memory": compiled.shared <= UNLIMITED.shared_bytes,
        "as wide as it should be": compiled.traits in (None, expected_traits(one, warp)),
    }
    return [f"not {name}: {one}, {compiled}" for name, holds in held.items() if not holds]


def nvidia_faults(nvrtc, architecture: int, those: list[Variant], instructions: bool) -> list[str]:
    def look(one: Variant) -> list[str]:
        compiled = nvrtc(assemble_cuda(one), architecture, instructions=instructions)
        taken = -(-compiled.registers // REGISTER_STEP) * REGISTER_STEP * one.threads
        small = [] if taken <= REGISTERS else [f"a block does not fit: {one}, {compiled}"]
        return small + faults(one, compiled, WARP)

    return [fault for found in in_parallel(look, those) for fault in found]


def amd_faults(clang, architecture: str, those: list[Variant]) -> list[str]:
    def look(one: Variant) -> list[str]:
        compiled = clang(assemble_cuda(one), architecture)
        if KERNELS[one.kernel].phases > 1 and not one.aligned:  # writes four sums side by side
            compiled = replace(compiled, traits=compiled.traits - {"wide stores"})
        return faults(one, compiled, AMD[architecture])

    return [fault for found in in_parallel(look, those) for fault in found]


@pytest.mark.parametrize(("kernel", "architecture"), on_gpus([90]))
def test_hard_variants_on_an_nvidia_gpu(nvrtc, architecture, kernel):
    assert nvidia_faults(nvrtc, architecture, variants(kernel, HARD_WIDTHS), instructions=False) == []


@pytest.mark.parametrize(("kernel", "architecture"), on_gpus(NVIDIA))
def test_a_few_variants_on_nvidia_gpus(nvrtc, architecture, kernel):
    assert nvidia_faults(nvrtc, architecture, few(kernel), instructions=architecture == 90) == []


@pytest.mark.parametrize(("kernel", "architecture"), on_gpus(AMD))
def test_a_few_variants_on_amd_gpus(clang, architecture, kernel):
    assert amd_faults(clang, architecture, few(kernel)) == []


@slow
@by_kernel
@pytest.mark.parametrize("architecture", [one for one in NVIDIA if one != 90])
def test_the_instructions_of_other_nvidia_gpus(nvrtc, architecture, kernel):
    assert nvidia_faults(nvrtc, architecture, few(kernel), instructions=True) == []


@slow
@by_kernel
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("architecture", NVIDIA)
def test_every_variant_on_nvidia_gpus(nvrtc, architecture, part, kernel):
    those = variants(kernel, WIDTHS)[part::4]
    assert nvidia_faults(nvrtc, architecture, those, instructions=architecture == 90) == []


@slow
@by_kernel
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("architecture", AMD)
def test_every_variant_on_amd_gpus(clang, architecture, part, kernel):
    assert amd_faults(clang, architecture, variants(kernel, WIDTHS)[part::4]) == []


def test_the_options_are_cupys(nvrtc, monkeypatch):
    """CuPy's own way from a text to NVRTC, but for the question to the driver which GPU is there."""
    from cupy._core import core
    from cupy.cuda import compiler

    given = []

    class Program(compiler._NVRTCProgram):
        def compile(self, options=(), log_stream=None):
            given.append(options)
            return super().compile(options, log_stream)

    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    monkeypatch.setattr(compiler, "_NVRTCProgram", Program)
    monkeypatch.setattr(compiler, "_get_arch_for_options_for_nvrtc", lambda arch: (f"-arch=sm_{arch}", "cubin"))
    monkeypatch.setattr(compiler, "function", mock.Mock())
    compiler._compile_module_with_cache(
        assemble_cuda(variant("softmax_back", 768)), core.assemble_cupy_compiler_options(()), arch="90"
    )
    passed = {one for one in given[-1] if not one.startswith("-I")}
    assert passed == {*compilers.CUPY_OPTIONS, "-arch=sm_90"}


@by_kernel
def test_every_function_says_where_it_runs(nvrtc, kernel):
    """CuPy's option takes what has no __device__ for device code; nvcc and hipRTC have no such option."""
    others = tuple(one for one in compilers.CUPY_OPTIONS if "execution-space" not in one)
    for storage in STORAGE if kernel.phases == 1 else ("bfloat16",):
        nvrtc(assemble_cuda(variant(kernel.name, 768, storage)), 90, others)


def test_a_function_that_does_not_say_so_is_found(nvrtc, clang):
    text = assemble_cuda(variant("softmax_back", 768)).replace("__device__ inline bool inside", "inline bool inside")
    nvrtc(text, 90)
    with pytest.raises(RuntimeError, match="inside"):
        nvrtc(text, 90, compilers.CUPY_OPTIONS[:-1])
    with pytest.raises(RuntimeError, match="inside"):
        clang(text, "gfx942")


def test_spills_are_found(nvrtc, clang):
    text = assemble_cuda(replace(variant("layer_norm_back", 768, "float32"), cells=32, kept=2))
    for found in (nvrtc(text, 90, instructions=True), clang(text, "gfx1100")):
        assert found.spilled > 0
        assert found.local > 0
        assert "local memory" in found.traits


def test_narrow_accesses_are_found(nvrtc):
    """On NVIDIA; AMD's memory takes 16 bytes at any address."""
    text = assemble_cuda(variant("softmax_back", 768)).replace("struct alignas(WIDTH * sizeof(F)) Cell", "struct Cell")
    assert nvrtc(text, 90, instructions=True).traits == {"shuffles"}


def test_the_widths_reach_every_team_and_tier():
    for widths in (WIDTHS, HARD_WIDTHS):
        reached = [one for name in ("softmax_back", "layer_norm_back") for one in variants(KERNELS[name], widths)]
        assert {one.team for one in reached} >= {32, 256}
        assert {one.kept for one in reached} == {0, 1, 2}
        assert {(one.width, one.aligned) for one in reached} == {(1, False), (4, True), (8, True)}
        assert max(one.cells for one in reached) == HARDWARE_CELLS
        summed = variants(KERNELS["layer_norm_grads"], widths)
        assert max(one.cells * one.width for one in summed if one.aligned) == SUMMED_ELEMENTS[False]
        assert max(one.cells for one in summed if not one.aligned) == SUMMED_CELLS
