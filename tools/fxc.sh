#!/bin/sh
# Sees to FXC, which compiles the shaders for DirectX 12 on Windows, in build/fxc for the long suite on Linux on x86-64:
# Microsoft's d3dcompiler_47.dll out of the npm package webgpu, tools/fxc.c, and build/fxc/fxc, which runs it under wine.
# As root it installs wine and MinGW from the distribution; otherwise it prints the line to run, and the tests say what
# is missing.
#
#     PATH="$PWD/.venv/bin:$PATH" sh tools/fxc.sh    # npm lies there
set -u

package="webgpu@0.6.2"
library="dist/win32-x64/d3dcompiler_47.dll"
compiler="x86_64-w64-mingw32-gcc"
packages="wine64 gcc-mingw-w64-x86-64-win32"
PATH="$PATH:/usr/lib/wine" # Debian's wine64 lies there

go_without() {
  echo "NO FXC, the compiler of DirectX 12: $1" >&2
  exit 0
}

[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || go_without "it runs on Linux on x86-64 alone"

if ! command -v wine64 >/dev/null || ! command -v "$compiler" >/dev/null; then
  command -v apt-get >/dev/null || go_without "install your distribution's wine64 and $compiler"
  [ "$(id -u)" = 0 ] || go_without "to have it: sudo apt-get install $packages"
  echo "installing wine and MinGW"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086  # a list of packages
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages; } >/dev/null ||
    go_without "$packages could not be installed"
fi

rm -rf build/fxc
mkdir -p build/fxc
echo "fetching Microsoft's FXC"
npm pack --silent --pack-destination build/fxc "$package" >/dev/null || go_without "$package could not be fetched"
tar xzf build/fxc/*.tgz -C build/fxc --strip-components 3 "package/$library" || go_without "$package has no $library"
rm build/fxc/*.tgz
"$compiler" -std=c11 -O1 -Wall -o build/fxc/fxc.exe tools/fxc.c -ld3dcompiler_47 || go_without "tools/fxc.c is refused"

cat >build/fxc/new <<'END'
#!/bin/sh
# Microsoft's library in place of wine's own; neither .NET nor a browser, which wine would ask for.
folder=$(cd "$(dirname "$0")" && pwd)
export WINEPREFIX="$folder/wine" WINEDEBUG=-all WINEDLLOVERRIDES="d3dcompiler_47=n;mscoree,mshtml="
PATH="$PATH:/usr/lib/wine" exec wine64 "$folder/fxc.exe" "$@"
END

# The first start makes wine's folders, which takes seconds.
echo "[numthreads(1, 1, 1)] void probe() {}" >build/fxc/probe.hlsl
sh build/fxc/new probe build/fxc/probe.hlsl >build/fxc/probe.log 2>&1 ||
  go_without "wine does not run it, see build/fxc/probe.log"
chmod +x build/fxc/new
mv build/fxc/new build/fxc/fxc
exit 0
