"""Backward passes of softmax, LayerNorm and RMSNorm, row by row, on any GPU.

`Device` and `devices()` find the hardware; `softmax_back`, `layer_norm_back` and `rms_norm_back` take NumPy
arrays or a device's Arrays.
"""

from .device import Array, Device, DeviceInfo, devices
from .errors import DeviceLost, DeviceTimeout, DeviceUnavailable, DTypeError, Error, OutOfMemory, ShapeError
from .ops import LayerNormGrads, RMSNormGrads, layer_norm_back, rms_norm_back, softmax_back

__version__ = "0.1.0"

__all__ = [
    "Array",
    "DTypeError",
    "Device",
    "DeviceInfo",
    "DeviceLost",
    "DeviceTimeout",
    "DeviceUnavailable",
    "Error",
    "LayerNormGrads",
    "OutOfMemory",
    "RMSNormGrads",
    "ShapeError",
    "devices",
    "layer_norm_back",
    "rms_norm_back",
    "softmax_back",
]
