"""The error classes: each message says what was expected, what came and what to do."""


class Error(Exception):
    """Anything this package refuses or fails at; the root of all its errors."""


class DeviceUnavailable(Error):
    """No device answers to the spec: the message lists what was tried and what is missing."""


class DeviceLost(Error):
    """The device stopped working or was closed; a new `Device` has to be opened."""


class DeviceTimeout(Error):
    """The device did not finish within the time given."""


class OutOfMemory(Error, MemoryError):
    """The device or the host has no room for the arrays; the device works on afterwards."""


class ShapeError(Error, ValueError):
    """Shapes that disagree, d = 0, or an argument's value outside its range."""


class DTypeError(Error, TypeError):
    """A dtype or a kind of argument that is not taken; nothing is cast silently."""
