"""layer_norm_back of few long rows, each cut into parts; test_tiers has the lengths and numbers of rows that are."""

import dataclasses

import numpy as np
import pytest
from grids import SHORT_D, check_layer_norm, inputs, launch, suffix

from rowgrad_wgpu import bounds, layer_norm_back, ops
from rowgrad_wgpu.device import Device

REST = ["layer_norm_params", "sum_partials"]

STORAGES = pytest.mark.parametrize("storage", ["float32", pytest.param("float16", marks=pytest.mark.slow), "bfloat16"])


def check_taken(device, launched, given, storage, eps=1e-5):
    """The kernel that the plan says, and what it gives."""
    check_layer_norm(device, given, storage, eps)
    assert launched == [f"layer_norm_back{suffix(device, storage, *given['x'].shape)}", *REST]


@pytest.mark.parametrize("d", [SHORT_D, SHORT_D + 1, SHORT_D + 2, 3 * SHORT_D - 4])
@STORAGES
def test_every_place_of_a_parts_ends(device, launched, short_parts, d, storage):
    check_taken(device, launched, inputs(3, d, storage), storage)


@pytest.mark.parametrize("d", [SHORT_D, SHORT_D + 2])
@pytest.mark.parametrize("storage", [pytest.param("float16", marks=pytest.mark.slow), "bfloat16"])
def test_alpha_in_float32_beside_16_bits(device, launched, short_parts, d, storage):
    given = inputs(2, d, storage) | {"alpha": inputs(2, d, "float32")["alpha"]}
    check_taken(device, launched, given, storage)


@pytest.mark.parametrize("parts", [1, 9, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("d", "storage"), [(8, "float32"), (101, "float32"), (102, "bfloat16")])
def test_any_number_of_parts(device, parts, d, storage):
    given = inputs(5, d, storage) | {"eps": np.array([1e-5], np.float32)}
    got = launch(device, "layer_norm_back_parts", given, parts)
    expected = bounds.layer_norm_back(given["x"], given["dy"], given["alpha"], 1e-5, storage, 5)
    assert bounds.share(got["dx"], expected.dx) <= 1
    assert bounds.share(got["stats"][:, :1], expected.mean) <= 1
    assert bounds.share(got["stats"][:, 1:], expected.r) <= 1


@pytest.mark.parametrize(("eps", "scale"), [(1e-5, 1e18), (1e-5, 1e30), (3e38, 1e18), (1e36, 1)])
def test_squares_beyond_float32(device, launched, short_parts, eps, scale):
    given = inputs(2, SHORT_D, "float32")
    given["x"] *= np.float32(scale)
    check_taken(device, launched, given, "float32", float(np.float32(eps)))


def test_squares_beyond_float32_on_the_cpu(cpu):
    given = inputs(2, SHORT_D, "float32") | {"eps": np.array([1e-5], np.float32)}
    given["x"] *= np.float32(1e30)
    dx = launch(cpu, "layer_norm_back_parts", given, 9)["dx"]
    assert bounds.share(dx, bounds.layer_norm_back(given["x"], given["dy"], given["alpha"], 1e-5, "float32", 2).dx) <= 1


@pytest.mark.parametrize("value", [0, 1e30])
def test_a_constant_row_is_exactly_centred(device, launched, short_parts, value):
    given = inputs(2, SHORT_D, "float32")
    given["x"] = np.full((2, SHORT_D), value, np.float32)
    check_taken(device, launched, given, "float32")


def test_a_mean_far_above_the_spread(device, launched, short_parts):
    given = inputs(2, SHORT_D, "float32")
    given["x"] = (10_000 + np.arange(SHORT_D) % 16 * 1e-3 + np.zeros((2, 1))).astype(np.float32)
    check_taken(device, launched, given, "float32")


@pytest.mark.parametrize(("value", "storage"), [(np.nan, "float32"), (np.inf, "bfloat16")])
def test_a_row_that_is_no_number_stays_in_its_row(device, short_parts, storage, value):
    given = inputs(4, SHORT_D, storage)
    clean = layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    given["x"][2, SHORT_D - 1] = value  # in the last part; the first is told
    got = layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    assert np.isnan(got.dx[2].astype(np.float32)).all()
    kept = [0, 1, 3]
    assert got.dx[kept].tobytes() == clean.dx[kept].tobytes()
    assert np.isnan(got.dalpha).all()
    assert got.dbeta.tobytes() == clean.dbeta.tobytes()


@pytest.mark.parametrize("storage", ["bfloat16"])
def test_same_bits_twice_and_in_other_batches(device, short_parts, storage):
    given = inputs(7, SHORT_D + 2, storage)
    x, dy, alpha = given["x"], given["dy"], given["alpha"]
    whole, again = (layer_norm_back(x, dy, alpha, device=device) for _ in range(2))
    assert [one.tobytes() for one in whole] == [one.tobytes() for one in again]
    part = slice(3, 7)
    assert layer_norm_back(x[part], dy[part], alpha, device=device).dx.tobytes() == whole.dx[part].tobytes()


@pytest.mark.parametrize("grads", [("dx",), ("dalpha",), ("dbeta",), ("dalpha", "dbeta")])
def test_a_gradient_does_not_depend_on_what_else_is_asked_for(device, launched, short_parts, grads):
    given = inputs(3, SHORT_D, "float32")
    whole = layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)
    launched.clear()
    got = layer_norm_back(given["x"], given["dy"], given["alpha"], grads=grads, device=device)
    for name in grads:
        assert getattr(got, name).tobytes() == getattr(whole, name).tobytes()
    if grads[0] == "dalpha":
        assert launched == [f"layer_norm_stats{suffix(device, 'float32', 3, SHORT_D)}", *REST]


@pytest.mark.parametrize("d", [SHORT_D, SHORT_D + 1])
def test_blocks_and_windows_do_not_change_a_bit(adapter, launched, short_parts, monkeypatch, d):
    given = inputs(7, d, "float32")

    def gradients(device):
        return [one.tobytes() for one in layer_norm_back(given["x"], given["dy"], given["alpha"], device=device)]

    whole = gradients(adapter)
    with Device(adapter.info.spec) as device:
        room = 4 * 4 * d + 16 + adapter.limits.binding_alignment  # four rows
        device._backend.limits = dataclasses.replace(device.limits, binding_bytes=room, groups_per_dimension=3)
        assert gradients(device) == whole
        monkeypatch.setattr(ops, "BLOCK_BYTES", 4 * 4 * d)
        assert gradients(device) == whole
    assert launched.count("layer_norm_back_parts") == 4  # two blocks the last time
