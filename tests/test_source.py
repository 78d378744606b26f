from itertools import product

import numpy as np
import pytest
import wgpu
from grids import variants_of, whole
from variants import ADAPTERS, alphas_of, every_variant, variant_for

from rowgrad_wgpu.contract import KERNELS, STORAGE
from rowgrad_wgpu.plan import WEBGPU, choose_variant
from rowgrad_wgpu.source import assemble_wgsl, shader_text

KERNEL = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


@KERNEL
def test_every_variant_is_every_one(kernel):
    random = np.random.default_rng(0)
    long = np.exp2(random.uniform(8, 22, 300)).astype(int).tolist()
    many = np.exp2(random.uniform(0, 26, 5)).astype(int).tolist()
    known = set(every_variant(kernel))
    for storage, limits, d, rows in product(STORAGE, ADAPTERS, [*range(1, 100), *long], many):
        for alpha in alphas_of(kernel, storage):
            assert known.issuperset(variant_for(kernel, storage, alpha, whole(rows, d), limits))


@KERNEL
def test_every_variant_compiles(kernel, adapter):
    gpu = adapter._backend._device
    for variant in every_variant(kernel):
        gpu.create_shader_module(label=str(variant), code=assemble_wgsl(variant))


def test_what_is_wrong_does_not_compile(adapter):
    text = assemble_wgsl(choose_variant(KERNELS["softmax_back"], "float32", "float32", whole(1, 8), WEBGPU))
    with pytest.raises(wgpu.GPUValidationError):
        adapter._backend._device.create_shader_module(code=text.replace("products", "product", 1))


@KERNEL
@pytest.mark.parametrize("storage", STORAGE)
def test_a_pipeline_of_every_kernel(kernel, storage, webgpu):
    for variant in variants_of(kernel, (8, 7), webgpu.limits):
        if variant.storage == storage:
            assert webgpu._backend._compile(variant) is not None


@KERNEL
def test_line_numbers_are_the_kernels(kernel):
    text = shader_text(f"{kernel.name}.wgsl")
    for variant in every_variant(kernel):
        assert assemble_wgsl(variant).startswith(text)


@KERNEL
def test_constants_are_the_variants(kernel):
    for variant in every_variant(kernel):
        lines = assemble_wgsl(variant).splitlines()
        assert f"const THREADS = {variant.team * variant.teams}u;" in lines
        assert f"const QUADS = {variant.cells}u;" in lines
        assert f"const KEPT = {variant.cells or 1}u;" in lines
        assert f"const KEPT_BESIDE = {variant.cells if variant.kept == 2 else 1}u;" in lines
        assert f"const BOTH = {'true' if variant.kept == 2 else 'false'};" in lines
        assert f"const FULL = {'true' if variant.full else 'false'};" in lines
        assert f"const ALIGNED = {'true' if variant.aligned else 'false'};" in lines


def test_a_parts_file_that_is_missing_is_an_error():
    with pytest.raises(FileNotFoundError):
        shader_text("lib/storage/float64.wgsl")
