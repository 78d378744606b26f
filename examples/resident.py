"""Upload once, chain, download once: Arrays stay on the device and nothing waits in between."""

import numpy as np

import rowgrad_wgpu as rg

random = np.random.default_rng(0)
hidden = random.standard_normal((256, 96), dtype=np.float32)
scores = np.exp(hidden)
upstream = random.standard_normal((256, 96), dtype=np.float32)

with rg.Device() as device:
    y = device.asarray(scores / scores.sum(-1, keepdims=True))
    x, dy = device.asarray(hidden), device.asarray(upstream)
    with device.batch():  # one submission for all of it
        through_softmax = rg.softmax_back(y, dy)
        grads = rg.layer_norm_back(x, through_softmax)
    dx = grads.dx.numpy()  # the only wait
    print(f"{device.info.spec}: dx {dx.shape}, largest {np.abs(dx).max():.4f}")
