from dataclasses import replace

import numpy as np
import pytest
from grids import assert_alike, bounds_of_launches, inputs, small_where_slow, whole

from rowgrad_wgpu import layer_norm_back
from rowgrad_wgpu.contract import STORAGE, chunk_count
from rowgrad_wgpu.errors import ShapeError
from rowgrad_wgpu.plan import SOFTWARE_TEAM, SUMMED_ELEMENTS, one_pass

NARROW_D = SOFTWARE_TEAM * SUMMED_ELEMENTS[True]  # the longest row of a software adapter's narrowest team


def by_kernels(device, given, chunks, in_one_pass):
    """dx, stats and partial, by layer_norm_grads or by the two kernels."""
    rows, d = given["x"].shape
    arrays = {name: device.asarray(given[name]) for name in ("x", "dy", "alpha")}
    eps = device.asarray(np.array([1e-5], np.float32))
    dx, stats = device.empty((rows, d), given["x"].dtype), device.empty((rows, 2), np.float32)
    partial = device.empty((chunks, 2, d), np.float32)
    if in_one_pass:
        device.launch("layer_norm_grads", **arrays, eps=eps, dx=dx, stats=stats, partial=partial)
    else:
        device.launch("layer_norm_back", **arrays, eps=eps, dx=dx, stats=stats)
        device.launch("layer_norm_params", x=arrays["x"], dy=arrays["dy"], stats=stats, partial=partial)
    return {"dx": dx.numpy(), "stats": stats.numpy(), "partial": partial.numpy()}


@pytest.mark.parametrize(("rows", "d"), [(1, 4), (65, 8), (130, 32), (66, 132), (200, 36), (4099, 8), (7, 1), (70, 34)])
@pytest.mark.parametrize("storage", STORAGE)
def test_the_bits_of_the_two_kernels(device, rows, d, storage):
    small_where_slow(device, rows, d)
    assert_kernels_agree(device, rows, d, storage)


@pytest.mark.parametrize(("d", "storage"), [(768, "bfloat16"), (NARROW_D, "float32")])
def test_the_bits_of_the_two_kernels_in_long_rows(device, d, storage):
    small_where_slow(device, 3, d)
    assert_kernels_agree(device, 3, d, storage)


def test_the_bits_of_the_two_kernels_in_wider_teams(adapter):
    small_where_slow(adapter, 3, NARROW_D + 1)
    assert_kernels_agree(adapter, 3, NARROW_D + 1, "bfloat16")


def assert_kernels_agree(device, rows, d, storage):
    if not one_pass(storage, whole(rows, d), device.limits):
        pytest.skip(f"{device.info.name} takes such rows in two kernels alone")
    given = inputs(rows, d, storage)
    chunks = chunk_count(rows)
    one, two = (by_kernels(device, given, chunks, in_one_pass) for in_one_pass in (True, False))
    for name, bound in bounds_of_launches(given, storage, -(-rows // chunks)).items():
        assert_alike(device, one[name], two[name], bound)


@pytest.mark.parametrize("d", [1, 3, 33, 35])
@pytest.mark.parametrize("rows", [69, 70, 131, 200])
@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
def test_chunks_that_end_inside_a_word(device, rows, d, storage):
    """Chunks of 35 and 44 rows, and of 50: the seams between two lie inside a word, and between two words."""
    assert_kernels_agree(device, rows, d, storage)


def test_rows_that_share_words_are_refused_on_a_gpu(webgpu, monkeypatch):
    monkeypatch.setattr(webgpu._backend, "limits", replace(webgpu.limits, software=False))
    with pytest.raises(ShapeError, match="use layer_norm_back and layer_norm_params"):
        by_kernels(webgpu, inputs(70, 37, "bfloat16"), 2, True)


@pytest.mark.parametrize("chunks", [1, 3, 10, 40])
def test_any_number_of_chunks(device, chunks):
    given = inputs(10, 8, "float32")
    one, two = (by_kernels(device, given, chunks, in_one_pass) for in_one_pass in (True, False))
    assert one["partial"].tobytes() == two["partial"].tobytes()


def test_no_rows_give_zeros(device):
    got = by_kernels(device, inputs(0, 8, "float16"), 3, True)
    assert not got["partial"].any()


def test_layer_norm_back_takes_it(device, launched):
    given = inputs(70, 32, "float32")
    assert one_pass("float32", whole(70, 32), device.limits)
    layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    assert launched == ["layer_norm_grads", "sum_partials"]
