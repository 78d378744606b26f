"""Do the gradients that your framework gave hold?

Takes an .npz with `x`, `dy`, perhaps `alpha`, and those of `dx`, `dalpha`, `dbeta` that a LayerNorm's backward pass
gave. Each is set against float64 and against what this device gives. Without a file it makes one and verifies that.

    python verify_my_gradients.py gradients.npz --eps 1e-5
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import rowgrad_wgpu as rg
from rowgrad_wgpu import bounds
from rowgrad_wgpu.contract import chunk_count, storage_name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="an .npz with x, dy, [alpha], and dx, dalpha, dbeta")
    parser.add_argument("--eps", type=float, default=1e-5, help="the eps that was added to the variance (1e-5)")
    options = parser.parse_args()
    if options.file is not None:
        return verify(options.file, options.eps)
    with tempfile.TemporaryDirectory() as folder:
        return verify(demonstration(Path(folder) / "gradients.npz"), options.eps)


def verify(path: Path, eps: float) -> int:
    """Prints a line for each gradient of the file; 0 if all hold."""
    with np.load(path, allow_pickle=False) as file:
        given = dict(file)
    d = given["x"].shape[-1]
    x, dy = given["x"].reshape(-1, d), given["dy"].reshape(-1, d)
    alpha = given.get("alpha", np.ones(d, x.dtype))
    chunks = chunk_count(len(x))
    expected = bounds.layer_norm_back(x, dy, alpha, eps, storage_name(x.dtype), chunks + -(-len(x) // chunks))
    with rg.Device() as device:
        print(f"{path.name}: {len(x)} rows of {d}, {x.dtype}; on {device.info.spec}: {device.info.name}")
        own = rg.layer_norm_back(x, dy, alpha, eps=eps, device=device)
    wrong = 0
    for name in ("dx", "dalpha", "dbeta"):
        if name in given:
            oracle = getattr(expected, name)
            yours = given[name].reshape(oracle.value.shape)
            holds = bounds.share(yours, oracle) <= 1
            wrong += not holds
            print(
                f"  {name:6} {'holds' if holds else 'DOES NOT HOLD'}: {bounds.gap(yours, oracle):.1e} from float64,"
                f" ours {bounds.gap(getattr(own, name), oracle):.1e}, allowed {bounds.room(oracle):.1e}"
            )
    return 1 if wrong else 0


def demonstration(path: Path) -> Path:
    """A file as a framework might leave it: plain NumPy in float32."""
    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, 40, 96), dtype=np.float32)
    alpha = random.standard_normal(96, dtype=np.float32)
    r = 1 / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-5))
    xhat = (x - x.mean(-1, keepdims=True)) * r
    u = dy * alpha
    dx = r * (u - u.mean(-1, keepdims=True) - xhat * (u * xhat).mean(-1, keepdims=True))
    np.savez(path, x=x, dy=dy, alpha=alpha, dx=dx, dalpha=(dy * xhat).sum(0), dbeta=dy.sum(0))
    return path


if __name__ == "__main__":
    sys.exit(main())
