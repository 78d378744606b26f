#!/bin/sh
# Sees to a Vulkan driver (and Mesa's OpenGL, which the tests use by name) on Linux: without one there is no adapter.
# As root it installs Mesa's software drivers from the distribution; otherwise it prints the line to run and goes on,
# because the package also computes on the CPU.
set -u

PATH="$PATH:/sbin:/usr/sbin" # ldconfig lies there
packages="libvulkan1 mesa-vulkan-drivers libegl1 libgl1-mesa-dri"

[ "$(uname -s)" = Linux ] || exit 0
if ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1' && ldconfig -p | grep -q 'libEGL\.so\.1' &&
  ls /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json 2>/dev/null | grep -q .; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "no Vulkan driver found: install your distribution's Mesa Vulkan drivers; going on with the CPU device" >&2
elif [ "$(id -u)" != 0 ]; then
  echo "no Vulkan driver found; to have one: sudo apt-get install $packages; going on with the CPU device" >&2
else
  echo "installing a software Vulkan driver: $packages"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086  # a list of packages
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages; } >/dev/null ||
    echo "the driver could not be installed; going on with the CPU device" >&2
fi
exit 0
