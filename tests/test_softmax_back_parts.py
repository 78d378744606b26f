"""softmax_back of few long rows, each cut into parts; test_tiers has the lengths and numbers of rows that are."""

import dataclasses

import numpy as np
import pytest
from grids import SHORT_D, check_softmax, inputs, launch, least_sums, suffix

from rowgrad_wgpu import bounds, ops, softmax_back
from rowgrad_wgpu.device import Device

STORAGES = pytest.mark.parametrize("storage", ["float32", pytest.param("float16", marks=pytest.mark.slow), "bfloat16"])


def check_taken(device, launched, rows, d, storage):
    """The kernel that the plan says, and what it gives."""
    given = inputs(rows, d, storage)
    dx = check_softmax(device, given["y"], given["dy"], storage)
    assert launched == [f"softmax_back{suffix(device, storage, rows, d)}"]
    return dx


@pytest.mark.parametrize("d", [SHORT_D, SHORT_D + 1, SHORT_D + 2, 3 * SHORT_D - 4])
@STORAGES
def test_every_place_of_a_parts_ends(device, launched, short_parts, d, storage):
    check_taken(device, launched, 3, d, storage)


@pytest.mark.parametrize("parts", [1, 9, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("d", "storage"), [(8, "float32"), (101, "float32"), (102, "bfloat16")])
def test_any_number_of_parts(device, parts, d, storage):
    given = inputs(5, d, storage)
    dx = launch(device, "softmax_back_parts", given, parts)["dx"]
    assert bounds.share(dx, bounds.softmax_back(given["y"], given["dy"], storage)) <= 1


@pytest.mark.parametrize("parts", [2, 38])
def test_inner_products_that_lose_what_they_can(device, parts):
    """The bound counts the roundings of both sums, over a part and over the parts."""
    y, dy = least_sums(300)
    dx = launch(device, "softmax_back_parts", {"y": y, "dy": dy}, parts)["dx"]
    assert bounds.share(dx, bounds.softmax_back(y, dy, "float32")) <= 1


@pytest.mark.parametrize(("value", "storage"), [(np.nan, "float32"), (np.inf, "bfloat16")])
def test_a_row_that_is_no_number_stays_in_its_row(device, short_parts, storage, value):
    given = inputs(4, SHORT_D, storage)
    clean = softmax_back(given["y"], given["dy"], device=device)
    given["y"][2, SHORT_D - 1] = value  # in the last part; the first is told
    dx = check_softmax(device, given["y"], given["dy"], storage)
    assert not np.isfinite(dx[2].astype(np.float32)).any()
    kept = [0, 1, 3]
    assert dx[kept].tobytes() == clean[kept].tobytes()


@pytest.mark.parametrize("storage", ["bfloat16"])
def test_same_bits_twice_and_in_other_batches(device, short_parts, storage):
    given = inputs(7, SHORT_D + 2, storage)
    whole = softmax_back(given["y"], given["dy"], device=device)
    assert softmax_back(given["y"], given["dy"], device=device).tobytes() == whole.tobytes()
    for part in (slice(0, 1), slice(3, 7)):
        assert softmax_back(given["y"][part], given["dy"][part], device=device).tobytes() == whole[part].tobytes()


@pytest.mark.parametrize("d", [SHORT_D, SHORT_D + 1])
def test_blocks_and_windows_do_not_change_a_bit(adapter, launched, short_parts, monkeypatch, d):
    given = inputs(7, d, "float32")
    whole = softmax_back(given["y"], given["dy"], device=adapter)
    with Device(adapter.info.spec) as device:
        room = 4 * 4 * d + 16 + adapter.limits.binding_alignment  # four rows
        device._backend.limits = dataclasses.replace(device.limits, binding_bytes=room, groups_per_dimension=3)
        assert softmax_back(given["y"], given["dy"], device=device).tobytes() == whole.tobytes()
        monkeypatch.setattr(ops, "BLOCK_BYTES", 4 * 4 * d)
        assert softmax_back(given["y"], given["dy"], device=device).tobytes() == whole.tobytes()
    assert launched == ["softmax_back_parts"] * 4  # two blocks the last time


def test_arrays_on_the_device(device, launched, short_parts):
    given = inputs(2, SHORT_D, "float32")
    y, dy = device.asarray(given["y"]), device.asarray(given["dy"])
    assert softmax_back(y, dy).numpy().tobytes() == softmax_back(given["y"], given["dy"], device=device).tobytes()
    assert launched == [f"softmax_back{suffix(device, 'float32', 2, SHORT_D)}"] * 2
