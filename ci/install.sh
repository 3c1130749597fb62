#!/usr/bin/env bash
# Installs the torch-free core to a scratch prefix, then builds and runs tests/install, a project that knows only
# find_package(collab).
. "$(dirname "$0")/common.sh"
use_venv # configures as the tests' build does, so that nothing is compiled again

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
configure_and_build ci
cmake --install build/wheel --prefix "$scratch/prefix" --component core
if grep -rIl -- "$root" "$scratch/prefix"; then
  die "the installed files above name the source tree"
fi
cmake -G Ninja -S tests/install -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_BUILD_TYPE=Release
cmake --build "$scratch/build"
"$scratch/build/consumer"
