"""Do the gradients that your framework gave hold?

Takes an .npz with `x`, `dy`, perhaps `alpha`, and those of `dx`, `dalpha`, `dbeta` that a LayerNorm's backward pass
gave. Each is set against float64 and against what this device gives. `x` and `dy` are float32, float16 or bfloat16, for
which NumPy has no name: pass --bfloat16 where the file's 16 bits are that. dalpha and dbeta may be rounded to 16 bits
too. Without a file it makes one and verifies that. The exit status is 1 for gradients that do not hold, 2 for a file
that cannot be verified.

    python verify_my_gradients.py gradients.npz --eps 1e-5
"""

import argparse
import sys
import tempfile
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np

import rowgrad_wgpu as rg
from rowgrad_wgpu import bounds
from rowgrad_wgpu.contract import column_additions, storage_name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="an .npz with x, dy, [alpha], and dx, dalpha, dbeta")
    parser.add_argument("--eps", type=float, default=1e-5, help="the eps that was added to the variance (1e-5)")
    parser.add_argument("--bfloat16", action="store_true", help="16-bit arrays without a type of NumPy's hold bfloat16")
    options = parser.parse_args()
    if options.file is not None:
        try:
            return verify(read(options.file, options.bfloat16), options.file.name, options.eps)
        except (rg.Error, OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            parser.error(str(error))
    with tempfile.TemporaryDirectory() as folder:
        path = demonstration(Path(folder) / "gradients.npz")
        return verify(read(path), path.name, options.eps)


def read(path: Path, bfloat16: bool = False) -> dict[str, np.ndarray]:
    """The arrays of the file by name."""
    with path.open("rb") as file:
        held = np.load(file, allow_pickle=False)
        if not isinstance(held, np.lib.npyio.NpzFile):
            raise rg.DTypeError(f"expected an .npz, got one array in {path.name}")
        given = dict(held)
    if not {"x", "dy"} <= set(given):
        raise rg.ShapeError(f"expected x and dy in {path.name}, got {', '.join(given) or 'nothing'}")
    for name, one in given.items():
        if one.dtype == "V2":
            if not bfloat16:
                raise rg.DTypeError(f"expected a floating-point type for {name}, got {one.dtype}: pass --bfloat16?")
            given[name] = one.view(ml_dtypes.bfloat16)
    return given


def verify(given: dict[str, np.ndarray], name_of_file: str, eps: float) -> int:
    """Prints a line for each gradient of the file; 0 if all hold."""
    x, dy = given["x"], given["dy"]
    alpha = given.get("alpha", np.ones(x.shape[-1:], x.dtype))
    with rg.Device() as device:
        own = rg.layer_norm_back(x, dy, alpha, eps=eps, device=device)  # refuses what does not belong together
        x, dy = (one.reshape(-1, x.shape[-1]) for one in (x, dy))
        print(f"{name_of_file}: {len(x)} rows of {len(alpha)}, {x.dtype}; on {device.info.spec}: {device.info.name}")
    own = own._replace(dx=own.dx.reshape(x.shape))
    expected = bounds.layer_norm_back(x, dy, alpha, eps, storage_name(x.dtype), column_additions(len(x)))
    wrong = 0
    for name in ("dx", "dalpha", "dbeta"):
        if name in given:
            oracle = getattr(expected, name)
            if given[name].size != oracle.value.size:
                raise rg.ShapeError(f"expected {name} of shape {oracle.value.shape}, got {given[name].shape}")
            yours = given[name].reshape(oracle.value.shape)
            if name != "dx" and yours.dtype.itemsize == 2:
                oracle = bounds.rounded(oracle, storage_name(yours.dtype))
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
