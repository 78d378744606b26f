"""What runs nowhere here: the shaders as Metal and DirectX 12 get them, as far as that can be compiled and computed."""

import re
from contextlib import contextmanager
from dataclasses import astuple, replace
from itertools import chain, product

import pytest
from grids import check_layer_norm, check_softmax, inputs, whole
from metal_on_cpu import EACH_ROUNDED, FAST, MetalOnCPU
from translations import DXC, FXC, Translations
from variants import ADAPTERS, ROWS, alphas_of, every_variant, variant_for

from rowgrad_wgpu import check
from rowgrad_wgpu.contract import KERNELS, STORAGE
from rowgrad_wgpu.device import Device
from rowgrad_wgpu.plan import WEBGPU

pytestmark = pytest.mark.slow

KERNEL = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
WIDE_D = (1020, 1021, 1025, 4100)
MANY_ROWS = 1000  # fibers are slow

USUAL_D = (768, 767, 766)  # whole cells, odd, even

# Of processor time, twice what layer_norm_grads, the slowest, was seen to take: other work adds a few tenths.
FXC_SECONDS = 22


@pytest.fixture(scope="module")
def translations(tmp_path_factory):
    variants = [variant for kernel in KERNELS.values() for variant in every_variant(kernel)]
    return Translations(variants, tmp_path_factory.mktemp("translations"))


@pytest.fixture(scope="module")
def dxc():
    return DXC()


@pytest.fixture(scope="module")
def fxc():
    return FXC()


def extremes(kernel):
    """Of each kind the variant that keeps most of its row, and one that keeps none."""
    found = {}
    for variant in sorted(every_variant(kernel), key=lambda one: one.cells):
        found[replace(variant, team=0, teams=0, cells=min(variant.cells, 1))] = variant
    return list(found.values())


@KERNEL
def test_naga_translates_every_variant(translations, kernel):
    for variant in every_variant(kernel):
        threads = f"[[max_total_threads_per_threadgroup({variant.threads})]] kernel void {kernel.name}("
        assert threads in translations.text(variant, "metal")
        for model in ("5_1", "6_2"):
            assert f"[numthreads({variant.threads}, 1, 1)]\nvoid {kernel.name}(" in translations.text(
                variant, f"{model}.hlsl"
            )


@KERNEL
def test_dxc_compiles(translations, dxc, kernel):
    for variant in extremes(kernel):
        assert dxc.compile(translations.text(variant, "6_2.hlsl"), kernel.name).startswith(b"DXBC")


def test_what_dxc_refuses(translations, dxc):
    variant = extremes(KERNELS["softmax_back"])[0]
    with pytest.raises(ValueError, match="undeclared identifier"):
        dxc.compile(
            translations.text(variant, "6_2.hlsl").replace("float4 products =", "float4 product ="), variant.kernel
        )


def usual(kernel, storage):
    """What a GPU gets for the rows of a transformer. The extremes would take FXC most of an hour."""
    alpha = alphas_of(kernel, storage)[-1]
    found = [variant_for(kernel, storage, alpha, whole(ROWS[0], d), WEBGPU) for d in USUAL_D]
    return dict.fromkeys(chain.from_iterable(found))


# Texts for float16 are those for bfloat16 but for lib/storage, so one kernel stands for them: FXC is slow.
@pytest.mark.parametrize(
    ("kernel", "storage"),
    [
        pytest.param(kernel, storage, id=f"{kernel.name}-{storage}")
        for kernel, storage in product(KERNELS.values(), STORAGE)
        if storage != "float16" or kernel.name == "softmax_back"
    ],
)
@pytest.mark.timeout(900)
def test_fxc_compiles(fxc, translations, kernel, storage, record_property):
    texts = {named(variant): translations.text(variant, "5_1.hlsl") for variant in usual(kernel, storage)}
    seconds = fxc.compile(texts, kernel.name)
    record_property("fxc", seconds)
    assert seconds.keys() == texts.keys()
    assert max(seconds.values()) < FXC_SECONDS, seconds


def named(variant):
    return "-".join(str(value) for value in astuple(variant))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("float4 product = ", "X3004: undeclared identifier 'products'"),
        ("if (thread_3 == 0u) { GroupMemoryBarrierWithGroupSync(); }\n    float4 products = ", "X3663: thread sync"),
    ],
    ids=["undeclared", "barrier for some"],
)
def test_what_fxc_refuses(fxc, translations, wrong, reason):
    (variant, *_) = usual(KERNELS["softmax_back"], "float32")
    text = translations.text(variant, "5_1.hlsl")
    assert "float4 products = " in text
    with pytest.raises(ValueError, match=reason):
        fxc.compile({"wrong": text.replace("float4 products = ", wrong)}, variant.kernel)


@pytest.fixture(params=ADAPTERS, ids=["software", "hardware"])
def metal_limits(request):
    """Few workgroups a dimension, so that the grid is folded."""
    return replace(request.param, groups_per_dimension=7)


@contextmanager
def metal_device(limits, metal_text, folder, mathematics=EACH_ROUNDED):
    with Device("cpu") as device:
        device._backend.close()
        device._backend = MetalOnCPU(limits, metal_text, folder, mathematics)
        yield device


def metal_cases(storage):
    return [one for one in check.cases(full=False) if one.x.dtype == STORAGE[storage] and len(one.x) < MANY_ROWS]


@pytest.mark.parametrize("storage", STORAGE)
def test_metal_shaders_compute(translations, metal_limits, storage, tmp_path):
    with metal_device(metal_limits, lambda one: translations.text(one, "metal"), tmp_path) as device:
        for case in metal_cases(storage):
            assert all(one.ok for one in check.check_case(device, case)), (case.values, case.x.shape)
        for d in WIDE_D:
            given = inputs(5, d, storage)
            check_softmax(device, given["y"], given["dy"], storage)
            check_layer_norm(device, given, storage)


def test_metal_shaders_compute_by_fast_mathematics(translations, metal_limits, tmp_path):
    """As Apple's compiler may: sums in another order, divisions by reciprocals."""
    with metal_device(metal_limits, lambda one: translations.text(one, "metal"), tmp_path, FAST) as device:
        for case in metal_cases("float32"):
            assert all(one.ok for one in check.check_case(device, case)), (case.values, case.x.shape)


def test_fast_mathematics_lose_what_is_not_opaque(translations, metal_limits, tmp_path):
    def plain(variant):
        call = r"metal::float4 (_e\d+) = opaque\(([^;]+), sizes\);(.*?)\(\1 - "
        text, found = re.subn(call, r"\3((\2) - ", translations.text(variant, "metal"), flags=re.DOTALL)
        assert found == ("gradient" in KERNELS[variant.kernel].parts)
        return text

    (far,) = (case for case in metal_cases("float32") if case.values == "mean far above the spread")
    with metal_device(metal_limits, plain, tmp_path, FAST) as device:
        assert {(one.kernel, one.output) for one in check.check_case(device, far) if not one.ok} == {
            ("layer_norm_back", "dx")
        }


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);", "", None),  # the sums come out wrong
        ("if (thread_ == 0u) {", "if (thread_ == 3u) { return; }\n    if (thread_ == 0u) {", "wait at a barrier"),
        ("dx[", "dx[1000u + ", "beyond the end"),
    ],
)
def test_a_fault_in_a_metal_shader_is_found(translations, right, wrong, reason, tmp_path):
    def broken(variant):
        text = translations.text(variant, "metal")
        assert right in text
        return text.replace(right, wrong)

    given = inputs(5, 65, "float32")
    with metal_device(ADAPTERS[0], broken, tmp_path) as device, pytest.raises(AssertionError, match=reason):
        check_softmax(device, given["y"], given["dy"], "float32")
