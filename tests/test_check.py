from dataclasses import replace

import numpy as np
import pytest

from rowgrad_wgpu import check, plan
from rowgrad_wgpu.contract import KERNELS, STORAGE


def test_the_seeds_generator():
    """Written out once more from its description: xorshift 13, 7, 17 on 64 bits, modulo 20001."""
    state, expected = 5, []
    for _ in range(4):
        for shift in (13, -7, 17):
            state ^= state << shift if shift > 0 else state >> -shift
            state %= 1 << 64
        expected.append((state % 20001 / 10000 - 1) * 3)
    np.testing.assert_allclose(check.xorshift(4, 5, 3.0), expected, rtol=1e-6)
    assert np.abs(check.xorshift(2000, 3, 0.5)).max() <= 0.5


def test_the_seeds_figures(device):
    results = check.check_seed(device)
    assert {(one.kernel, one.output) for one in results} >= {
        ("softmax_back", "dx"),
        ("layer_norm_back", "dx"),
        ("layer_norm_params", "dalpha"),
        ("layer_norm_params", "dbeta"),
        ("rms_norm_back", "dx"),
        ("rms_norm_back", "dalpha"),
    }
    for one in results:
        assert one.shape == (70, 768)
        assert one.ok
        if one.output.startswith("d"):
            assert one.gap <= 2e-7


def test_the_cases_reach_every_type_and_kind_of_d():
    seen = list(check.cases(full=False))
    assert {one.x.dtype for one in seen} == set(STORAGE.values())
    assert {one.x.shape[1] % 4 for one in seen} == {0, 1, 2, 3}
    assert len(list(check.cases(full=True))) > len(seen)


@pytest.mark.parametrize("software", [True, False])
def test_a_case_folds_the_grid(software):
    limits = replace(plan.WEBGPU, software=software)
    [case] = (one for one in check.cases(full=False) if len(one.x) == check.FOLDED_ROWS)
    extent = plan.whole(*case.x.shape)
    for stem in ("softmax_back", "layer_norm_back", "rms_norm_back"):
        launch = plan.plan_launch(KERNELS[stem], "float32", "float32", extent, limits)
        assert any(dispatch.grid[1] > 1 for dispatch in launch.dispatches)
        assert check.expected_of(case)[stem, "dx"].value.all(axis=-1).mean() > 0.9  # zeros would hide a row left out


def test_a_device_that_is_a_little_wrong_is_found(cpu, monkeypatch):
    right = check.softmax_back
    monkeypatch.setattr(check, "softmax_back", lambda *given, **more: right(*given, **more) * np.float32(1 + 1e-5))
    results = check.check_seed(cpu)
    assert [one.ok for one in results if one.kernel == "softmax_back"] == [False]
    assert all(one.ok for one in results if one.kernel != "softmax_back")


def test_other_bits_the_second_time_are_found(cpu, monkeypatch):
    right, calls = check.softmax_back, []

    def unsteady(*given, **more):
        calls.append(1)
        return np.nextafter(right(*given, **more), np.float32(len(calls) % 2))

    monkeypatch.setattr(check, "softmax_back", unsteady)
    assert not next(one for one in check.check_seed(cpu) if one.kernel == "softmax_back").ok


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the host GPU's threads are fibers
def test_the_full_check(device):
    if device.info.api == "gl":
        pytest.skip("OpenGL runs small shapes only")
    for case in check.cases(full=True):
        if len(case.x) == check.FOLDED_ROWS and device.info.backend == "cuda":
            continue  # its grids are not folded, and fibers are slow
        assert all(one.ok for one in check.check_case(device, case)), (case.values, case.x.shape, case.x.dtype)
