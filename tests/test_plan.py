import math
from dataclasses import replace
from itertools import pairwise, product

import pytest
from grids import takes, whole
from variants import every_variant

from rowgrad_wgpu.contract import CHUNK_ROWS, KERNELS, MOST_CHUNKS, STORAGE
from rowgrad_wgpu.errors import ShapeError
from rowgrad_wgpu.plan import (
    CELL,
    CELL_BYTES,
    CHUNK_GROUP,
    DISPATCH_ELEMENTS,
    EASY_ELEMENTS,
    FEW_ROWS,
    HARDWARE_CELLS,
    HARDWARE_GROUP,
    HARDWARE_KEPT,
    HARDWARE_KEPT_OF_ONE,
    HARDWARE_TEAM,
    LONG_D,
    LOOP_ITERATIONS,
    MOST_PARTS,
    PART,
    SOFTWARE_EASY,
    SOFTWARE_KEPT,
    SOFTWARE_TEAM,
    SOFTWARE_UNROLLED,
    SUMMED_CELLS,
    SUMMED_ELEMENTS,
    UNLIMITED,
    WEBGPU,
    WIDEST_TEAM,
    Extent,
    choose_variant,
    chunk_turns,
    kernel_named,
    one_pass,
    plan_launch,
    row_step,
    split,
)

LLVMPIPE_LOOPS = 65_535
WIDTHS = (1, 2, 3, 7, 8, 17, 64, 768, 769, 1023, 1024, 4096, 4097, 16384, 16385, 131072, 1048575, 1048576)
ROWS = (0, 1, 2, 63, 64, 65, 4096, 16385, 65535, 65536, 65537, 98304, 3_000_000)
MOST_DISPATCHES = 60  # longer plans only repeat themselves
CUT_ROWS = (1, 2, 63)  # few rows are cut into parts
CUT_WIDTHS = WIDTHS[::2]

LIMITS = [
    replace(WEBGPU, binding_bytes=binding, binding_alignment=alignment, software=software)
    for binding, alignment, software in product((128 << 20, 65536, 4096), (16, 32, 256), (True, False))
]
TYPES = (("float32", "float32"), ("float16", "float32"), ("bfloat16", "bfloat16"))

KERNEL = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
PART_KERNELS = [kernel for kernel in KERNELS.values() if kernel.phases > 1]
ROW_KERNELS = [
    kernel for kernel in KERNELS.values() if "row" in kernel.parts and "sums" not in kernel.parts and kernel.phases == 1
]
BY_ROWS = [*ROW_KERNELS, *PART_KERNELS]
PART_KERNEL, ROW_KERNEL, BY_ROW = (
    pytest.mark.parametrize("kernel", those, ids=[kernel.name for kernel in those])
    for those in (PART_KERNELS, ROW_KERNELS, BY_ROWS)
)
LIMIT = pytest.mark.parametrize(
    "limits",
    LIMITS,
    ids=[f"{one.binding_bytes}-{one.binding_alignment}-{'software' if one.software else 'hardware'}" for one in LIMITS],
)
PARAMS = KERNELS["layer_norm_params"]
GRADS = KERNELS["layer_norm_grads"]
SUMS = KERNELS["sum_partials"]


def launches(kernel, limits):
    """The plan of every width, type and number of rows, but for those too long for the limits or for a test."""
    for d, (storage, alpha), rows in product(WIDTHS, TYPES, ROWS):
        if rows * d * STORAGE[storage].itemsize > MOST_DISPATCHES * limits.binding_bytes // 2:
            continue
        if kernel in PART_KERNELS and (rows not in CUT_ROWS or d not in CUT_WIDTHS):
            continue
        try:
            plan = plan_launch(kernel, storage, alpha, cut(kernel, whole(rows, d)), limits)
        except ShapeError:
            continue
        yield plan


def cut(kernel, extent):
    """An extent with one part a row or several, for kernels that take parts."""
    return replace(extent, parts=(1, 7, MOST_PARTS)[extent.rows % 3]) if kernel.phases > 1 else extent


def fields_of(kernel, dispatch):
    return dict(zip(kernel.meta + kernel.window, dispatch.fields, strict=True))


def item_bytes(plan, buffer):
    names = {"F": plan.variant.storage, "A": plan.variant.alpha, "float32": "float32"}
    return STORAGE[names[buffer.element]].itemsize


def step_bytes(plan, buffer):
    """Bytes of a row, a chunk, or the whole buffer."""
    lengths = {"rows": 1, "chunks": 1, "d": plan.extent.d, "parts": plan.extent.parts}
    return math.prod(lengths.get(axis, axis) for axis in buffer.axes) * item_bytes(plan, buffer)


def window_of(kernel, plan, buffer, dispatch, first_row):
    """The first byte and the bytes of a buffer that a dispatch's window covers."""
    fields = fields_of(kernel, dispatch)
    axis, step = buffer.axes[0], step_bytes(plan, buffer)
    if axis == "rows":
        return (first_row - plan.extent.start) * step, fields["row_count"] * step
    if axis == "chunks":
        return fields["first_chunk"] * step, fields["chunk_count"] * step
    return 0, step


def origin_of(kernel, buffer, dispatch):
    fields = fields_of(kernel, dispatch)
    return fields.get("origin" if buffer.element == "F" else f"{buffer.name}_origin", 0)


def row_starts(kernel, plan):
    """Each dispatch with the row of the whole array that it begins with."""
    row = plan.extent.start
    for dispatch in plan.dispatches:
        fields = fields_of(kernel, dispatch)
        yield dispatch, fields.get("first_row", row)
        if fields.get("phase", 0) == kernel.phases - 1:
            row += fields.get("row_count", 0)


def check_slices(kernel, plan, limits):
    for dispatch, first_row in row_starts(kernel, plan):
        for buffer in kernel.buffers:
            part = dispatch.slices[buffer.name]
            begin, nbytes = window_of(kernel, plan, buffer, dispatch, first_row)
            origin = origin_of(kernel, buffer, dispatch) * item_bytes(plan, buffer)
            assert part.offset % limits.binding_alignment == 0
            assert part.nbytes % CELL_BYTES == 0
            assert CELL_BYTES <= part.nbytes <= limits.binding_bytes
            assert part.offset + origin == begin
            assert begin + nbytes <= part.offset + part.nbytes
            assert part.offset + part.nbytes <= max(begin + nbytes + CELL_BYTES - 1, CELL_BYTES)


def check_grids(kernel, plan, limits):
    for dispatch in plan.dispatches:
        across, down = dispatch.grid
        needed = math.ceil(units_of(kernel, plan, dispatch) / units_per_group(kernel, plan))
        assert 1 <= across <= limits.groups_per_dimension
        assert 1 <= down <= limits.groups_per_dimension
        assert needed <= across * down < needed + max(down, 2)


def units_of(kernel, plan, dispatch):
    """What is dealt out to the workgroups: rows, parts, columns of chunks (four at once), columns."""
    fields = fields_of(kernel, dispatch)
    if kernel in PART_KERNELS:
        return fields["row_count"] * fields["parts"]
    if kernel in ROW_KERNELS:
        return fields["row_count"]
    if kernel is GRADS:
        return fields["chunk_count"]
    if kernel is PARAMS:
        return fields["chunk_count"] * math.ceil(plan.extent.d / CELL)
    return plan.extent.d


def units_per_group(kernel, plan):
    variant = plan.variant
    if kernel is GRADS or kernel in PART_KERNELS:
        return 1
    return variant.teams * variant.rows_in_turn if kernel in ROW_KERNELS else variant.team


def check_elements(kernel, plan, limits):
    least = plan.extent.d * row_step(plan.variant.storage, plan.extent, limits)
    for dispatch in plan.dispatches:
        fields = fields_of(kernel, dispatch)
        read = max(fields.get("row_count", 0), 2 * fields.get("chunk_count", 0)) * plan.extent.d
        assert dispatch.elements >= read
        assert fields.get("row_count", 0) * plan.extent.d <= max(DISPATCH_ELEMENTS, least)
        assert dispatch.elements <= max(DISPATCH_ELEMENTS, least, 2 * plan.extent.d)


def check_threads(kernel, plan, limits):
    variant = plan.variant
    assert variant.team & (variant.team - 1) == 0
    assert 1 <= variant.threads <= min(limits.threads_per_group, 256)
    assert 16 * variant.threads + 4 * variant.teams <= min(limits.shared_bytes, 16 << 10)


def check_fields(kernel, plan, limits):
    wanted = {name: getattr(plan.extent, name) for name in ("rows", "d", "per", "part", "parts")}
    for dispatch in plan.dispatches:
        fields = fields_of(kernel, dispatch)
        assert all(0 <= value < 1 << 32 for value in fields.values())
        assert {name: fields[name] for name in kernel.meta} == {name: wanted[name] for name in kernel.meta}


@LIMIT
@KERNEL
def test_every_dispatch_keeps_the_limits(kernel, limits):
    count = 0
    for plan in launches(kernel, limits):
        for check in (check_slices, check_grids, check_elements, check_threads, check_fields):
            check(kernel, plan, limits)
        count += 1
    assert count > (30 if kernel is GRADS else 15 if kernel in PART_KERNELS else 100)


def rows_of(kernel, plan):
    """The rows that the dispatches' windows cover, as neighbouring ranges joined."""
    covered = []
    for dispatch, first_row in row_starts(kernel, plan):
        buffer = kernel.buffers[0]
        begin = dispatch.slices[buffer.name].offset + origin_of(kernel, buffer, dispatch) * item_bytes(plan, buffer)
        row, beside = divmod(begin, step_bytes(plan, buffer))
        assert beside == 0
        assert row + plan.extent.start == first_row
        fields = fields_of(kernel, dispatch)
        if not fields.get("phase"):
            covered.append((first_row, first_row + fields["row_count"]))
    return joined(covered)


def joined(ranges):
    found = []
    for start, stop in ranges:
        if start == stop:
            continue
        if found and found[-1][1] == start:
            start = found.pop()[0]
        found.append((start, stop))
    return found


SOFTWARE = replace(WEBGPU, software=True)
CPU = replace(UNLIMITED, software=True)


@LIMIT
@BY_ROW
def test_rows_are_covered_once_and_in_order(kernel, limits):
    for plan in launches(kernel, limits):
        rows = plan.extent.rows
        assert rows_of(kernel, plan) == ([(0, rows)] if rows else [])


@LIMIT
@ROW_KERNEL
def test_every_window_begins_as_rows_do(kernel, limits):
    """With a cell, or a word; where two 16-bit rows share one, with the first of them."""
    for plan in launches(kernel, limits):
        unit = CELL if plan.variant.aligned else 1 if plan.variant.storage == "float32" else 2
        for dispatch in plan.dispatches:
            assert fields_of(kernel, dispatch)["origin"] % unit == 0


@LIMIT
@ROW_KERNEL
def test_a_seam_never_lies_between_windows(kernel, limits):
    """Two odd 16-bit rows share a word, so each window begins with an even row of its buffers."""
    for plan in launches(kernel, limits):
        if plan.extent.d % 2 and plan.variant.storage != "float32":
            assert plan.variant.rows_in_turn == 2
            assert all(first_row % 2 == 0 for _, first_row in row_starts(kernel, plan))
        else:
            assert plan.variant.rows_in_turn == 1


@pytest.mark.parametrize("d", range(1, 13))
def test_row_step(d):
    """Blocks begin with a word, and with a chunk where teams walk it by turns."""
    extent = whole(1000, d)
    for storage in STORAGE:
        software = row_step(storage, extent, SOFTWARE)
        assert software == (2 if d % 2 and storage != "float32" else 1)
        assert row_step(storage, extent, WEBGPU) == math.lcm(software, extent.per)
        assert row_step(storage, extent, UNLIMITED) == extent.per
        assert row_step(storage, extent, CPU) == 1


def chunks_of(plan):
    """What the threads of layer_norm_params do: each chunk's rows in order, and how often it is begun anew."""
    rows = {chunk: [] for chunk in range(plan.extent.chunks)}
    begun = dict.fromkeys(rows, 0)
    for dispatch in plan.dispatches:
        fields = fields_of(PARAMS, dispatch)
        stop_row = fields["first_row"] + fields["row_count"]
        for chunk in range(fields["first_chunk"], fields["first_chunk"] + fields["chunk_count"]):
            start = chunk * fields["per"]
            begin, end = max(start, fields["first_row"]), min(start + fields["per"], stop_row)
            rows[chunk].append((begin, max(begin, end)))
            begun[chunk] += start >= fields["first_row"]
    return {chunk: joined(ranges) for chunk, ranges in rows.items()}, begun


def wanted_chunks(extent):
    wanted = {}
    for chunk in range(extent.chunks):
        start, stop = chunk * extent.per, min((chunk + 1) * extent.per, extent.rows)
        wanted[chunk] = [(start, stop)] if start < stop else []
    return wanted


def assert_chunks(plan):
    """Each chunk of the whole array begun once, and its rows summed in order."""
    rows, begun = chunks_of(plan)
    assert rows == wanted_chunks(plan.extent)
    assert set(begun.values()) == {1}


@LIMIT
def test_params_begin_every_chunk_once(limits):
    for plan in launches(PARAMS, limits):
        assert_chunks(plan)


@pytest.mark.parametrize("chunks", [1, 2, 3, 7, 64, 256, 300, 4097])
@pytest.mark.parametrize("rows", [0, 1, 2, 65, 4096, 16385])
def test_params_take_any_number_of_chunks(rows, chunks):
    for limits in LIMITS:
        for d in (1, 8, 17, 64):
            if rows * d * 2 + chunks * d * 8 <= MOST_DISPATCHES * limits.binding_bytes // 2:
                assert_chunks(plan_launch(PARAMS, "float16", "float16", whole(rows, d, chunks), limits))


def test_chunks_without_rows_are_begun():
    rows = CHUNK_ROWS * MOST_CHUNKS + 1
    extent = whole(rows, 8)
    assert extent.chunks * extent.per >= rows + extent.per, "expected rows that leave a chunk empty"
    assert wanted_chunks(extent)[MOST_CHUNKS - 1] == []
    assert_chunks(plan_launch(PARAMS, "float32", "float32", extent, WEBGPU))


def test_no_rows_give_one_chunk_and_no_rows_of_dx():
    plan = plan_launch(PARAMS, "float32", "float32", whole(0, 8), WEBGPU)
    assert [fields_of(PARAMS, one)["chunk_count"] for one in plan.dispatches] == [1]
    assert plan_launch(ROW_KERNELS[0], "float32", "float32", whole(0, 8), WEBGPU).dispatches == ()


@LIMIT
def test_sums_take_every_chunk_once_and_in_order(limits):
    for d, chunks in product(WIDTHS, (1, 2, 3, 255, 256, 4097)):
        if 8 * d * chunks > MOST_DISPATCHES * limits.binding_bytes:
            continue
        try:
            plan = plan_launch(SUMS, "float32", "float32", whole(chunks, d, chunks), limits)
        except ShapeError:
            continue
        windows = [fields_of(SUMS, one) for one in plan.dispatches]
        ranges = [(one["first_chunk"], one["first_chunk"] + one["chunk_count"]) for one in windows]
        assert joined(ranges) == [(0, chunks)]


def parts(rows, stops):
    bounds = [0, *[stop for stop in stops if stop < rows], rows]
    return pairwise(bounds)


def streamed(kernel, storage, extent, stops, limits):
    """One plan after another, each over its own part of the rows."""
    for start, stop in parts(extent.rows, stops):
        part = replace(extent, start=start, stop=stop)
        yield plan_launch(kernel, storage, storage, part, limits)


STOPS = [(1,), (3, 64, 65, 4000), (63, 127, 191), (8192, 16384)]


@BY_ROW
@pytest.mark.parametrize("stops", STOPS)
def test_streamed_rows_are_covered_once(kernel, stops):
    for limits, d, storage in product(LIMITS, (7, 8), ("float32", "float16")):
        extent = cut(kernel, whole(FEW_ROWS[False] if kernel in PART_KERNELS else 4099, d))
        if not takes(kernel, storage, extent, limits):
            continue
        covered = []
        for plan in streamed(kernel, storage, extent, stops, limits):
            check_slices(kernel, plan, limits)
            covered += rows_of(kernel, plan)
        assert joined(covered) == [(0, extent.rows)]


@pytest.mark.parametrize("stops", STOPS)
@pytest.mark.parametrize("rows", [130, 4099, 16385])
def test_streamed_params_are_those_of_one_pass(rows, stops):
    for limits, d in product(LIMITS, (7, 8)):
        extent = whole(rows, d)
        plans = list(streamed(PARAMS, "float16", extent, stops, limits))
        for plan in plans:
            check_slices(PARAMS, plan, limits)
        dispatches = tuple(dispatch for plan in plans for dispatch in plan.dispatches)
        assert_chunks(replace(plans[0], extent=extent, dispatches=dispatches))


@KERNEL
@pytest.mark.parametrize("d", WIDTHS)
def test_variant_does_not_depend_on_rows(kernel, d):
    for storage, alpha in TYPES:
        for software in (True, False):
            limits = replace(WEBGPU, software=software)
            if not takes(kernel, storage, whole(1, d), limits):
                continue
            plans = [plan_launch(kernel, storage, alpha, whole(rows, d), limits) for rows in (1, 2, 65, 257)]
            assert {plan.variant for plan in plans} == {choose_variant(kernel, storage, alpha, whole(1, d), limits)}


def turns(variant, d):
    """Times that a thread of a row kernel goes round its loops: mean, variance, sums, write; three sums of a team."""
    rounds = 4 * math.ceil(math.ceil(d / CELL) / variant.team) + 3 * int(math.log2(variant.team))
    return (rounds + 1) * variant.rows_in_turn


@ROW_KERNEL
@pytest.mark.parametrize("software", [True, False])
def test_no_row_goes_round_too_often(kernel, software):
    limits = replace(WEBGPU, software=software)
    lengths = {d + near for d in (*WIDTHS, 480_000, 240_000, 524_288) for near in (-1, 0, 1)} - {0}
    for d, storage in product(sorted(lengths), STORAGE):
        variant = choose_variant(kernel, storage, storage, whole(1, d), limits)
        assert turns(variant, d) <= LLVMPIPE_LOOPS
        if variant.cells:
            assert variant.cells * variant.team >= math.ceil(d / CELL)


@pytest.mark.parametrize("rows", [LOOP_ITERATIONS, LOOP_ITERATIONS + 1, 3_000_000, 20_000_000])
@pytest.mark.parametrize("chunks", [1, 3, MOST_CHUNKS])
def test_no_chunk_goes_round_too_often(rows, chunks):
    for limits in LIMITS[:6]:
        plan = plan_launch(PARAMS, "float16", "float16", whole(rows, 1, chunks), limits)
        for dispatch in plan.dispatches:
            fields = fields_of(PARAMS, dispatch)
            assert min(fields["per"], fields["row_count"]) <= LOOP_ITERATIONS
        if len(plan.dispatches) < 1000:
            assert_chunks(plan)


@pytest.mark.parametrize("chunks", [1, 256, LOOP_ITERATIONS, LOOP_ITERATIONS + 1, 200_000])
def test_no_sum_of_partials_goes_round_too_often(chunks):
    plan = plan_launch(SUMS, "float32", "float32", whole(chunks, 1, chunks), WEBGPU)
    counts = [fields_of(SUMS, dispatch)["chunk_count"] for dispatch in plan.dispatches]
    assert max(counts) <= LOOP_ITERATIONS
    assert sum(counts) == chunks


SOFTWARE_D = SOFTWARE_TEAM * SOFTWARE_KEPT  # the longest rows of which both operands, or one, are kept
SOFTWARE_D_OF_WIDEST = WIDEST_TEAM * SOFTWARE_KEPT
HARDWARE_D = WIDEST_TEAM * HARDWARE_KEPT
HARDWARE_D_OF_ONE = WIDEST_TEAM * HARDWARE_KEPT_OF_ONE
EASY_D = HARDWARE_TEAM * EASY_ELEMENTS
SINGLES_D = WIDEST_TEAM * HARDWARE_CELLS  # the longest row of single elements that is kept


@pytest.mark.parametrize(
    ("software", "d", "team", "elements", "kept"),
    [
        (True, CELL, SOFTWARE_TEAM, CELL, 2),
        (True, SOFTWARE_TEAM * CELL, SOFTWARE_TEAM, CELL, 2),
        (True, SOFTWARE_TEAM * CELL + CELL, SOFTWARE_TEAM, 2 * CELL, 2),
        (True, SOFTWARE_D - 1, SOFTWARE_TEAM, SOFTWARE_KEPT, 2),
        (True, SOFTWARE_D, SOFTWARE_TEAM, SOFTWARE_KEPT, 2),
        (True, SOFTWARE_D + 1, 4 * SOFTWARE_TEAM, SOFTWARE_EASY // 2 + CELL, 2),
        (True, 2 * SOFTWARE_D, 4 * SOFTWARE_TEAM, SOFTWARE_EASY, 2),
        (True, 2 * SOFTWARE_D + 1, 8 * SOFTWARE_TEAM, SOFTWARE_EASY // 2 + CELL, 2),
        (True, WIDEST_TEAM * SOFTWARE_EASY + 1, WIDEST_TEAM, SOFTWARE_EASY + CELL, 2),
        (True, SOFTWARE_D_OF_WIDEST, WIDEST_TEAM, SOFTWARE_KEPT, 2),
        (True, SOFTWARE_D_OF_WIDEST + 1, SOFTWARE_TEAM, 0, 0),
        (False, CELL, HARDWARE_TEAM, CELL, 2),
        (False, EASY_D, HARDWARE_TEAM, EASY_ELEMENTS, 2),
        (False, EASY_D + CELL, 2 * HARDWARE_TEAM, EASY_ELEMENTS // 2 + CELL, 2),
        (False, 2 * EASY_D, 2 * HARDWARE_TEAM, EASY_ELEMENTS, 2),
        (False, 2 * EASY_D + CELL, 4 * HARDWARE_TEAM, EASY_ELEMENTS // 2 + CELL, 2),
        (False, HARDWARE_D - 1, WIDEST_TEAM, HARDWARE_KEPT, 2),
        (False, HARDWARE_D, WIDEST_TEAM, HARDWARE_KEPT, 2),
        (False, HARDWARE_D + CELL, WIDEST_TEAM, HARDWARE_KEPT + CELL, 1),
        (False, HARDWARE_D_OF_ONE, WIDEST_TEAM, HARDWARE_KEPT_OF_ONE, 1),
        (False, HARDWARE_D_OF_ONE + CELL, WIDEST_TEAM, 0, 0),
    ],
)
def test_teams_and_tiers_at_their_thresholds(software, d, team, elements, kept):
    for kernel in ROW_KERNELS:
        variant = choose_variant(kernel, "float32", "float32", whole(1, d), replace(WEBGPU, software=software))
        assert (variant.team, variant.kept) == (team, kept)
        assert variant.looped == (software and elements > SOFTWARE_UNROLLED * CELL and "gradient" in kernel.parts)
        room = SOFTWARE_UNROLLED * CELL if variant.looped else CELL
        assert variant.cells * variant.width == math.ceil(elements / room) * room
        assert variant.aligned == (d % CELL == 0)
        assert variant.width == CELL
        assert variant.full == (variant.aligned and elements * team == d)
        assert variant.teams == (1 if software else max(1, HARDWARE_GROUP // team))


@pytest.mark.parametrize(
    ("storage", "d", "aligned", "width", "team", "cells", "kept"),
    [
        ("float32", 768, True, 4, 32, 6, 2),
        ("bfloat16", 768, True, 8, 32, 3, 2),
        ("bfloat16", 768, False, 1, 32, 24, 2),
        ("bfloat16", 764, True, 1, 32, 24, 2),
        ("float32", 769, True, 1, 32, 25, 2),
        ("float16", EASY_D, True, 8, HARDWARE_TEAM, EASY_ELEMENTS // 8, 2),
        ("float16", EASY_D + 8, True, 8, 2 * HARDWARE_TEAM, EASY_ELEMENTS // 16 + 1, 2),
        ("float16", HARDWARE_D, True, 8, WIDEST_TEAM, HARDWARE_KEPT // 8, 2),
        ("float32", SINGLES_D - 1, True, 1, WIDEST_TEAM, HARDWARE_CELLS, 2),
        ("float32", SINGLES_D, False, 1, WIDEST_TEAM, HARDWARE_CELLS, 2),
        ("float32", SINGLES_D + 1, True, 1, WIDEST_TEAM, 0, 0),
        ("float16", HARDWARE_D + 8, True, 8, WIDEST_TEAM, HARDWARE_KEPT // 8 + 1, 1),
        ("float16", HARDWARE_D_OF_ONE, True, 8, WIDEST_TEAM, HARDWARE_KEPT_OF_ONE // 8, 1),
        ("float16", HARDWARE_D_OF_ONE + 8, True, 8, WIDEST_TEAM, 0, 0),
    ],
)
def test_cells_of_pointers_are_sixteen_bytes_or_one_element(storage, d, aligned, width, team, cells, kept):
    for kernel in ROW_KERNELS:
        variant = choose_variant(kernel, storage, storage, whole(1, d), UNLIMITED, aligned)
        assert (variant.width, variant.team, variant.cells, variant.kept) == (width, team, cells, kept)
        assert variant.rows_in_turn == 1
        assert variant.aligned == (width > 1)


@pytest.mark.parametrize(
    ("limits", "d", "whole_cells"),
    [
        (replace(WEBGPU, software=True), WIDEST_TEAM * SUMMED_ELEMENTS[True], False),
        (WEBGPU, WIDEST_TEAM * SUMMED_ELEMENTS[False], False),
        (UNLIMITED, WIDEST_TEAM * SUMMED_ELEMENTS[False], True),
    ],
    ids=["software", "hardware", "pointers"],
)
def test_one_pass_at_its_thresholds(limits, d, whole_cells):
    assert one_pass("float32", whole(64, d), limits)
    assert one_pass("float32", whole(64, d - 1), limits) != whole_cells
    assert not one_pass("float32", whole(64, d + 4), limits)
    assert choose_variant(GRADS, "float32", "float32", whole(64, d), limits).kept == 2
    with pytest.raises(ShapeError, match="use layer_norm_back and layer_norm_params"):
        plan_launch(GRADS, "float32", "float32", whole(64, d + 4), limits)


def test_one_pass_over_rows_that_share_words_is_for_software_adapters():
    for storage, taken in (("float32", True), ("bfloat16", False)):
        assert one_pass(storage, whole(64, 33), WEBGPU) == taken
        assert one_pass(storage, whole(64, 33), SOFTWARE)
        assert one_pass(storage, whole(64, 33), UNLIMITED)


def test_few_long_rows_are_cut_rather_than_taken_in_one_pass():
    assert not one_pass("float32", whole(FEW_ROWS[True] - 1, LONG_D), SOFTWARE)
    assert one_pass("float32", whole(FEW_ROWS[True], LONG_D), SOFTWARE)


def test_one_pass_over_single_elements_ends_earlier():
    longest = HARDWARE_TEAM * SUMMED_CELLS
    assert one_pass("float32", whole(64, longest - 1), UNLIMITED)
    assert not one_pass("float32", whole(64, longest + 1), UNLIMITED)
    assert one_pass("float32", whole(64, longest), UNLIMITED, aligned=False)
    assert not one_pass("float32", whole(64, longest + 4), UNLIMITED, aligned=False)
    with pytest.raises(ShapeError, match="use layer_norm_back and layer_norm_params"):
        plan_launch(GRADS, "float32", "float32", whole(64, longest + 4), UNLIMITED, aligned=False)


def test_one_pass_ends_where_a_chunks_loops_would_be_cut():
    limits = replace(WEBGPU, software=True)
    d = SOFTWARE_TEAM * CELL
    rounds = 4 + 3 * SOFTWARE_TEAM.bit_length()
    most = LOOP_ITERATIONS // rounds * MOST_CHUNKS
    assert one_pass("float32", whole(most, d), limits)
    assert not one_pass("float32", whole(most + MOST_CHUNKS, d), limits)
    assert one_pass("float32", whole(most + MOST_CHUNKS, d), UNLIMITED)


@pytest.mark.parametrize(
    ("d", "turns"), [(CELL, 8), (EASY_D, 8), (EASY_D + CELL, 4), (4 * EASY_D, 2), (8 * EASY_D, 1), (64 * EASY_D, 1)]
)
def test_turns_fill_a_workgroup(d, turns):
    for limits in (WEBGPU, UNLIMITED):
        extent = whole(1000, d)
        assert chunk_turns("float32", extent, limits) == turns
        params = choose_variant(PARAMS, "float32", "float32", extent, limits)
        assert params.teams == turns
        assert turns == 1 or params.threads == CHUNK_GROUP
        if one_pass("float32", extent, limits):
            assert choose_variant(GRADS, "float32", "float32", extent, limits).teams == turns
    assert chunk_turns("float32", extent, replace(WEBGPU, software=True)) == 1


def test_a_chunk_that_does_not_fit_a_window_is_walked_by_one_team():
    extent = whole(1000, 1024)
    room = extent.per * extent.d * 4 + WEBGPU.binding_alignment + CELL_BYTES
    assert chunk_turns("float32", extent, replace(WEBGPU, binding_bytes=room)) == 8
    assert chunk_turns("float32", extent, replace(WEBGPU, binding_bytes=room - 1)) == 1
    assert chunk_turns("float32", extent, replace(WEBGPU, dispatch_elements=extent.per * extent.d - 1)) == 1
    assert chunk_turns("float32", extent, replace(WEBGPU, loop_iterations=extent.per - 1)) == 1


@LIMIT
def test_no_window_ends_inside_a_chunk_that_is_walked_by_turns(limits):
    for kernel in (PARAMS, GRADS):
        for plan in launches(kernel, limits):
            if plan.variant.teams > 1:
                for dispatch in plan.dispatches:
                    assert fields_of(kernel, dispatch)["first_row"] % max(plan.extent.per, 1) == 0


def test_a_software_team_is_made_wider_before_its_loops_are_too_long():
    limits = replace(WEBGPU, software=True)
    longest = SOFTWARE_TEAM * CELL * (LOOP_ITERATIONS // 4)
    teams = [
        choose_variant(KERNELS["layer_norm_back"], "float32", "float32", whole(1, d), limits).team
        for d in (longest // 2, longest + CELL)
    ]
    assert teams == [SOFTWARE_TEAM, 2 * SOFTWARE_TEAM]


@pytest.mark.parametrize("limits", [SOFTWARE, WEBGPU, UNLIMITED], ids=["software", "hardware", "pointers"])
def test_few_long_rows_are_cut_into_parts(limits):
    few = FEW_ROWS[limits.software]
    parts = math.ceil(LONG_D / PART[limits.software])
    assert [split("float32", whole(rows, LONG_D), limits) for rows in (1, 2, few - 1, few)] == [*[parts] * 3, 1]
    lengths = (LONG_D - 1, LONG_D, LONG_D + 1, LONG_D + 2, 1 << 20)
    more = math.ceil((LONG_D + 1) / PART[limits.software])
    most = min(math.ceil((1 << 20) / PART[limits.software]), MOST_PARTS)
    assert [split("float32", whole(1, d), limits) for d in lengths] == [1, parts, more, more, most]
    assert split("float32", whole(1, 1 << 24), limits) == MOST_PARTS
    assert split("float32", Extent(few, LONG_D, 1, 0, 1), limits) == 1, "a block of an array that is not cut"


def test_rows_that_are_left_whole():
    assert split("float16", whole(1, LONG_D + 1), WEBGPU) == 1, "two rows share a word"
    assert split("float16", whole(1, LONG_D + 2), WEBGPU) > 1
    assert split("float16", whole(1, LONG_D + 1), UNLIMITED) > 1
    assert split("float32", whole(1, LONG_D), CPU) == 1


def test_a_gpus_workgroups_for_a_row():
    """One with a team a row."""
    for d, workgroups in ((32_768, 32), (131_072, 128), (1 << 20, 256)):
        extent = replace(whole(1, d), parts=split("float32", whole(1, d), WEBGPU))
        plan = plan_launch(KERNELS["softmax_back_parts"], "float32", "float32", extent, WEBGPU)
        assert [dispatch.grid for dispatch in plan.dispatches] == [(workgroups, 1)] * 2
        assert plan_launch(KERNELS["softmax_back"], "float32", "float32", extent, WEBGPU).dispatches[0].grid == (1, 1)


@pytest.mark.parametrize("d", [1, 8, 9, LONG_D, LONG_D + 1, (1 << 20) - 1])
@pytest.mark.parametrize("parts", [1, 2, 7, MOST_PARTS, 5000])
def test_parts_hold_every_column_once(d, parts):
    part = replace(whole(1, d), parts=parts).part
    assert part % 8 == 0
    assert d <= part * parts
    assert part * parts < d + 8 * parts


@PART_KERNEL
def test_every_window_has_every_phase(kernel):
    extent = replace(whole(7, 1 << 20), parts=8)
    plan = plan_launch(kernel, "float32", "float32", extent, replace(WEBGPU, binding_bytes=10 << 20))
    phases = [fields_of(kernel, dispatch)["phase"] for dispatch in plan.dispatches]
    assert phases == [*range(kernel.phases)] * 4
    assert rows_of(kernel, plan) == [(0, 7)]


@PART_KERNEL
@pytest.mark.parametrize(("limits", "team"), [(SOFTWARE, SOFTWARE_TEAM), (WEBGPU, HARDWARE_GROUP)])
def test_a_part_has_a_workgroup(kernel, limits, team):
    for storage, d in product(STORAGE, (LONG_D, LONG_D + 2, 1 << 22)):
        extent = replace(whole(1, d), parts=split(storage, whole(1, d), limits))
        variant = choose_variant(kernel, storage, storage, extent, limits)
        assert (variant.team, variant.teams, variant.cells, variant.kept) == (team, 1, 0, 0)
        assert variant in every_variant(kernel)


@PART_KERNEL
def test_no_part_goes_round_too_often(kernel):
    """Of any number of parts: a caller's own."""
    for d, parts in product((8, LONG_D, 15_000_000), (1, 256, 60_000, 1_000_000)):
        extent = replace(whole(1, d), parts=parts)
        variant = choose_variant(kernel, "float32", "float32", extent, SOFTWARE)
        rounds = math.ceil((extent.part // CELL + 1) / variant.team) + 3 * math.ceil(parts / variant.team)
        assert rounds + 4 * int(math.log2(variant.team)) <= LLVMPIPE_LOOPS


@PART_KERNEL
def test_parts_of_rows_that_share_words_are_refused(kernel):
    with pytest.raises(ShapeError, match=rf"\[{kernel.name}\] expected .* an even d, got 33: use {kernel.name[:-6]}$"):
        plan_launch(kernel, "bfloat16", "bfloat16", replace(whole(2, 33), parts=2), WEBGPU)


@ROW_KERNEL
def test_a_wide_binding_is_cut_for_the_watchdogs(kernel):
    limits = replace(WEBGPU, binding_bytes=1 << 40)
    rows = 3 * DISPATCH_ELEMENTS // 1024
    plan = plan_launch(kernel, "float16", "float16", whole(rows, 1024), limits)
    assert [dispatch.elements for dispatch in plan.dispatches] == [DISPATCH_ELEMENTS] * 3
    assert rows_of(kernel, plan) == [(0, rows)]


def test_windows_of_pointers_are_one():
    for kernel in ROW_KERNELS:
        plan = plan_launch(kernel, "float32", "float32", whole(1 << 20, 1024), UNLIMITED)
        assert len(plan.dispatches) == 1
        assert plan.dispatches[0].grid[1] == 1


def test_a_grid_folds_where_one_dimension_is_too_short():
    limits = replace(WEBGPU, groups_per_dimension=7)
    plan = plan_launch(KERNELS["softmax_back"], "float32", "float32", whole(65, 8), replace(limits, software=True))
    assert plan.dispatches[0].grid == (7, 10)


@pytest.mark.parametrize(
    ("kernel", "storage", "d", "limits", "text"),
    [
        ("softmax_back", "float32", 1024, LIMITS[-1], "rows of which 1 fit a binding of 4,096 bytes, got 4,096 bytes"),
        ("softmax_back", "float16", 1023, LIMITS[-1], "rows of which 2 fit a binding of 4,096 bytes, got 2,046 bytes"),
        ("layer_norm_params", "float16", 1024, LIMITS[-1], "float32 sums to fit a binding of 4,096 .* got d = 1,024"),
        ("sum_partials", "float32", 512, LIMITS[-1], "expected 2 × d float32 sums .* got d = 512"),
        ("layer_norm_back", "float16", 1 << 24, WEBGPU, "at most about 15,360,000 elements, got 16,777,216: split"),
    ],
)
def test_a_row_that_cannot_fit_is_refused(kernel, storage, d, limits, text):
    with pytest.raises(ShapeError, match=text):
        plan_launch(KERNELS[kernel], storage, storage, whole(2, d), limits)


def test_the_longest_rows_that_fit_are_taken():
    limits = LIMITS[-1]
    assert limits.binding_bytes == 4096
    d = (limits.binding_bytes - limits.binding_alignment - CELL_BYTES) // 4
    assert plan_launch(KERNELS["softmax_back"], "float32", "float32", whole(2, d), limits).dispatches
    with pytest.raises(ShapeError, match="split the last axis"):
        plan_launch(KERNELS["softmax_back"], "float32", "float32", whole(2, d + 1), limits)


def test_a_kernel_that_is_not_there_is_named():
    assert kernel_named("softmax_back") is KERNELS["softmax_back"]
    with pytest.raises(ShapeError, match=r"expected one of the kernels softmax_back, .*, got 'softmax'"):
        kernel_named("softmax")
