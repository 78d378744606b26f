#!/bin/sh
# Sees to what compiles the kernels for AMD GPUs where there is none, for the tests on Linux on x86-64: clang-19, and the
# header that hipRTC 7.2 has built in, out of a wheel of AMD's into build/.
# As root it installs clang from the distribution; otherwise it prints the line to run, and the tests say what is missing.
#
#     sh tools/amd_compiler.sh .venv/bin/python
set -u

python=$1
wheel="rocm-llvm-python==7.2.2.562.46"
header="rocm/amd_comgr/hiprtc_runtime.h"

[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || exit 0

if ! command -v clang++-19 >/dev/null; then
  if ! command -v apt-get >/dev/null; then
    echo "no clang-19 found: install your distribution's" >&2
  elif [ "$(id -u)" != 0 ]; then
    echo "no clang-19 found; to have it: sudo apt-get install clang-19" >&2
  else
    echo "installing clang-19"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends clang-19; } >/dev/null ||
      echo "clang-19 could not be installed" >&2
  fi
fi

if ! [ -e build/hiprtc_runtime.h ]; then
  echo "fetching hipRTC's header"
  mkdir -p build
  download=$(mktemp -d)
  trap 'rm -rf "$download"' EXIT
  "$python" -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
    --platform manylinux_2_28_x86_64 --dest "$download" "$wheel" &&
    "$python" -m zipfile --extract "$download"/*.whl "$download" &&
    mv "$download/$header" build/ || echo "hipRTC's header could not be fetched" >&2
fi
exit 0
