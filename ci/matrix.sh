#!/usr/bin/env bash
# Tries collab with other versions of torch: each is installed from PyPI (the CUDA build, which runs on a CPU; 3 GB to
# fetch, 7 GB on disk) in a virtual environment of its own, collab is built beside it as docs/install.md says, and
# chosen tests run. A table at the end says how it went. Not in CI.
#
#   ci/matrix.sh VERSION...                      2.14.1 2.15.0, say: exact, for nothing here fetches another torch
#   PYTHON=python3.12 ci/matrix.sh VERSION...    with another Python
#   ci/matrix.sh VERSION... -- PYTEST-ARGUMENT... those tests of Python instead
#
# Environment and logs are in build/matrix/TORCH-PYTHON, the build beside it. The logs stay; with KEEP=1 everything stays,
# for further work.
. "$(dirname "$0")/common.sh"

# The drop-in, torch's internals, collectives, sites against plain torch, and torchrun.
tests=(test_torch_compat.py test_guest.py test_capture.py test_build.py::test_the_built_extension_loads_no_cuda
  test_collectives.py test_collective_semantics.py test_oracles.py
  test_torchrun.py::test_two_nodes_are_one_world_and_a_third_joins_late)
arguments=("${tests[@]/#/tests/python/}" -k "not ucx")

versions=()
while [ $# -gt 0 ]; do
  case "$1" in
    --)
      shift
      [ $# -eq 0 ] || arguments=("$@")
      break
      ;;
    [0-9]*.[0-9]*.[0-9]*) versions+=("$1") ;;
    *) die "expected versions of torch such as 2.14.1, got $1" ;;
  esac
  shift
done
[ ${#versions[@]} -gt 0 ] || die "which versions of torch? See the head of $0"
python="${PYTHON:-$(find_python)}"
release="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
unset PYTHONPATH
rows=()
failed=0

# step NAME COMMAND...: runs it, its output into a log. `went` says "ok 12 s" or "FAILED 12 s".
step() {
  local log="$folder/$1.log" begin=$SECONDS verdict=ok
  say "torch $version, Python $release: $1"
  shift
  if ! "$@" >"$log" 2>&1; then
    verdict=FAILED
    failed=1
    tail -n 40 "$log"
    echo "all of it: $log"
  fi
  went="$verdict $((SECONDS - begin)) s"
  echo "$went"
}

# Uses a folder as deep as that of the tests' build, so that ccache recognises the core.
build_collab() {
  nice python -m pip install --disable-pip-version-check --no-build-isolation --no-deps -v --config-settings build-dir="$build" \
    --config-settings cmake.define.BUILD_TESTING=ON --config-settings cmake.define.COLLAB_BUILD_TESTS=ON --config-settings cmake.define.COLLAB_WITH_UCX=OFF . &&
    python -c 'import torch; from torch_collab import _C; print(torch.__version__, torch.version.cuda, _C.build_info())'
}

# Runs the adapter's C++ tests.
test_cpp() {
  nice cmake --build "$build" --target torch_test torch_gloo_transport_test &&
    ctest --test-dir "$build" -L torch --no-tests=error --output-on-failure
}

# "120 passed, 3 deselected", from pytest's last line.
counted() { tail -n 1 "$folder/pytest.log" | sed -nE 's/^=* ?([0-9].*) in [0-9].*$/\1/p'; }

try_version() {
  local went row="$version|$release"
  folder="$root/build/matrix/$version-$release"
  build="$root/build/matrix-$version-$release"
  mkdir -p "$folder"
  step install environment_of_torch "$version" "$python" "$folder"
  local PATH="$folder/venv/bin:$PATH" VIRTUAL_ENV="$folder/venv"
  export PATH VIRTUAL_ENV
  if [[ "$went" == ok* ]]; then
    step build build_collab
    row+="|$went"
  else
    row+="|not installed"
  fi
  if [[ "$went" == ok* ]]; then
    step pytest python -m pytest --durations=10 "${arguments[@]}"
    row+="|Python $went: $(counted)"
    step ctest test_cpp
    row+=", C++ $went"
  fi
  rows+=("$row")
}

for version in "${versions[@]}"; do
  try_version
  [ "${KEEP:-}" = 1 ] || rm -rf "$folder/venv" "$build"
done

say "tried"
{
  echo "torch|Python|build|tests"
  printf '%s\n' "${rows[@]}"
} | column -t -s '|'
exit "$failed"
