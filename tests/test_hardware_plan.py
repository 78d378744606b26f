"""What the plan asks of a GPU, run on the software adapter: wide teams, several rows a workgroup, other tiers."""

import dataclasses

import pytest
from grids import check_layer_norm, check_softmax, inputs

from rowgrad_wgpu import check
from rowgrad_wgpu.contract import KERNELS, STORAGE
from rowgrad_wgpu.device import Device
from rowgrad_wgpu.plan import CELL, EASY_QUADS, HARDWARE_QUADS, HARDWARE_TEAM, WIDEST_TEAM, choose_variant

EASY_D = HARDWARE_TEAM * EASY_QUADS * CELL  # the longest row of the narrowest team
KEPT_D = WIDEST_TEAM * HARDWARE_QUADS * CELL  # the longest row that is kept

SHAPES = (
    *((5, 1), (9, 3), (3, 32), (6, 33), (130, 7), (5, EASY_D - 3), (5, EASY_D), (3, EASY_D + 1), (3, EASY_D + 4)),
    *((2, 4 * EASY_D), (1, KEPT_D - 3), (2, KEPT_D), (1, KEPT_D + 1), (1, KEPT_D + 4)),
)


@pytest.fixture(scope="module")
def as_hardware(vulkan):
    with Device("wgpu:vulkan") as device:
        device._backend.limits = dataclasses.replace(vulkan.limits, software=False)
        yield device


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("storage", STORAGE)
def test_every_tier(as_hardware, shape, storage):
    given = inputs(*shape, storage)
    check_softmax(as_hardware, given["y"], given["dy"], storage)
    check_layer_norm(as_hardware, given, storage)


def test_the_check_passes(as_hardware):
    for case in check.cases(full=False):
        assert all(one.ok for one in check.check_case(as_hardware, case)), (case.values, case.x.shape, case.x.dtype)


def test_the_shapes_reach_every_team_and_tier(as_hardware):
    variants = [
        choose_variant(KERNELS["layer_norm_back"], storage, storage, d, as_hardware.limits)
        for storage in STORAGE
        for _, d in SHAPES
    ]
    assert {one.team for one in variants} == {32, 64, 128, 256}
    assert {one.teams for one in variants} == {1, 2, 4}
    assert {one.rows_in_turn for one in variants} == {1, 2}
    assert {one.aligned for one in variants} == {True, False}
    assert {0, 1, EASY_QUADS, HARDWARE_QUADS} <= {one.quads for one in variants}
