"""Sums by subgroups, where an adapter gives a row's threads one of their own, and without them on the same adapter."""

from dataclasses import replace

import numpy as np
import pytest
from grids import KEPT_D, inputs, small_where_slow, whole
from planting import plant
from variants import ADAPTERS, WITH_SUBGROUPS

from rowgrad_wgpu import layer_norm_back
from rowgrad_wgpu.backends import webgpu as backend
from rowgrad_wgpu.contract import KERNELS
from rowgrad_wgpu.device import Device
from rowgrad_wgpu.plan import SOFTWARE_TEAM, WEBGPU, choose_variant

SUMMING = [kernel for kernel in KERNELS.values() if "team" in kernel.parts]


@pytest.fixture(scope="module")
def without(adapter):
    """The adapter, its sums through workgroup memory."""
    with Device(adapter.info.spec) as device:
        device._backend.limits = replace(device.limits, subgroup=0)
        yield device


def skip_without_subgroups(adapter):
    if adapter.limits.subgroup == 0:
        pytest.skip(f"{adapter.info.name} sums rows through workgroup memory alone")


@pytest.mark.parametrize("kernel", SUMMING, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("d", [1, 33, KEPT_D, 32 * KEPT_D + 4])
def test_the_plan_takes_them_where_a_team_is_one(kernel, d):
    chosen = [choose_variant(kernel, "float32", "float32", whole(2, d), limits) for limits in WITH_SUBGROUPS]
    assert [variant.subgroup for variant in chosen] == [False] * len(ADAPTERS) + [True]
    assert chosen[-1].team == SOFTWARE_TEAM
    assert chosen[-1].teams == 1


def test_the_plan_leaves_them_where_a_workgroup_has_more_rows():
    limits = replace(WEBGPU, subgroup=32)
    assert not choose_variant(KERNELS["softmax_back"], "float32", "float32", whole(9, 64), limits).subgroup


def test_the_plan_leaves_them_where_a_team_is_wider():
    limits = WITH_SUBGROUPS[-1]
    assert not choose_variant(KERNELS["softmax_back"], "float32", "float32", whole(9, KEPT_D + 4), limits).subgroup


def test_llvmpipe_has_them(adapter):
    asked = "llvmpipe" in adapter.info.name and adapter.info.api == "vulkan" and adapter.limits.software
    assert adapter.limits.subgroup == (SOFTWARE_TEAM if asked else 0)


@pytest.mark.parametrize("d", [33, KEPT_D])
def test_the_bits_are_those_of_workgroup_memory(adapter, without, d):
    skip_without_subgroups(adapter)
    small_where_slow(adapter, 9, d)
    given = inputs(9, d, "float32")
    one, other = (layer_norm_back(given["x"], given["dy"], device=device) for device in (adapter, without))
    assert [grad.tobytes() for grad in one] == [grad.tobytes() for grad in other]


def test_a_sum_that_does_not_reach_every_lane_is_not_taken(adapter, monkeypatch):
    skip_without_subgroups(adapter)
    plant(monkeypatch, "lib/team/subgroup.wgsl", "sum += subgroupShuffleXor(sum, reach)", "sum += sum")
    with Device(adapter.info.spec) as device:
        assert device.limits.subgroup == 0


@pytest.mark.parametrize("found", [[0x0F] * 4 + [0xF0] * 4, [0xFF] * 7 + [0x80]])
def test_a_team_of_more_subgroups_does_without(adapter, found, monkeypatch):
    skip_without_subgroups(adapter)
    monkeypatch.setattr(backend.WebGPUBackend, "_probe", lambda *given: np.array(found, np.uint32))
    with Device(adapter.info.spec) as device:
        assert device.limits.subgroup == 0


def test_a_header_that_the_compiler_refuses_is_passed_over(adapter, monkeypatch):
    skip_without_subgroups(adapter)
    monkeypatch.setattr(backend, "SUBGROUP_HEADERS", ("enable nonsense; ", *backend.SUBGROUP_HEADERS))
    with Device(adapter.info.spec) as device:
        assert device.limits.subgroup == adapter.limits.subgroup
