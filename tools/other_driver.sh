#!/bin/sh
# Sees to a second Vulkan driver in build/NAME, without installing it: build/NAME/icd.json is for VK_DRIVER_FILES.
#   swiftshader  Chromium's, out of Debian's chromium-common
#   lavapipe     Mesa's in a version that Dawn takes: Debian 12's own is older, so it comes from the backports
# Needs Debian and its apt-get; neither root nor a change of the system's sources.
set -eu

name=$1
folder=$PWD/build/$name

fail() {
  echo "$name for a second driver: $1" >&2
  exit 1
}

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "expected Debian's apt-get and dpkg-deb"
. /etc/os-release
case $name in
swiftshader) suite=$VERSION_CODENAME package=chromium-common library=libvk_swiftshader.so ;;
lavapipe) suite=$VERSION_CODENAME-backports package=mesa-vulkan-drivers library=libvulkan_lvp.so ;;
*) fail "expected swiftshader or lavapipe" ;;
esac

mkdir -p "$folder"
installed=$(dpkg-query -W -f '${Version}' mesa-vulkan-drivers 2>/dev/null || echo 0)
if [ "$name" = lavapipe ] && dpkg --compare-versions "$installed" ge 25; then
  cp /usr/share/vulkan/icd.d/lvp_icd*.json "$folder/icd.json"
  exit 0
fi

sources=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v '^ *#' || true)
mirror=$(echo "$sources" | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1)
[ -n "$mirror" ] || fail "expected a mirror of Debian in apt's sources"

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/archives/partial"
: >"$state/status" # as if nothing were installed: a version that is, the mirror may no longer have
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$state/sources.list"
private_apt() {
  apt-get -qq -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root \
    -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state" "$@"
}
echo "fetching $library out of $package of Debian's $suite"
private_apt update
(cd "$state" && private_apt download "$package")
dpkg-deb --fsys-tarfile "$state/$package"_*.deb |
  tar x -C "$folder" --wildcards --transform 's|.*/||' "*/$library"
echo "{\"file_format_version\": \"1.0.0\", \"ICD\": {\"library_path\": \"./$library\", \"api_version\": \"1.3.0\"}}" >"$folder/icd.json"
