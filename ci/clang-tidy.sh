#!/usr/bin/env bash
# clang-tidy over the torch-free core; twenty minutes on two cores, so not part of ci/test.sh.
. "$(dirname "$0")/common.sh"
install_packages clang-16 clang-tidy-16
cmake --preset debug -DCMAKE_CXX_COMPILER=clang++-16 -B build/clang-tidy
find plugin/core plugin/transport plugin/tools -name '*.cpp' -not -path '*/gloo/*' -print0 |
  xargs -0 -n 4 -P "$(nproc)" clang-tidy-16 -p build/clang-tidy --quiet --warnings-as-errors='*'
