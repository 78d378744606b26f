"""Dawn's Python binding under the name `wgpu`, for the suite on Tint: `tests/conftest.py` puts it on the path."""

import wgpudawn

wgpudawn.install_as_wgpu()
