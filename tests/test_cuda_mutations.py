"""The test of the CUDA tests: kernels broken on purpose have to end a check, by what is said of each."""

import hostgpu
import pytest

from rowgrad_wgpu.plan import EASY_ELEMENTS, HARDWARE_TEAM

SEVERAL_WARPS = f"7x{2 * HARDWARE_TEAM * EASY_ELEMENTS}"
ROWS = "66x64"
ODD = "9x33"
IN_PARTS = "3x132"

NUMBER = ("plain", "wrong")
MEETING = ("plain", "host GPU:")
OVERRUN = ("address", "heap-buffer-overflow")
MISALIGNED = ("address", "misaligned address")
RACE = ("thread", "data race")

ROW, TEAM, TURNS, GRADIENT, PART = (f"lib/{part}.cuh" for part in ("row", "team", "turns", "gradient", "part"))
SOFTMAX, GRADS, RMS = "softmax_back.cu", "layer_norm_grads.cu", "rms_norm_back.cu"

BARRIER = "    __syncthreads();"
TEAM_SUM = "  inner = team_sum(inner);"
INSIDE = "lane_of_team() < row.cells;"
STORE = "((Cell*)buffer)["
LEADER = "if (threadIdx.x % WARP == 0)"

# The run and what it has to say; the shape; the file, a text in it and what takes its place.
FAULTS = {
    "no barrier before the shares of warps are written again": (
        *(NUMBER, SEVERAL_WARPS),
        *(TEAM, f"{BARRIER}  // the sums before these have been read by all\n", ""),
    ),
    "no barrier after the shares of warps": (
        *(NUMBER, SEVERAL_WARPS),
        *(TEAM, f"= share;\n{BARRIER}\n", "= share;\n"),
    ),
    "no barrier before the shares of teams are written again": (
        *(RACE, ROWS),
        *(TURNS, f"{BARRIER}  // the sum before this one has been read\n", ""),
    ),
    "no barrier after the shares of teams": (NUMBER, ROWS, TURNS, f"share.at[i];\n{BARRIER}\n", "share.at[i];\n"),
    "a shared array of warps too short": (OVERRUN, SEVERAL_WARPS, TEAM, "THREADS / WARP);", "THREADS / WARP - 1);"),
    "a shared array of teams too short": (OVERRUN, ROWS, TURNS, "WIDTH * THREADS)", "WIDTH * THREADS - 1)"),
    "a write past the end": (OVERRUN, ODD, ROW, INSIDE, "lane_of_team() <= row.cells;"),
    "a misaligned access": (MISALIGNED, ROWS, ROW, STORE, "((Cell*)(buffer - 1))["),
    "a return before a barrier": (
        *(MEETING, SEVERAL_WARPS),
        *(SOFTMAX, TEAM_SUM, f"  if (threadIdx.x >= WARP) return;\n{TEAM_SUM}"),
    ),
    "a shuffle in a divergent branch": (
        *(MEETING, ROWS),
        *(SOFTMAX, TEAM_SUM, f"  if (threadIdx.x % 2) inner.at[0] += shuffle_xor(inner.at[0], 1);\n{TEAM_SUM}"),
    ),
    "half a warp at a shuffle": (MEETING, ROWS, SOFTMAX, TEAM_SUM, f"  if (threadIdx.x % WARP < WARP / 2){TEAM_SUM}"),
    "two blocks on one address": (NUMBER, ROWS, GRADS, "(Columns*)partial + 2 * chunk * width", "(Columns*)partial"),
    "two blocks on one address with one value": (
        RACE,
        ODD,
        SOFTMAX,
        TEAM_SUM,
        f"  if (threadIdx.x == 0) *(Bits16*)dx = 0;\n{TEAM_SUM}",
    ),
    "shared memory read before it is written": (NUMBER, SEVERAL_WARPS, TEAM, LEADER, f"if (threadIdx.x > 0) {LEADER}"),
    "one warp's share left out": (NUMBER, SEVERAL_WARPS, TEAM, "int warp = 1;", "int warp = 2;"),
    "a level of the shuffles left out": (NUMBER, ROWS, TEAM, "TEAM : WARP) / 2;", "TEAM : WARP) / 4;"),
    "the last row left out": (NUMBER, ODD, ROW, "index < stop ?", "index + 1 < stop ?"),
    "the last cell left out": (NUMBER, ODD, ROW, INSIDE, "lane_of_team() + 1 < row.cells;"),
    "the last team's rows left out": (NUMBER, ROWS, TURNS, "thread < THREADS &&", "thread < THREADS - TEAM &&"),
    "blocks that do not go on": (
        NUMBER,
        "600x4",
        SOFTMAX,
        "first += (long long)gridDim.x * TEAMS",
        "first += row_count",
    ),
    "a mean left out": (NUMBER, ODD, GRADIENT, "u - u_mean - ", "u - "),
    "what the first mean missed left out": (NUMBER, ODD, "lib/statistics.cuh", "(x - near) - rest", "(x - near)"),
    "bfloat16 cut off": (NUMBER, ODD, "lib/storage/bfloat16.cuh", "rounded >> 16", "bits >> 16"),
    "an RMSNorm's squares not scaled": (NUMBER, ODD, RMS, "value * SMALL", "value"),
    "dalpha and dbeta exchanged": (NUMBER, ROWS, GRADS, "partial[column] = dalpha;", "partial[column] = dbeta;"),
}


# In rows that are cut into parts.
PART_FAULTS = {
    "a part that reads beyond its row": (OVERRUN, PART, "left < part ? left : part", "part"),
    "a part of the row before": (NUMBER, PART, "column(unit) / WIDTH, (int)", "0, (int)"),
    "a part's sums left out": (NUMBER, PART, "p = threadIdx.x;", "p = threadIdx.x + 1;"),
    "two phases on one address": (NUMBER, PART, "unit * (PHASES - 1) + phase", "unit * (PHASES - 1)"),
    "two parts on one address": (NUMBER, PART, "unit * (PHASES - 1) + phase", "phase"),
    "alpha of the first part": (NUMBER, "layer_norm_back_parts.cu", "alpha + cut.column(unit)", "alpha"),
    "no inner product over the parts": (NUMBER, "softmax_back_parts.cu", " - inner)", ")"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(fault):
    (flavour, text), shape, *planted = FAULTS[fault]
    result = hostgpu.run(flavour, 32, 0, [shape], planted)
    assert result.returncode != 0, "nothing noticed the fault"
    assert text in result.stderr, result.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("fault", PART_FAULTS)
def test_a_fault_in_parts_is_caught(fault):
    (flavour, text), *planted = PART_FAULTS[fault]
    result = hostgpu.run(flavour, 32, 0, [IN_PARTS], planted, in_parts=True)
    assert result.returncode != 0, "nothing noticed the fault"
    assert text in result.stderr, result.stderr[-2000:]


@pytest.mark.parametrize("flavour", ["plain", pytest.param("address", marks=pytest.mark.slow)])
def test_the_kernels_as_they_are_pass(flavour):
    result = hostgpu.run(flavour, 32, 0, [ODD, ROWS, SEVERAL_WARPS, "3x5"])
    assert result.returncode == 0, result.stderr[-2000:]
