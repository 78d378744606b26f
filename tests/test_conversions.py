import numpy as np
import pytest
import wgpu

from rowgrad_wgpu.contract import STORAGE
from rowgrad_wgpu.device import WAIT_SECONDS, _deadline
from rowgrad_wgpu.source import shader_text

NARROW = pytest.mark.parametrize("storage", ["float16", "bfloat16"])

MAIN = """
@group(0) @binding(0) var<storage, read> source: array<{source}>;
@group(0) @binding(1) var<storage, read_write> result: array<{result}>;

@compute @workgroup_size(64)
fn convert(@builtin(global_invocation_id) id: vec3u) {{
  // Buffers are padded: one of the two may hold more than there is.
  if (id.x < min(arrayLength(&source), arrayLength(&result))) {{
    result[id.x] = {expression};
  }}
}}
"""
WIDEN = MAIN.format(source="Cell", result="vec4u", expression="bitcast<vec4u>(widen(source[id.x]))")
NARROWED = MAIN.format(source="vec4u", result="Cell", expression="narrow(bitcast<vec4f>(source[id.x]))")

# The bits of the largest finite value and of infinity; how many bits of a float32's mantissa are dropped.
LARGEST = {"float16": 0x7BFF, "bfloat16": 0x7F7F}
INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80}
DROPPED = {"float16": 13, "bfloat16": 16}


def converted(device, storage, main, source, dtype):
    """`source`'s elements through `main`, four a thread."""
    backend = device._backend
    assert source.size % 4 == 0
    result = np.empty(source.size, dtype)
    buffers = [backend.allocate(array.nbytes) for array in (source, result)]
    backend.write(buffers[0], source.view(np.uint8))
    dispatch(backend._device, f"{shader_text(f'lib/storage/{storage}.wgsl')}{main}", buffers, source.size // 4)
    backend.read(buffers[1], result.view(np.uint8), _deadline(WAIT_SECONDS))
    return result


def dispatch(gpu, code, buffers, threads):
    pipeline = gpu.create_compute_pipeline(
        layout="auto", compute={"module": gpu.create_shader_module(code=code), "entry_point": "convert"}
    )
    entries = [{"binding": index, "resource": {"buffer": one.native}} for index, one in enumerate(buffers)]
    encoder = gpu.create_command_encoder()
    compute_pass = encoder.begin_compute_pass()
    compute_pass.set_pipeline(pipeline)
    compute_pass.set_bind_group(0, gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries))
    compute_pass.dispatch_workgroups(-(-threads // 64))
    compute_pass.end()
    gpu.queue.submit([encoder.finish()])


def widen(device, storage, halves):
    return converted(device, storage, WIDEN, halves, np.uint32)


def narrow(device, storage, bits):
    padded = np.concatenate([bits, np.zeros(-bits.size % 4, np.uint32)])
    return converted(device, storage, NARROWED, padded, np.uint16)[: bits.size]


def every_half():
    return np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)


def nan_halves(storage, halves):
    return (halves & 0x7FFF) > INFINITY[storage]


def nan_bits(bits):
    return (bits & 0x7FFFFFFF) > 0x7F800000


def host_widened(storage, halves):
    return halves.view(STORAGE[storage]).astype(np.float32).view(np.uint32)


def host_narrowed(storage, bits):
    with np.errstate(all="ignore"):
        return bits.view(np.float32).astype(STORAGE[storage]).view(np.uint16)


def both_signs(bits):
    return np.concatenate([bits, bits | np.uint32(0x80000000)])


def assert_narrowed(device, storage, bits):
    """Not NaN: the host's bits. NaN: a quiet NaN of the same sign."""
    got = narrow(device, storage, bits)
    nan = nan_bits(bits)
    wanted = host_narrowed(storage, bits)
    wrong = np.flatnonzero(~nan & (got != wanted))
    first = [(hex(bits[i]), hex(got[i]), hex(wanted[i])) for i in wrong[:4]]
    assert not wrong.size, f"{wrong.size} of {bits.size} differ (bits, got, wanted): {first}"
    assert nan_halves(storage, got)[nan].all()
    assert np.array_equal(got[nan] >> 15, (bits[nan] >> 31).astype(np.uint16))


@NARROW
def test_widen_gives_the_hosts_bits(webgpu, storage):
    halves = every_half()
    got = widen(webgpu, storage, halves)
    finite = ~nan_halves(storage, halves)
    np.testing.assert_array_equal(got[finite], host_widened(storage, halves)[finite])


@NARROW
def test_widen_keeps_nan_and_its_payload(webgpu, storage):
    halves = every_half()
    halves = halves[nan_halves(storage, halves)]
    halves = halves[: halves.size // 4 * 4].astype(np.uint16)
    wide = halves.astype(np.uint32)
    wanted = (wide >> 15 << 31) | 0x7F800000 | ((wide << DROPPED[storage]) & 0x7FFFFF)
    np.testing.assert_array_equal(widen(webgpu, storage, halves), wanted)


@NARROW
def test_narrow_undoes_widen(webgpu, storage):
    halves = every_half()
    got = narrow(webgpu, storage, widen(webgpu, storage, halves))
    nan = nan_halves(storage, halves)
    np.testing.assert_array_equal(got[~nan], halves[~nan])
    assert nan_halves(storage, got[nan]).all()
    np.testing.assert_array_equal(got[nan] >> 15, halves[nan] >> 15)


@NARROW
def test_narrow_rounds_every_tie_to_even(webgpu, storage):
    """Halfway between all neighbours, subnormal ones too, and one unit of float32 to either side."""
    below = np.arange(LARGEST[storage], dtype=np.uint32).astype(np.uint16)
    values = [host_widened(storage, below + np.uint16(step)).view(np.float32) for step in (0, 1)]
    middle = (values[0].astype(np.float64) + values[1]) / 2
    bits = middle.astype(np.float32).view(np.uint32)
    assert np.array_equal(bits.view(np.float32), middle)
    ties = narrow(webgpu, storage, bits)
    np.testing.assert_array_equal(ties, below + (below & np.uint16(1)))
    np.testing.assert_array_equal(narrow(webgpu, storage, bits - 1), below)
    np.testing.assert_array_equal(narrow(webgpu, storage, bits + 1), below + np.uint16(1))
    for near in (bits - 1, bits, bits + 1):
        assert_narrowed(webgpu, storage, both_signs(near))


@pytest.mark.parametrize(
    ("storage", "value", "wanted"),
    [
        ("float16", 65504.0, 0x7BFF),
        ("float16", np.nextafter(np.float32(65520), np.float32(0)), 0x7BFF),
        ("float16", 65520.0, 0x7C00),
        ("float16", 65536.0, 0x7C00),
        ("float16", np.finfo(np.float32).max, 0x7C00),
        ("float16", np.inf, 0x7C00),
        ("float16", 2.0**-14, 0x0400),
        ("float16", 2.0**-24, 0x0001),
        ("float16", 2.0**-25, 0x0000),
        ("float16", np.nextafter(np.float32(2.0**-25), np.float32(1)), 0x0001),
        ("float16", np.finfo(np.float32).smallest_subnormal, 0x0000),
        ("bfloat16", np.uint32(0x7F7F7FFF).view(np.float32), 0x7F7F),
        ("bfloat16", np.uint32(0x7F7F8000).view(np.float32), 0x7F80),
        ("bfloat16", np.finfo(np.float32).max, 0x7F80),
        ("bfloat16", np.inf, 0x7F80),
        ("bfloat16", np.uint32(0x00008000).view(np.float32), 0x0000),
        ("bfloat16", np.uint32(0x00008001).view(np.float32), 0x0001),
        ("bfloat16", np.uint32(0x00018000).view(np.float32), 0x0002),
    ],
)
def test_narrow_at_its_ends(webgpu, storage, value, wanted):
    bits = both_signs(np.array([value], np.float32).view(np.uint32))
    assert narrow(webgpu, storage, bits).tolist() == [wanted, wanted | 0x8000]


@NARROW
def test_narrow_gives_the_hosts_bits(webgpu, storage):
    """Every sign and exponent with its outermost mantissas, and mantissas at random."""
    exponents = np.arange(512, dtype=np.uint32)[:, None] << np.uint32(23)
    mantissas = np.random.default_rng(2).integers(0, 1 << 23, 512, dtype=np.uint32)
    outer = np.array([0, 1, 2, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0x7FFFFE, 0x7FFFFF], np.uint32)
    assert_narrowed(webgpu, storage, (exponents | np.concatenate([outer, mantissas])).reshape(-1))


def test_float32_passes_through(webgpu):
    bits = np.random.default_rng(3).integers(0, 1 << 32, 1 << 12, dtype=np.uint32)
    code = "bitcast<vec4u>(narrow(widen(bitcast<vec4f>(source[id.x]))))"
    main = MAIN.format(source="vec4u", result="vec4u", expression=code)
    np.testing.assert_array_equal(converted(webgpu, "float32", main, bits, np.uint32), bits)


def test_the_adapters_are_the_ones_asked_for(webgpu):
    assert isinstance(webgpu._backend._device, wgpu.GPUDevice)
    assert webgpu.info.spec == f"wgpu:{webgpu.info.api}"
