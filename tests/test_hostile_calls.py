"""A hostile caller in a child under watch: no abort, no hang, no wrong number, each refusal one of the package's."""

import contextlib
import inspect
import re
from pathlib import Path

import hostile
import numpy as np
import pytest
from watching import watched

import rowgrad_wgpu as rg
from rowgrad_wgpu.contract import KERNELS

HOSTILE = str(Path(hostile.__file__))


def abused(device: rg.Device, calls: int, number: int) -> None:
    last = watched(HOSTILE, device.info.spec, str(calls), str(number))[-1]
    right, wrong = map(int, re.fullmatch(r"done: (\d+) right, (\d+) wrong", last).groups())
    assert right + wrong >= calls
    assert min(right, wrong) >= calls // 10


def test_hundreds_of_calls(named_device):
    abused(named_device, 400 if named_device.info.api == "numpy" else 300, 1)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_thousands_of_calls(named_device):
    abused(named_device, {"numpy": 4000, "gl": 2000}.get(named_device.info.api, 4000), 2)


def test_the_caller_knows_every_kernel_and_every_function():
    """A new one fails here until it is called too."""
    functions = {name for name in rg.__all__ if inspect.isfunction(getattr(rg, name))}
    assert functions == {"devices", *hostile.FUNCTIONS}
    assert {*hostile.BOUNDS} == {*KERNELS}
    text = Path(hostile.__file__).read_text(encoding="utf-8")
    methods = {name for kind in (rg.Device, rg.Array) for name in dir(kind) if not name.startswith("_")}
    assert [name for name in sorted(methods) if f".{name}" not in text] == []


@pytest.mark.parametrize("code", ["import os; os.abort()", "import sys; sys.exit(3)", "raise KeyError", "1 / 0"])
def test_a_child_that_ends_badly_is_seen(code):
    with pytest.raises(AssertionError, match="it ended with"):
        watched("-c", code)


def test_a_child_that_hangs_is_seen():
    with pytest.raises(pytest.fail.Exception, match="nothing for"):
        watched("-c", "import time; print('now'); time.sleep(60)", quiet=0.5)


right_softmax = rg.softmax_back


def a_little_off(*given, **more):
    return right_softmax(*given, **more) * np.float32(1.0001)


def an_untyped_refusal(*given, **more):
    try:
        return right_softmax(*given, **more)
    except rg.Error as error:
        raise RuntimeError from error


def no_refusal(*given, **more):
    with contextlib.suppress(rg.Error):
        return right_softmax(*given, **more)


def an_input_written(y, dy, **more):
    dx = right_softmax(y, dy, **more)
    if isinstance(y, np.ndarray) and y.flags.writeable:
        y[...] = 0
    return dx


def out_left_out(*given, out=None, **more):
    return right_softmax(*given, **more)


@pytest.mark.parametrize("wrong", [a_little_off, an_untyped_refusal, no_refusal, an_input_written, out_left_out])
def test_the_caller_notices(wrong, monkeypatch):
    monkeypatch.setattr(rg, "softmax_back", wrong)
    with pytest.raises((AssertionError, RuntimeError, AttributeError, TypeError)):
        hostile.abuse("cpu", 3000, 3)


@pytest.mark.parametrize(("norm", "gradient"), [(norm, one) for norm in hostile.NORMS for one in hostile.NORMS[norm]])
def test_the_caller_notices_a_gradient_of_the_wrong_sign(norm, gradient, monkeypatch):
    right = getattr(rg, norm)

    def wrong(*given, **more):
        found = right(*given, **more)
        one = getattr(found, gradient)
        return found._replace(**{gradient: -one}) if isinstance(one, np.ndarray) else found

    monkeypatch.setattr(rg, norm, wrong)
    with pytest.raises(AssertionError):
        hostile.abuse("cpu", 3000, 3)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_caller_notices_a_kernel_that_does_nothing(kernel, monkeypatch):
    right = rg.Device.launch

    def wrong(device, name, **buffers):
        if not isinstance(name, str) or name != kernel:
            right(device, name, **buffers)

    monkeypatch.setattr(rg.Device, "launch", wrong)
    with pytest.raises(AssertionError):
        hostile.abuse("cpu", 3000, 3)
