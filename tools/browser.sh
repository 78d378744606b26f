#!/bin/sh
# Sees to a browser for the test of the page in examples/browser, which has its own software adapter for WebGPU.
# As root it installs Debian's Chromium; otherwise it prints the line to run, and the test says what is missing.
set -u

for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && exit 0
done
[ "$(uname -s)" = Linux ] || exit 0
if ! command -v apt-get >/dev/null; then
  echo "no Chromium found: install your distribution's" >&2
elif [ "$(id -u)" != 0 ]; then
  echo "no Chromium found; to have it: sudo apt-get install chromium" >&2
else
  echo "installing Chromium"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null ||
    echo "Chromium could not be installed" >&2
fi
exit 0
