from dataclasses import replace
from itertools import product

import pytest
import wgpu

from rowgrad_wgpu.contract import KERNELS, STORAGE
from rowgrad_wgpu.plan import UNLIMITED, choose_variant
from rowgrad_wgpu.source import assemble_wgsl, shader_text

KERNEL = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
WIDTHS = (1, 2, 3, 7, 8, 17, 64, 768, 769, 1023, 1024, 4096, 4097, 16384, 16385, 131072, 1048575, 1048576)
SIZES = [replace(UNLIMITED, threads_per_group=256, software=software) for software in (True, False)]


def alphas_of(kernel, storage):
    return sorted({storage, "float32"}) if any(buffer.element == "A" for buffer in kernel.buffers) else [storage]


def variants_of(kernel):
    """Every variant that these widths come to, in a fixed order."""
    found = {}
    for storage, d, limits in product(STORAGE, WIDTHS, SIZES):
        for alpha in alphas_of(kernel, storage):
            found[choose_variant(kernel, storage, alpha, d, limits)] = None
    return list(found)


@KERNEL
def test_every_variant_compiles(kernel, vulkan):
    gpu = vulkan._backend._device
    for variant in variants_of(kernel):
        gpu.create_shader_module(label=str(variant), code=assemble_wgsl(variant))


def test_what_is_wrong_does_not_compile(vulkan):
    text = assemble_wgsl(choose_variant(KERNELS["softmax_back"], "float32", "float32", 8, UNLIMITED))
    with pytest.raises(wgpu.GPUValidationError):
        vulkan._backend._device.create_shader_module(code=text.replace("products", "product", 1))


@KERNEL
@pytest.mark.parametrize("storage", STORAGE)
def test_a_pipeline_of_every_kernel(kernel, storage, webgpu):
    for d in (8, 7):
        assert webgpu._backend._compile(choose_variant(kernel, storage, storage, d, webgpu.limits)) is not None


@KERNEL
def test_line_numbers_are_the_kernels(kernel):
    text = shader_text(f"{kernel.name}.wgsl")
    for variant in variants_of(kernel):
        assert assemble_wgsl(variant).startswith(text)


@KERNEL
def test_constants_are_the_variants(kernel):
    for variant in variants_of(kernel):
        lines = assemble_wgsl(variant).splitlines()
        assert f"const THREADS = {variant.team * variant.teams}u;" in lines
        assert f"const QUADS = {variant.quads}u;" in lines
        assert f"const KEPT = {variant.quads or 1}u;" in lines
        assert f"const ALIGNED = {'true' if variant.aligned else 'false'};" in lines


def test_a_parts_file_that_is_missing_is_an_error():
    with pytest.raises(FileNotFoundError):
        shader_text("lib/storage/float64.wgsl")
