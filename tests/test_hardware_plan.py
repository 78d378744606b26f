"""What the plan asks of a GPU, run on the software adapter: wide teams, several rows a workgroup, other tiers."""

import dataclasses
import math

import pytest
from grids import check_layer_norm, check_softmax, inputs, small_where_slow, whole

from rowgrad_wgpu import check
from rowgrad_wgpu.contract import KERNELS, STORAGE
from rowgrad_wgpu.device import Device
from rowgrad_wgpu.plan import (
    EASY_ELEMENTS,
    HARDWARE_KEPT,
    HARDWARE_KEPT_OF_ONE,
    HARDWARE_TEAM,
    WIDEST_TEAM,
    choose_variant,
    one_pass,
)

EASY_D = HARDWARE_TEAM * EASY_ELEMENTS  # the longest row of the narrowest team
KEPT_D = WIDEST_TEAM * HARDWARE_KEPT  # the longest row of which both operands are kept
HALF_D = WIDEST_TEAM * HARDWARE_KEPT_OF_ONE  # the longest of which one is

SHAPES = (
    *((5, 1), (9, 3), (3, 32), (6, 33), (130, 7), (5, EASY_D - 3), (5, EASY_D), (3, EASY_D + 1), (3, EASY_D + 4)),
    *((2, 4 * EASY_D), (1, KEPT_D - 3), (2, KEPT_D), (1, KEPT_D + 1), (1, KEPT_D + 4), (1, HALF_D), (1, HALF_D + 1)),
)


@pytest.fixture(scope="module")
def as_hardware(adapter):
    with Device(adapter.info.spec) as device:
        device._backend.limits = dataclasses.replace(adapter.limits, software=False)
        yield device


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("storage", ["float32", "bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_every_tier(as_hardware, shape, storage):
    given = inputs(*shape, storage)
    check_softmax(as_hardware, given["y"], given["dy"], storage)
    check_layer_norm(as_hardware, given, storage)


def test_the_check_passes(as_hardware):
    cases = list(check.cases(full=False))
    small_where_slow(as_hardware, *max((case.x.shape for case in cases), key=math.prod))
    for case in cases:
        assert all(one.ok for one in check.check_case(as_hardware, case)), (case.values, case.x.shape, case.x.dtype)


def test_the_shapes_reach_every_team_and_tier(as_hardware):
    variants = [
        choose_variant(KERNELS["layer_norm_back"], storage, storage, whole(1, d), as_hardware.limits)
        for storage in STORAGE
        for _, d in SHAPES
    ]
    assert {one.team for one in variants} == {32, 64, 128, 256}
    assert {one.teams for one in variants} == {1, 2, 4}
    assert {one.rows_in_turn for one in variants} == {1, 2}
    assert {one.aligned for one in variants} == {True, False}
    assert {0, 1, EASY_ELEMENTS // 4, HARDWARE_KEPT // 4, HARDWARE_KEPT_OF_ONE // 4} <= {one.cells for one in variants}
    assert {one.kept for one in variants} == {0, 1, 2}
    assert {one_pass("float32", whole(*shape), as_hardware.limits) for shape in SHAPES} == {True, False}
