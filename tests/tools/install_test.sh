#!/usr/bin/env bash
# Installs a build into an empty prefix and uses it as an application would: find_package(laya),
# every public header, a kernel compiled once and then taken from the cache.
#
# usage: install_test.sh BUILD_DIR
set -euo pipefail

build=$1
consumer=$(cd "$(dirname "$0")/../examples/consumer" && pwd)
dir=$(mktemp -d -t laya-test-XXXXXX)
trap 'rm -rf "$dir"' EXIT
prefix="$dir/prefix"

fail() {
  echo "install_test: $1" >&2
  exit 1
}

cmake --install "$build" --prefix "$prefix" >"$dir/log" || { cat "$dir/log"; fail "install failed"; }
"$prefix/bin/laya" --version

# The headers that were installed must be all that they include.
find "$prefix/include/laya" -name '*.h' -printf '#include "%P"\n' >"$dir/all_headers.cpp"
g++ -std=c++20 -fsyntax-only -I "$prefix/include/laya" "$dir/all_headers.cpp"

cmake -S "$consumer" -B "$dir/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_INSTALL_PREFIX="$prefix" >"$dir/log" || { cat "$dir/log"; fail "find_package failed"; }
cmake --build "$dir/build"

# Beside the command, so that it finds the compiler component of this prefix.
cp "$dir/build/scale_demo" "$prefix/bin/"
export LAYA_CACHE_DIR="$dir/cache"
first=$(LD_DEBUG=files "$prefix/bin/scale_demo" 2>"$dir/trace")
[[ $first == "x[999] = 42, kernels compiled: 1" ]] || fail "first run: $first"
grep -q "file=$prefix/.*liblaya_llvm.so" "$dir/trace" || fail "the installed component was not used"
second=$("$prefix/bin/scale_demo")
[[ $second == "x[999] = 42, kernels compiled: 0" ]] || fail "second run: $second"
echo "installed, found, compiled once"
