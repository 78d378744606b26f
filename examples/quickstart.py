"""The gradients of a softmax, a LayerNorm and an RMSNorm, on whatever device is here."""

import numpy as np

import rowgrad_wgpu as rg

random = np.random.default_rng(0)
x, dy = random.standard_normal((2, 70, 768), dtype=np.float32)
y = np.exp(x) / np.exp(x).sum(-1, keepdims=True)

with rg.Device() as device:
    print(device.info)
    print("softmax:    dx", rg.softmax_back(y, dy, device=device)[0, :3])
    print("layer norm: dalpha", rg.layer_norm_back(x, dy, device=device).dalpha[:3])
    print("RMS norm:   dalpha", rg.rms_norm_back(x, dy, device=device).dalpha[:3])
