"""A hostile caller: random calls of the public API, right ones and wrong ones, and every answer is checked.

`python hostile.py SPEC CALLS SEED` names each call on standard output before it is made, so that whoever watches knows
the last one; `test_hostile_calls.py` does. What has to hold: a right call gives numbers within the derived bounds, the
same bits on every way, and changes nothing else; a wrong one is refused with an `rg.Error`, and the device works on.
"""

import contextlib
import functools
import inspect
import itertools
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from grids import takes, whole
from hostile_inputs import (
    CALL_FAULTS,
    IMPOSSIBLE_SHAPES,
    LAUNCH_FAULTS,
    LAYOUTS,
    NORM_FAULTS,
    READ_ONLY,
    VALUES,
    junk,
    wrong_call,
    wrong_launch,
    wrong_norm,
)
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

import rowgrad_wgpu as rg
from rowgrad_wgpu import bounds, reference
from rowgrad_wgpu.bounds import Expected
from rowgrad_wgpu.contract import KERNELS, STORAGE, Buffer, chunk_count, storage_name

MEMORY = 10 << 30
"""Bytes of address space for the child: what asks for more has to be refused, not to bring the machine down."""

STEPS = 10
"""Hypothesis leaves rules out of each run of the machine, so many short ones reach more than few long ones."""

CLOSING = 40
"""Every so many runs of the machine the device is closed at the end and opened again."""

# Few values of d, one of each kind that the plan tells apart: compiling is what takes time.
LENGTHS = (1, 3, 4, 33, 64)
LEADS = ((), (0,), (1,), (2,), (5,), (2, 3), (66,), (130,), (1, 2, 1, 3), (3, 0))
EPSILONS = (1e-5, 0.0, 1e-12, 1.0, 3e38, np.float32(1e-3), np.float16(0.5), 1)

NORMS = {"layer_norm_back": rg.LayerNormGrads._fields, "rms_norm_back": rg.RMSNormGrads._fields}
FUNCTIONS = {name: tuple(inspect.signature(getattr(rg, name)).parameters) for name in ("softmax_back", *NORMS)}
"""What a user calls, and the names of its arguments."""

# Whose bounds hold what a kernel makes; one that is not here fails.
BOUNDS = {
    "softmax_back": "softmax_back",
    "softmax_back_parts": "softmax_back",
    "layer_norm_back": "layer_norm_back",
    "layer_norm_back_parts": "layer_norm_back",
    "layer_norm_stats": "layer_norm_back",
    "layer_norm_stats_parts": "layer_norm_back",
    "layer_norm_grads": "layer_norm_back",
    "layer_norm_params": "layer_norm_back",
    "sum_partials": "layer_norm_back",
    "rms_norm_back": "rms_norm_back",
}

SAFE = 2.0**120
"""Sums below this do not overflow float32 on their way, and variances above its inverse are no subnormals."""


@dataclass(eq=False)
class Held:
    """An Array and what it has to hold: `value` where that is known, else what `check` says of it."""

    array: rg.Array
    value: np.ndarray | None = None
    check: Callable[[np.ndarray], None] | None = None

    def settle(self) -> np.ndarray:
        """Its value, read and checked the first time."""
        if self.value is None:
            value = self.array.numpy()
            if self.check is not None:
                self.check(value)
            self.value = value
        return self.value


def flat(array: np.ndarray) -> np.ndarray:
    return np.array(array).reshape(-1, array.shape[-1])


def claimed(expected: Expected, promised: np.ndarray) -> Expected:
    """No bound where nothing is promised: there float32 overflows, or a variance is below its subnormals."""
    return Expected(expected.value, np.where(promised | ~np.isfinite(expected.value), expected.bound, np.inf))


def expected_softmax(y: np.ndarray, dy: np.ndarray) -> Expected:
    y, dy = flat(y), flat(dy)
    with np.errstate(all="ignore"):
        terms = np.abs(y.astype(float) * dy.astype(float)).sum(-1, keepdims=True)
    return claimed(bounds.softmax_back(y, dy, storage_name(y.dtype)), terms < SAFE)


def expected_norm(norm: str, given: dict[str, np.ndarray], eps: float, chunks: int) -> dict[str, Expected]:
    x, dy = flat(given["x"]), flat(given["dy"])
    rows, d = x.shape
    alpha = np.asarray(given.get("alpha", np.ones(d, np.float32)))
    with np.errstate(all="ignore"):
        sums = chunks + math.ceil(rows / chunks)
        expected = getattr(bounds, norm)(x, dy, alpha, eps, storage_name(x.dtype), sums)
        truth = getattr(reference, norm)(x, dy, alpha, eps)
        size_x, size_dy, xhat = np.abs(x.astype(float)), np.abs(dy.astype(float)), np.abs(truth.xhat)
        u = size_dy * np.abs(alpha.astype(float))
        row = size_x.sum(-1, keepdims=True) < SAFE
        row &= (1 / truth.r**2 > 1 / SAFE) & (expected.r.bound < truth.r / 16)
        row_sums = (u * (1 + xhat)).sum(-1, keepdims=True)
        inside = row & (row_sums * (1 + truth.r) * (1 + xhat.max(-1, keepdims=True)) < SAFE)
        columns = row.all() & ((size_dy * (1 + xhat)).sum(0) < SAFE)
    promised = {"dx": inside, "mean": row, "r": row, "dalpha": columns, "dbeta": size_dy.sum(0) < SAFE}
    exactly_0 = Expected(np.zeros((rows, 1)), np.zeros((rows, 1)))
    return {"mean": exactly_0} | {name: claimed(one, promised[name]) for name, one in vars(expected).items()}


def quantities(made: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the outputs of a launch come to, by the names of the bounds."""
    found = {name: array for name, array in made.items() if name in ("dx", "dalpha", "dbeta")}
    if "stats" in made:
        found |= {"mean": made["stats"][:, :1], "r": made["stats"][:, 1:]}
    if "partial" in made:
        with np.errstate(all="ignore"):
            found |= zip(("dalpha", "dbeta"), made["partial"].astype(float).sum(0), strict=True)
    return found


def check(got: np.ndarray, expected: Expected) -> None:
    """Within the bounds, or the AssertionError that says by how much not."""
    share = bounds.share(flat(np.asarray(got)).reshape(expected.value.shape), expected)
    assert share <= 1, f"{share} of the bound: {got} for {expected}"


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """The same bits; any NaN is as good as another."""
    both = (np.asarray(array).astype(np.float32) for array in (one, other))
    return one.dtype == other.dtype and np.array_equal(*both, equal_nan=True)


class HostileCaller(RuleBasedStateMachine):
    """Calls on one device, with Arrays that live on; `spare` is another device, `orphan` an Array of a closed one."""

    spec: str
    device: rg.Device
    spare: rg.Device
    orphan: rg.Array
    runs = 0
    made: ClassVar[Counter[str]] = Counter()

    @classmethod
    def open(cls, spec: str) -> None:
        cls.spec, cls.device, cls.spare = spec, rg.Device(spec), rg.Device("cpu")
        cls.made.clear()
        with rg.Device("cpu") as closed:
            cls.orphan = closed.asarray(np.ones((2, 3), np.float32))

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Held] = []
        self.batches = contextlib.ExitStack()

    def teardown(self) -> None:
        self.settle()
        self.batches.close()
        for held in self.held:
            assert same(held.array.numpy(), held.settle()), f"{held.array!r} changed"
        kind = type(self)
        kind.runs += 1
        if kind.runs % CLOSING == 0:
            array = self.device.empty(3, np.float32)
            self.call("close", self.device.close)
            self.refused("numpy after close", array.numpy)
            self.refused("empty after close", lambda: self.device.empty(3, np.float32))
            self.refused("describe after close", self.device.describe)
            kind.device = rg.Device(self.spec)

    def call(self, text: str, function: Callable[[], Any]) -> Any:
        """A call that has to succeed."""
        self.made["right"] += 1
        print(text, flush=True)
        return function()

    def refused(self, text: str, function: Callable[[], Any]) -> None:
        """A call that has to be refused, with one of the package's errors."""
        self.made["wrong"] += 1
        print(f"wrong: {text}", flush=True)
        try:
            function()
        except rg.Error:
            return
        raise AssertionError(f"not refused: {text}")

    def operand(self, draw: Any, shape: tuple[int, ...], dtype: np.dtype, writeable: bool = False) -> np.ndarray:
        """A host array of any values in any layout."""
        random = np.random.default_rng(draw(st.integers(0, 999)))
        with np.errstate(all="ignore"):
            values = VALUES[draw(st.sampled_from(sorted(VALUES)))](random, shape).astype(dtype)
        layouts = LAYOUTS if writeable else LAYOUTS | READ_ONLY
        return layouts[draw(st.sampled_from(sorted(layouts)))](values)

    def operands(self, draw: Any, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Host arrays that go together; alpha is perhaps float32 beside 16 bits."""
        d, lead = draw(st.sampled_from(LENGTHS)), draw(st.sampled_from(LEADS))
        dtype = STORAGE[draw(st.sampled_from(sorted(STORAGE)))]
        alpha = draw(st.sampled_from([dtype, np.dtype(np.float32)]))
        of = {"alpha": ((d,), alpha)}
        return {name: self.operand(draw, *of.get(name, ((*lead, d), dtype))) for name in names}

    def target(self, draw: Any, like: np.ndarray) -> np.ndarray | None:
        """An out= for a result like that, or None."""
        return self.operand(draw, like.shape, like.dtype, writeable=True) if draw(st.booleans()) else None

    def hold(self, array: rg.Array, value: np.ndarray | None = None, check: Any = None) -> Held:
        assert isinstance(array, rg.Array)
        assert (array.ndim, array.size) == (len(array.shape), math.prod(array.shape))
        assert array.nbytes == array.size * array.dtype.itemsize
        held = Held(array, value, check)
        self.held.append(held)
        return held

    def settle(self) -> None:
        """Checks all that is not yet, before an Array that it came from goes or changes."""
        for held in self.held:
            held.settle()

    def resident(self, draw: Any, names: tuple[str, ...]) -> dict[str, Held]:
        """Arrays that go together: new ones, and old ones that fit."""
        made = {}
        for name, host in self.operands(draw, names).items():
            old = [one for one in self.held if (one.array.shape, one.array.dtype) == (host.shape, host.dtype)]
            if old and draw(st.booleans()):
                made[name] = draw(st.sampled_from(old))
            else:
                array = self.call(f"asarray {host.shape} {host.dtype}", lambda host=host: self.device.asarray(host))
                made[name] = self.hold(array, np.array(host))
        return made

    @rule(data=st.data())
    def softmax_on_the_host(self, data: Any) -> None:
        given = self.operands(data.draw, ("y", "dy"))
        y = given["y"]
        out = self.target(data.draw, y)
        before = [one.tobytes() for one in given.values()]
        dx = self.call(
            f"softmax_back on the host {y.shape} {y.dtype}",
            lambda: rg.softmax_back(**given, out=out, device=self.device),
        )
        assert out is None or dx is out
        assert (dx.shape, dx.dtype) == (y.shape, y.dtype)
        assert before == [one.tobytes() for one in given.values()]
        check(dx, expected_softmax(**given))

    @rule(data=st.data(), norm=st.sampled_from(sorted(NORMS)))
    def norm_on_the_host(self, data: Any, norm: str) -> None:
        given, eps = self.operands(data.draw, self.names_of_a_norm(data.draw)), data.draw(st.sampled_from(EPSILONS))
        x, column, asked = given["x"], np.empty(given["x"].shape[-1], np.float32), self.asked(data.draw, norm)
        likes = [x, *(column for _ in NORMS[norm][1:])]
        wanted = [name in asked for name in NORMS[norm]]
        out = [self.target(data.draw, like) if one else None for like, one in zip(likes, wanted, strict=True)]
        before = [one.tobytes() for one in given.values()]
        got = self.call(
            f"{norm} on the host {x.shape} {x.dtype} {eps} {asked}",
            lambda: getattr(rg, norm)(**given, eps=eps, grads=asked, out=out, device=self.device),
        )
        assert before == [one.tobytes() for one in given.values()]
        assert all(one is target for one, target in zip(got, out, strict=True) if target is not None)
        assert [one is not None for one in got] == wanted
        self.check_gradients(norm, got, given, eps)

    def names_of_a_norm(self, draw: Any) -> tuple[str, ...]:
        return draw(st.sampled_from([("x", "dy"), ("x", "dy", "alpha")]))

    def asked(self, draw: Any, norm: str) -> Any:
        """Some of a norm's gradients, in one of the ways to ask for them."""
        first, *_, last = names = NORMS[norm]
        return draw(st.sampled_from([names, (first,), ["dalpha"], last, {first: 1, last: 2}]))

    def check_gradients(self, norm: str, got: Any, given: dict[str, np.ndarray], eps: float) -> None:
        rows = math.prod(given["x"].shape[:-1])
        expected = expected_norm(norm, given, float(np.float32(eps)), chunk_count(rows))
        for name, one in got._asdict().items():
            if one is not None:
                check(one, expected[name])

    @rule(data=st.data())
    def softmax_on_arrays(self, data: Any) -> None:
        given = self.resident(data.draw, ("y", "dy"))
        y, dy = given["y"], given["dy"]
        dx = self.call(f"softmax_back {y.array!r}", lambda: rg.softmax_back(y.array, dy.array))
        self.hold(dx, check=lambda got: self.check_softmax(got, y, dy))

    def check_softmax(self, got: np.ndarray, y: Held, dy: Held) -> None:
        check(got, expected_softmax(y.settle(), dy.settle()))
        again = rg.softmax_back(y.settle(), dy.settle(), device=self.device)
        assert same(got, again), "an Array's result has other bits than the host's"

    @rule(data=st.data(), norm=st.sampled_from(sorted(NORMS)))
    def norm_on_arrays(self, data: Any, norm: str) -> None:
        given = self.resident(data.draw, self.names_of_a_norm(data.draw))
        eps = data.draw(st.sampled_from(EPSILONS))
        arrays = {name: held.array for name, held in given.items()}
        got = self.call(f"{norm} {arrays['x']!r}", lambda: getattr(rg, norm)(**arrays, eps=eps))
        for name, array in got._asdict().items():
            self.hold(array, check=lambda value, name=name: self.check_norm(norm, value, name, given, eps))

    def check_norm(self, norm: str, got: np.ndarray, name: str, given: dict[str, Held], eps: float) -> None:
        hosts = {one: held.settle() for one, held in given.items()}
        again = getattr(rg, norm)(**hosts, eps=eps, device=self.device)
        assert same(got, getattr(again, name)), "an Array's result has other bits than the host's"
        self.check_gradients(norm, again, hosts, eps)

    @rule(data=st.data())
    def softmax_into_an_old_array(self, data: Any) -> None:
        self.settle()
        given = self.resident(data.draw, ("y", "dy"))
        y, dy = given["y"], given["dy"]
        fits = [one for one in self.held if (one.array.shape, one.array.dtype) == (y.array.shape, y.array.dtype)]
        out = data.draw(st.sampled_from(fits))
        if out in (y, dy):
            self.refused("out= an input", lambda: rg.softmax_back(y.array, dy.array, out=out.array))
            return
        got = self.call(f"softmax_back into {out.array!r}", lambda: rg.softmax_back(y.array, dy.array, out=out.array))
        assert got is out.array
        out.value, out.check = None, lambda value: self.check_softmax(value, y, dy)

    @rule(data=st.data(), norm=st.sampled_from(sorted(NORMS)))
    def norm_into_old_arrays(self, data: Any, norm: str) -> None:
        self.settle()
        given = self.resident(data.draw, self.names_of_a_norm(data.draw))
        x = given["x"].array
        likes = [(x.shape, x.dtype), *(((x.shape[-1],), np.dtype(np.float32)) for _ in NORMS[norm][1:])]
        out = [self.old(data.draw, *like) for like in likes]
        arrays = {name: held.array for name, held in given.items()}
        arrays["out"] = [held and held.array for held in out]
        taken = [held for held in out if held is not None]
        if len({*given.values(), *taken}) < len({*given.values()}) + len(taken):
            self.refused("out= twice or an input", lambda: getattr(rg, norm)(**arrays))
            return
        got = self.call(f"{norm} into {arrays['out']}", lambda: getattr(rg, norm)(**arrays))
        for name, array, held in zip(NORMS[norm], got, out, strict=True):
            held = held or self.hold(array)
            assert array is held.array
            held.value, held.check = None, lambda value, name=name: self.check_norm(norm, value, name, given, 1e-5)

    def old(self, draw: Any, shape: tuple[int, ...], dtype: np.dtype) -> Held | None:
        """An Array of that shape and type which is there already, or None."""
        fits = [one for one in self.held if (one.array.shape, one.array.dtype) == (shape, dtype)]
        return draw(st.sampled_from([None, *fits]))

    @rule(data=st.data())
    def launch_every_kernel(self, data: Any) -> None:
        """The way of a caller who has read the contract alone, with any number of chunks and of parts.

        A kernel reads of the others what the first of them wrote.
        """
        given = self.resident(data.draw, ("y", "x", "dy", "alpha"))
        x, eps = given["x"].array, data.draw(st.sampled_from([0.0, 1e-5]))
        lengths = {"rows": math.prod(x.shape[:-1]), "d": x.shape[-1]}
        lengths["chunks"] = data.draw(st.sampled_from([1, 2, 5, 300]))
        lengths["parts"] = data.draw(st.sampled_from([1, 2, 5, 17]))
        arrays = {name: held.array for name, held in given.items()}
        arrays["eps"] = self.device.asarray(np.array([eps], np.float32))
        extent = whole(lengths["rows"], lengths["d"], lengths["chunks"])
        made = {}
        for kernel, record in KERNELS.items():
            outputs = {one.name: self.output(one, x, lengths) for one in record.outputs}
            buffers = {one.name: (arrays | outputs)[one.name] for one in record.buffers}
            text, launch = f"launch {kernel} {x!r} {lengths}", functools.partial(self.device.launch, kernel, **buffers)
            if not takes(record, storage_name(x.dtype), extent, self.device.limits):
                self.refused(text, launch)
                continue
            self.call(text, launch)
            made[kernel] = outputs
            arrays = outputs | arrays
        self.check_launches(made, {name: held.settle() for name, held in given.items()}, eps, lengths["chunks"])

    def output(self, buffer: Buffer, like: rg.Array, lengths: dict[str, int]) -> rg.Array:
        """An Array for a buffer of a launch on rows like those."""
        if buffer.element == "F":
            return self.device.empty(like.shape, like.dtype)
        return self.device.empty([lengths.get(str(axis), axis) for axis in buffer.axes], np.float32)

    def check_launches(
        self, made: dict[str, dict[str, rg.Array]], hosts: dict[str, np.ndarray], eps: float, chunks: int
    ) -> None:
        y = hosts.pop("y")
        expected = {norm: expected_norm(norm, hosts, float(np.float32(eps)), chunks) for norm in NORMS}
        expected["softmax_back"] = {"dx": expected_softmax(y, hosts["dy"])}
        got = {kernel: {name: array.numpy() for name, array in outputs.items()} for kernel, outputs in made.items()}
        for kernel, outputs in got.items():
            for name, value in quantities(outputs).items():
                check(value, expected[BOUNDS[kernel]][name])
        apart = got["layer_norm_back"] | got["layer_norm_params"]
        for name, value in got.get("layer_norm_grads", {}).items():
            assert same(value, apart[name]), f"layer_norm_grads gives another {name} than the two kernels"

    @rule(
        shape=st.sampled_from([(), 3, (0,), (2, 3), (5, 33), [66, 4], (1,) * 64, np.int64(7)]),
        dtype=st.sampled_from([*STORAGE.values(), "f4", np.float16, "e"]),
    )
    def an_empty_array(self, shape: Any, dtype: Any) -> None:
        self.hold(self.call(f"empty {shape} {dtype}", lambda: self.device.empty(shape, dtype)))

    @rule(shape=st.sampled_from(IMPOSSIBLE_SHAPES))
    def an_impossible_array(self, shape: Any) -> None:
        self.refused(f"empty {shape}", lambda: self.device.empty(shape, np.float16))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def read(self, data: Any) -> None:
        held = data.draw(st.sampled_from(self.held))
        got = self.call(f"numpy {held.array!r}", held.array.numpy)
        assert same(got, held.settle())
        assert same(np.asarray(held.array), got)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: Any) -> None:
        held = data.draw(st.sampled_from(self.held))
        if held.value is None or any(one.value is None for one in self.held):
            self.settle()
        self.call(f"free {held.array!r}", held.array.free)
        held.array.free()
        self.held.remove(held)
        self.refused("numpy after free", held.array.numpy)
        self.refused("softmax_back after free", lambda: rg.softmax_back(held.array, held.array))

    @rule()
    def enter_a_batch(self) -> None:
        self.batches.enter_context(self.call("enter a batch", self.device.batch))

    @rule()
    def leave_the_batches(self) -> None:
        self.call("leave the batches", self.batches.close)

    @rule(data=st.data())
    def an_exception_in_a_batch(self, data: Any) -> None:
        given = self.resident(data.draw, ("y", "dy"))
        y, dy = given["y"], given["dy"]
        with contextlib.suppress(ZeroDivisionError), self.device.batch(), self.device.batch():
            dx = self.call("softmax_back before an exception", lambda: rg.softmax_back(y.array, dy.array))
            self.hold(dx, check=lambda got: self.check_softmax(got, y, dy))
            raise ZeroDivisionError

    @rule()
    def ask_for_the_devices(self) -> None:
        kinds = [one.api for one in self.call("devices", rg.devices)]
        assert self.device.info.api in kinds
        assert self.device.describe()
        assert self.device.limits

    @rule(timeout=st.sampled_from([None, 5, 1e9, float("inf"), True]))
    def synchronize(self, timeout: Any) -> None:
        self.call(f"synchronize {timeout}", lambda: self.device.synchronize(timeout))

    @rule(data=st.data())
    def threads(self, data: Any) -> None:
        given = self.operands(data.draw, ("y", "dy"))
        got: list[np.ndarray] = []

        def work() -> None:
            arrays = [self.device.asarray(one) for one in given.values()]
            with self.device.batch():
                dx = rg.softmax_back(*arrays)
            got.extend([dx.numpy(), rg.softmax_back(**given, device=self.device)])

        workers = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for worker in workers:
            self.call(f"softmax_back in a thread {given['y'].shape}", worker.start)
        for worker in workers:
            worker.join()
        assert len(got) == 2 * len(workers), "a thread failed"
        check(got[0], expected_softmax(**given))
        assert all(same(one, other) for one, other in itertools.pairwise(got))

    @rule(data=st.data(), fault=st.sampled_from(CALL_FAULTS))
    def a_wrong_softmax(self, data: Any, fault: str) -> None:
        given = self.operands(data.draw, ("y", "dy"))
        if given["y"].size > 1:  # else nothing overlaps
            wrong = wrong_call(fault, given, self.device, self.spare, self.orphan)
            self.refused(f"softmax_back, {fault}", lambda: rg.softmax_back(**wrong))

    @rule(data=st.data(), norm=st.sampled_from(sorted(NORMS)), fault=st.sampled_from(CALL_FAULTS + NORM_FAULTS))
    def a_wrong_norm(self, data: Any, norm: str, fault: str) -> None:
        given = self.operands(data.draw, ("x", "dy", "alpha"))
        if given["x"].size > 1:
            wrong = (
                wrong_norm(fault, given, NORMS[norm], self.device)
                if fault in NORM_FAULTS
                else wrong_call(fault, given, self.device, self.spare, self.orphan)
            )
            self.refused(f"{norm}, {fault}", lambda: getattr(rg, norm)(**wrong))

    @rule(data=st.data(), function=st.sampled_from(sorted(FUNCTIONS)), thing=st.sampled_from(junk()))
    def junk_for_an_argument(self, data: Any, function: str, thing: Any) -> None:
        name = data.draw(st.sampled_from(FUNCTIONS[function]))
        if name == "progress" and callable(thing):
            return
        operands = ("x", "dy", "alpha") if function in NORMS else ("y", "dy")
        given = {"device": self.device, **self.operands(data.draw, operands), name: thing}
        self.refused(f"{function}, {name} = {type(thing).__name__}", lambda: getattr(rg, function)(**given))

    @rule(
        thing=st.sampled_from(junk()), method=st.sampled_from(["asarray", "empty", "launch", "synchronize", "Device"])
    )
    def junk_for_the_device(self, thing: Any, method: str) -> None:
        if method == "synchronize" and isinstance(thing, int):
            thing = -1
        calls = {
            "asarray": lambda: self.device.asarray(thing),
            "empty": lambda: self.device.empty(3, thing),
            "launch": lambda: self.device.launch(thing, y=thing),
            "synchronize": lambda: self.device.synchronize(thing),
            "Device": lambda: rg.Device(thing),
        }
        self.refused(f"{method} of {type(thing).__name__}", calls[method])

    @rule(data=st.data(), name=st.sampled_from(sorted(KERNELS)), fault=st.sampled_from(LAUNCH_FAULTS))
    def a_wrong_launch(self, data: Any, name: str, fault: str) -> None:
        lengths = {"rows": 5, "d": 4, "chunks": 1, "parts": 1}
        buffers = {
            one.name: self.device.asarray(np.ones([lengths.get(str(axis), axis) for axis in one.axes], np.float32))
            for one in KERNELS[name].buffers
        }
        if fault == "written twice" and len(KERNELS[name].outputs) == 1:
            return
        columns = [one.axes[-1] for one in KERNELS[name].buffers]
        fitting = {
            "another dtype": [one.name for one in KERNELS[name].buffers if one.element != "F" or one.name == "dx"],
            "one longer": [one.name for one in KERNELS[name].buffers if one.axes[0] != "chunks"],
            "one wider": [one.name for one in KERNELS[name].buffers if one.axes[-1] != "d" or columns.count("d") > 1],
        }
        target = data.draw(st.sampled_from(fitting.get(fault, sorted(buffers))))
        wrong = wrong_launch(fault, buffers, target, KERNELS[name], self.spare, self.orphan)
        self.refused(f"launch {name}, {target}: {fault}", lambda: self.device.launch(name, **wrong))
        assert all((array.numpy() == 1).all() for array in buffers.values()), "a refused launch wrote"


def abuse(spec: str, calls: int, number: int) -> None:
    """At least that many calls."""
    HostileCaller.open(spec)
    wanted = settings(
        max_examples=max(1, calls // (2 * STEPS)),
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        print_blob=False,
        phases=[Phase.generate],  # shrinking takes minutes; the last calls and the seed tell enough
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    while HostileCaller.made.total() < calls:
        run_state_machine_as_test(seed(number)(HostileCaller), settings=wanted)
        number += 1


def main() -> None:
    spec, calls, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with contextlib.suppress(ImportError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    abuse(spec, calls, number)
    print(f"done: {HostileCaller.made['right']} right, {HostileCaller.made['wrong']} wrong", flush=True)


if __name__ == "__main__":
    main()
