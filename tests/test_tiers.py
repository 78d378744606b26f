"""Every kind of variant that the plan chooses for WebGPU, by name, at both sides of each threshold: what it is, then
what it computes. A GPU's run on the software adapter too."""

import math
from dataclasses import replace
from typing import NamedTuple

import pytest
from grids import KEPT_D as SOFTWARE_D
from grids import SHORT_D, SHORT_PART, check_layer_norm, check_softmax, inputs, small_where_slow, whole

from rowgrad_wgpu import check
from rowgrad_wgpu.contract import KERNELS
from rowgrad_wgpu.device import Device
from rowgrad_wgpu.plan import (
    EASY_ELEMENTS,
    FEW_ROWS,
    HARDWARE_GROUP,
    HARDWARE_KEPT,
    HARDWARE_KEPT_OF_ONE,
    HARDWARE_TEAM,
    LONG_D,
    MOST_PARTS,
    PART,
    SOFTWARE_EASY,
    SOFTWARE_KEPT,
    SOFTWARE_TEAM,
    SUMMED_ELEMENTS,
    WIDEST_TEAM,
    choose_variant,
    one_pass,
    split,
)

EASY_D = HARDWARE_TEAM * EASY_ELEMENTS  # the longest row of the narrowest team
SUMMED_D = WIDEST_TEAM * SUMMED_ELEMENTS[False]  # the longest row of the one pass
KEPT_D = WIDEST_TEAM * HARDWARE_KEPT  # the longest row of which both operands are kept
HALF_D = WIDEST_TEAM * HARDWARE_KEPT_OF_ONE  # the longest of which one is
WIDE_D = WIDEST_TEAM * SOFTWARE_KEPT  # the longest row that a software adapter keeps
MANY_ROWS = FEW_ROWS[True]  # not cut into parts


class Tier(NamedTuple):
    """Rows, and what the plan makes of them; `one_pass` tells whether a LayerNorm's gradients come at once."""

    rows: int
    d: int
    team: int
    teams: int
    kept: int
    full: bool
    one_pass: bool


MANY = HARDWARE_GROUP // HARDWARE_TEAM

GPU = {
    "a row of one element": Tier(5, 1, HARDWARE_TEAM, MANY, 2, False, True),
    "less than a cell": Tier(9, 3, HARDWARE_TEAM, MANY, 2, False, True),
    "a team half idle": Tier(3, 32, HARDWARE_TEAM, MANY, 2, False, True),
    "words that may be shared": Tier(6, 33, HARDWARE_TEAM, MANY, 2, False, True),
    "whole words": Tier(6, 34, HARDWARE_TEAM, MANY, 2, False, True),
    "more rows than a workgroup": Tier(130, 7, HARDWARE_TEAM, MANY, 2, False, True),
    "the narrowest team, unaligned": Tier(5, EASY_D - 3, HARDWARE_TEAM, MANY, 2, False, True),
    "the narrowest team, full": Tier(5, EASY_D, HARDWARE_TEAM, MANY, 2, True, True),
    "twice the team, unaligned": Tier(3, EASY_D + 1, 2 * HARDWARE_TEAM, MANY // 2, 2, False, True),
    "twice the team": Tier(3, EASY_D + 4, 2 * HARDWARE_TEAM, MANY // 2, 2, False, True),
    "a row a workgroup": Tier(2, 4 * EASY_D, HARDWARE_GROUP, 1, 2, True, True),
    "the longest of the one pass": Tier(2, SUMMED_D, WIDEST_TEAM, 1, 2, True, True),
    "beyond the one pass": Tier(2, SUMMED_D + 4, WIDEST_TEAM, 1, 2, False, False),
    "both kept, unaligned": Tier(1, KEPT_D - 3, WIDEST_TEAM, 1, 2, False, False),
    "both kept, full": Tier(2, KEPT_D, WIDEST_TEAM, 1, 2, True, False),
    "one kept, unaligned": Tier(1, KEPT_D + 1, WIDEST_TEAM, 1, 1, False, False),
    "one kept": Tier(1, KEPT_D + 4, WIDEST_TEAM, 1, 1, False, False),
    "one kept, full": Tier(1, HALF_D, WIDEST_TEAM, 1, 1, True, False),
    "none kept, unaligned": Tier(1, HALF_D + 1, WIDEST_TEAM, 1, 0, False, False),
}

CPU = {
    "a row of one element": Tier(5, 1, SOFTWARE_TEAM, 1, 2, False, True),
    "a team half idle": Tier(5, 16, SOFTWARE_TEAM, 1, 2, False, True),
    "full": Tier(70, 32, SOFTWARE_TEAM, 1, 2, True, True),
    "words that may be shared": Tier(6, 33, SOFTWARE_TEAM, 1, 2, False, True),
    "whole words": Tier(70, 34, SOFTWARE_TEAM, 1, 2, False, True),
    "both kept, unaligned": Tier(3, SOFTWARE_D - 7, SOFTWARE_TEAM, 1, 2, False, True),
    "both kept": Tier(3, SOFTWARE_D - 4, SOFTWARE_TEAM, 1, 2, False, True),
    "both kept, full": Tier(3, SOFTWARE_D, SOFTWARE_TEAM, 1, 2, True, True),
    "wider, both kept, unaligned": Tier(3, SOFTWARE_D + 1, 4 * SOFTWARE_TEAM, 1, 2, False, True),
    "wider, both kept, full": Tier(3, 2 * SOFTWARE_D, 4 * SOFTWARE_TEAM, 1, 2, True, True),
    "the widest, both kept": Tier(2, WIDEST_TEAM * SOFTWARE_EASY + 4, WIDEST_TEAM, 1, 2, False, True),
    "the widest, both kept, full": Tier(MANY_ROWS, WIDE_D, WIDEST_TEAM, 1, 2, True, True),
    "none kept, unaligned": Tier(MANY_ROWS, WIDE_D + 1, SOFTWARE_TEAM, 1, 0, False, False),
    "none kept": Tier(MANY_ROWS, WIDE_D + 4, SOFTWARE_TEAM, 1, 0, False, False),
}


SLOW = ("the widest, both kept", "both kept")  # others of their tier are full, and unaligned


class Cut(NamedTuple):
    """Rows, and how many parts the plan cuts each into; 1 where it leaves them whole, for the one pass if it can."""

    rows: int
    d: int
    parts: int
    one_pass: bool = False


GPU_CUTS = {
    "not long": Cut(1, LONG_D - 1, 1),
    "long": Cut(1, LONG_D, LONG_D // PART[False]),
    "long, unaligned": Cut(1, LONG_D + 1, LONG_D // PART[False] + 1),
    "long, whole words": Cut(2, LONG_D + 2, LONG_D // PART[False] + 1),
    "as many parts as can be": Cut(1, PART[False] * MOST_PARTS + 4, MOST_PARTS),
}

CPU_CUTS = {
    "not long": Cut(1, LONG_D - 1, 1, one_pass=True),
    "long": Cut(1, LONG_D, LONG_D // PART[True]),
    "long, unaligned": Cut(1, LONG_D + 1, LONG_D // PART[True] + 1),
    "long, whole words": Cut(2, LONG_D + 2, LONG_D // PART[True] + 1),
    "a million": Cut(1, 1 << 20, (1 << 20) // PART[True]),
    "few": Cut(FEW_ROWS[True] - 1, LONG_D, LONG_D // PART[True]),
    "not few": Cut(FEW_ROWS[True], LONG_D, 1, one_pass=True),
}

# In rows that count as long already, whose sums no thread keeps.
GPU_SHORT_CUTS = {
    "few": Cut(FEW_ROWS[False] - 1, SHORT_D, SHORT_D // SHORT_PART),
    "not few": Cut(FEW_ROWS[False], SHORT_D, 1),
}

STORAGES = pytest.mark.parametrize("storage", ["float32", "bfloat16", pytest.param("float16", marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def as_gpu(adapter):
    with Device(adapter.info.spec) as device:
        device._backend.limits = replace(adapter.limits, software=False, subgroup=0)
        yield device


@pytest.fixture(scope="module")
def without_subgroups(adapter):
    with Device(adapter.info.spec) as device:
        device._backend.limits = replace(adapter.limits, software=True, subgroup=0)
        yield device


@STORAGES
@pytest.mark.parametrize("name", GPU)
def test_a_tier_of_a_gpu(as_gpu, whole_rows, name, storage):
    assert_chosen_and_right(as_gpu, GPU[name], storage)


@STORAGES
@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in CPU])
def test_a_tier_of_a_software_adapter(adapter, name, storage):
    if adapter.info.kind != "software":
        pytest.skip(f"{adapter.info.name} is no software adapter")
    assert_chosen_and_right(adapter, CPU[name], storage)


# Long rows take seconds to compile.
@STORAGES
@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow) if "kept" in one else one for one in CPU])
def test_a_tier_without_subgroups(without_subgroups, name, storage):
    assert_chosen_and_right(without_subgroups, CPU[name], storage)


def assert_chosen_and_right(device, tier, storage):
    extent = whole(tier.rows, tier.d)
    variant = choose_variant(KERNELS["layer_norm_back"], storage, storage, extent, device.limits)
    assert (variant.team, variant.teams) == (tier.team, tier.teams)
    assert (variant.kept, variant.full) == (tier.kept, tier.full)
    assert variant.aligned == (tier.d % 4 == 0)
    assert variant.rows_in_turn == (2 if tier.d % 2 and storage != "float32" else 1)
    assert variant.subgroup == (device.limits.subgroup == tier.team)
    at_once = tier.one_pass and (variant.begin != "half" or device.limits.software)
    assert one_pass(storage, extent, device.limits) == at_once
    small_where_slow(device, tier.rows, tier.d)
    given = inputs(tier.rows, tier.d, storage)
    check_softmax(device, given["y"], given["dy"], storage)
    check_layer_norm(device, given, storage)


@STORAGES
@pytest.mark.parametrize("name", GPU_CUTS)
def test_a_cut_of_a_gpu(as_gpu, launched, name, storage):
    assert_cut_and_right(as_gpu, GPU_CUTS[name], storage, launched)


@pytest.mark.parametrize("name", GPU_SHORT_CUTS)
def test_a_cut_of_a_gpus_short_rows(as_gpu, launched, short_parts, name):
    assert_cut_and_right(as_gpu, GPU_SHORT_CUTS[name], "float32", launched)


@STORAGES
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if "not" in one else one for one in CPU_CUTS]
)
def test_a_cut_of_a_software_adapter(adapter, launched, name, storage):
    if adapter.info.kind != "software":
        pytest.skip(f"{adapter.info.name} is no software adapter")
    assert_cut_and_right(adapter, CPU_CUTS[name], storage, launched)


def assert_cut_and_right(device, cut, storage, launched):
    extent = whole(cut.rows, cut.d)
    parts = 1 if cut.d % 2 and storage != "float32" else cut.parts
    assert split(storage, extent, device.limits) == parts
    if parts > 1:
        extent = replace(extent, parts=parts)
        variant = choose_variant(KERNELS["softmax_back_parts"], storage, storage, extent, device.limits)
        assert (variant.team, variant.teams) == (SOFTWARE_TEAM if device.limits.software else HARDWARE_GROUP, 1)
        assert (variant.kept, variant.aligned) == (0, cut.d % 4 == 0)
        assert variant.subgroup == (device.limits.subgroup > 0)
    small_where_slow(device, cut.rows, cut.d)
    given = inputs(cut.rows, cut.d, storage)
    check_softmax(device, given["y"], given["dy"], storage)
    check_layer_norm(device, given, storage)
    suffix = "_parts" if parts > 1 else ""
    gradients = "layer_norm_grads" if cut.one_pass else f"layer_norm_back{suffix}"
    assert launched[:2] == [f"softmax_back{suffix}", gradients]


@pytest.mark.slow
def test_the_check_passes_as_on_a_gpu(as_gpu):
    cases = list(check.cases(full=False))
    small_where_slow(as_gpu, *max((case.x.shape for case in cases), key=math.prod))
    for case in cases:
        assert all(one.ok for one in check.check_case(as_gpu, case)), (case.values, case.x.shape, case.x.dtype)
