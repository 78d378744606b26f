"""The test of the tests: a shader broken on purpose has to be refused by the self-test or fail the check."""

import pytest
from planting import plant

from rowgrad_wgpu import check, plan
from rowgrad_wgpu.contract import STORAGE
from rowgrad_wgpu.device import Device
from rowgrad_wgpu.errors import DeviceUnavailable

FAULTS = {
    "softmax without its inner product": ("softmax_back.wgsl", "a * (b - inner)", "a * b"),
    "the row's last quad left out": ("lib/row.wgsl", "(row.shift + sizes.d + 3u) / 4u", "(row.shift + sizes.d) / 4u"),
    "lanes outside the row count in": (
        *("lib/statistics.wgsl", "inside(row, q, x_again(row, k, q) - near)", "x_quad(row, q) - near"),
    ),
    "a level of the tree left out": ("lib/team/shared.wgsl", "var reach = HALF / 2u", "var reach = HALF / 4u"),
    "the upper half of a team left out": ("lib/team/shared.wgsl", "= share + shares[place]", "= share"),
    "no mean of u": ("lib/gradient.wgsl", "u - means.x - xhat", "u - xhat"),
    "no mean of u xhat": ("lib/gradient.wgsl", " - xhat * means.y", ""),
    "eps forgotten": ("lib/statistics.wgsl", " + eps[0]", ""),
    "alpha forgotten": ("lib/gradient.wgsl", " * alpha_here(row, k, q)", ""),
    "what the first mean missed": ("lib/statistics.wgsl", "statistics.near) - statistics.rest)", "statistics.near))"),
    "the overflow rule left out": ("lib/statistics.wgsl", "if (square + eps[0] < OVERFLOWING)", "if (true)"),
    "a NaN lost in the clamp": ("lib/statistics.wgsl", "value, is_nan)", "max(value, least), is_nan)"),
    "bfloat16 cut off, not rounded": ("lib/storage/bfloat16.wgsl", "bits + 0x7fffu + (", "bits + 0u * ("),
    "ties of float16 away from even": ("lib/storage/float16.wgsl", "+ 0xfffu + (", "+ 0x1000u + 0u * ("),
    "ties of bfloat16 away from even": ("lib/storage/bfloat16.wgsl", "+ ((bits >> vec4u(16u)) & vec4u(1u))", "+ 1u"),
    "a word of two rows written by one": ("lib/store/pairs.wgsl", "select(before, pair", "select(0u, pair"),
    "two rows of an odd d in another order": ("lib/store/pairs.wgsl", "== 3u) & 0xffffu", "== 3u) & 0u"),
    "the last row of a chunk left out": ("layer_norm_params.wgsl", "; row < end;", "; row + 1u < end;"),
    "dalpha and dbeta exchanged": ("layer_norm_params.wgsl", "(alpha_slot, j, dalpha)", "(alpha_slot, j, dbeta)"),
    "the one pass forgets a column's sum": ("lib/sums.wgsl", "dbeta_sum[k] += dy_here;", "dbeta_sum[k] = dy_here;"),
    "a chunk's last row left out in one pass": ("layer_norm_grads.wgsl", "row < whole_words(end);", "row + 1u < end;"),
    "the next chunk's row counted in": ("lib/sums.wgsl", "row.index < rows_end", "true"),
    "a word that two chunks write": ("layer_norm_grads.wgsl", "return row + row % 2u;", "return row;"),
    "the columns of a shifted row": ("lib/row.wgsl", "yzw, next), row.shift == 1u", "yzw, next), false"),
    "alpha of the column before": ("lib/row.wgsl", "quad.xyz), row.shift == 1u", "quad.xyz), false"),
    "the one pass takes the mean as first found": ("lib/gradient.wgsl", "= statistics.near + statistics.rest", "= 0.0"),
    "an RMSNorm centred": ("rms_norm_back.wgsl", "root_of(row, thread), false,", "root_of(row, thread), true,"),
    "an RMSNorm without its last term": ("lib/gradient.wgsl", "if (!centred) {", "if (!centred) { means.y = 0.0;"),
    "an RMSNorm's lanes outside the row count in": (
        *("rms_norm_back.wgsl", "x_quad(row, k * TEAM + lane)", "x_at(element_of(row, k * TEAM + lane))"),
    ),
    "an RMSNorm without eps": ("rms_norm_back.wgsl", "inverse_deviation(0.0, means.x, means.y)", "1.0 / sqrt(means.x)"),
    "an RMSNorm's squares not scaled": ("rms_norm_back.wgsl", "quad * SMALL", "quad"),
    "an RMSNorm's mean not 0": ("rms_norm_back.wgsl", "Statistics(0.0, 0.0,", "Statistics(0.0, 0.001,"),
    "the first chunk left out": ("sum_partials.wgsl", "var chunk = 0u", "var chunk = 1u"),
    "the grid not folded": ("lib/row.wgsl", "group.x + group.y * groups.x", "group.x"),
    "softmax's grid not folded": (
        *("softmax_back.wgsl", "first_row(group, groups, thread)", "first_row(vec3u(group.x), vec3u(), thread)"),
    ),
}  # fmt: skip

# In rows of 33 elements and more, cut into parts of 16.
PART_FAULTS = {
    "a part reads on into the next row": ("lib/part.wgsl", "min(sizes.part, sizes.d - column)", "sizes.part"),
    "every part is the row's first": ("lib/part.wgsl", "part.index * sizes.d + column;", "part.index * sizes.d;"),
    "the first part's sums left out": ("lib/part.wgsl", "var p = thread;", "var p = thread + 1u;"),
    "two phases in one slot": ("lib/part.wgsl", "unit * (PHASES - 1u) + phase", "unit * (PHASES - 1u)"),
    "two parts in one slot": ("lib/part.wgsl", "unit * (PHASES - 1u) + phase", "phase"),
    "softmax without its inner product": ("softmax_back_parts.wgsl", "(dy_quad(part, q) - inner)", "dy_quad(part, q)"),
    "alpha of another part": ("lib/part.wgsl", "part.first = column;", ""),
    "a centre that is no mean": ("lib/part_statistics.wgsl", "near_of_parts(part, thread));", "0.0);"),
    "sums taken for means": ("layer_norm_back_parts.wgsl", "thread) / f32(sizes.d)", "thread)"),
    "the mean and r of no row": ("lib/part_statistics.wgsl", "unit % sizes.parts == 0u", "unit == 0u"),
}  # fmt: skip

QUICK = ("a part reads on into the next row", "two phases in one slot", "softmax without its inner product")

LARGE = ("the grid not folded", "softmax's grid not folded")

# What a GPU's variants do not run: 16-bit rows that share words take two kernels there.
SOFTWARE = ("the next chunk's row counted in", "a word that two chunks write", "the columns of a shifted row")


def caught(device: Device, large: bool) -> bool:
    inputs = [check.random_case(check.FOLDED_ROWS, 2, STORAGE["float32"])] if large else []
    for dtype in STORAGE.values():
        inputs += [check.random_case(129, 33, dtype), *check.hard_cases(dtype)]
    inputs.append(check.random_case(66, 64, STORAGE["bfloat16"]))
    return any(not result.ok for case in inputs for result in check.check_case(device, case))


def test_the_shaders_as_they_are_pass(adapter):
    assert not caught(adapter, large=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(adapter, fault, monkeypatch):
    if fault in SOFTWARE and not adapter.limits.software:
        pytest.skip(f"{adapter.info.name} runs no such text")
    plant(monkeypatch, *FAULTS[fault])
    try:
        with Device(adapter.info.spec) as broken:
            assert caught(broken, large=fault in LARGE)
    except DeviceUnavailable as refusal:
        if "computes wrongly" not in str(refusal):
            raise


@pytest.fixture
def tiny_parts(short_parts, monkeypatch):
    monkeypatch.setattr(plan, "LONG_D", 33)
    monkeypatch.setattr(plan, "PART", {True: 16, False: 16})


def caught_in_parts(device: Device) -> bool:
    results = check.check_case(device, check.random_case(3, 66, STORAGE["float32"]))
    return any(not result.ok for result in results)


def test_the_parts_as_they_are_pass(adapter, launched, tiny_parts):
    assert not caught_in_parts(adapter)
    assert {"softmax_back_parts", "layer_norm_back_parts"} <= set(launched)


@pytest.mark.parametrize(
    "fault", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in PART_FAULTS]
)
def test_a_fault_in_parts_is_caught(adapter, fault, tiny_parts, monkeypatch):
    plant(monkeypatch, *PART_FAULTS[fault])
    with Device(adapter.info.spec) as broken:
        assert caught_in_parts(broken)
