"""Tint, the WGSL compiler of Dawn and Chromium, without a driver: unlike naga it refuses barriers that may diverge."""

import os

import pytest
import wgpu
import wgpudawn
from variants import WITH_SUBGROUPS, every_variant

from rowgrad_wgpu.backends.webgpu import SUBGROUP_HEADERS
from rowgrad_wgpu.contract import KERNELS
from rowgrad_wgpu.source import assemble_wgsl


@pytest.fixture(scope="module")
def tint():
    """Dawn's Null device, with WebGPU's default limits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WGPU_BACKEND_TYPE", "Null")
        return wgpudawn.gpu.request_adapter_sync().request_device_sync(required_features=["subgroups"])


def build(gpu, text, entry_point):
    module = gpu.create_shader_module(code=text)
    gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": entry_point})


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_tint_compiles_every_variant(tint, kernel):
    for variant in every_variant(kernel, WITH_SUBGROUPS):
        header = SUBGROUP_HEADERS[-1] if variant.subgroup else ""
        try:
            build(tint, header + assemble_wgsl(variant), kernel.name)
        except wgpudawn.GPUValidationError as error:
            pytest.fail(f"{variant}\n{error}")


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("shares[place] = share;\n", "if (thread < 4u) { workgroupBarrier(); }\n", "uniform control"),
        ("products += a * b", "product += a * b", "unresolved value 'product'"),
        ("const THREADS = ", "const THREADS = 256u + ", "workgroup_size"),
        ("array<vec4f, HALF * TEAMS>", "array<vec4f, 1025>", "workgroup storage"),
    ],
)
def test_what_tint_refuses(tint, right, wrong, reason):
    text = assemble_wgsl(every_variant(KERNELS["softmax_back"])[0])
    assert right in text
    with pytest.raises(wgpudawn.GPUValidationError, match=reason):
        build(tint, text.replace(right, wrong), "softmax_back")


def test_the_suite_runs_on_the_implementation_asked_for():
    assert (wgpu.GPUDevice is wgpudawn.GPUDevice) == ("ROWGRAD_TINT" in os.environ)
