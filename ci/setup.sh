#!/usr/bin/env bash
# Makes this tree ready: system packages, a virtual environment in .venv, torch, and collab built and installed in it.
#
#   ci/setup.sh          everything, for development and tests
#   ci/setup.sh --run    only what running collab and the examples needs
#
# Safe to run again: installed parts are left alone. Needs Debian 12, whose package names it uses, and root or
# sudo to install missing ones. torch comes from the indexes pip is configured for. PyPI's is the CUDA build, several
# gigabytes; PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu adds the CPU build, which pip then prefers.
. "$(dirname "$0")/common.sh"

mode=all
case "${1-}" in
  "") ;;
  --run) mode=run ;;
  *) die "unknown argument $1; expected nothing or --run" ;;
esac

run_packages=(build-essential cmake ninja-build ccache libboost1.81-dev libboost-program-options1.81-dev
  libspdlog-dev libfmt-dev libxxhash-dev libssl-dev python3-dev python3-venv util-linux)
test_packages=(libgtest-dev libgmock-dev clang-format-14 iproute2 git spin)

make_venv() {
  if [ -x .venv/bin/python ] && .venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
    echo ".venv is there: $(.venv/bin/python --version)"
    return
  fi
  local python
  python="$(find_python)"
  echo "making .venv with $python"
  "$python" -m venv --clear .venv
}

# Installs the pins, unless exactly these are installed. Python compiles a module at its first import. Most of these
# modules are never imported, and compiling all of them takes longer than unpacking them.
install_pins() {
  local requirements="$1" stamp=".venv/installed-$2" digest
  digest="$(cat ci/requirements-run.txt "$requirements" | sha256sum)"
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$digest" ]; then
    echo "$requirements is installed"
    return
  fi
  rm -f "$stamp" # an interrupted installation must not count as complete
  python -m pip install --disable-pip-version-check --no-compile -r "$requirements"
  echo "$digest" >"$stamp"
}

# Packages for the tests of third-party frameworks. Not in site-packages, where transformers would load half of them
# in every other test. PyPI's torchvision is built for a torch with CUDA, and fails on import beside another: it
# has a folder of its own, for the one test that uses it.
install_frameworks() {
  local requirements=ci/requirements-frameworks.txt folder=.venv/frameworks digest
  digest="$(sha256sum <"$requirements")"
  if [ -f "$folder/installed" ] && [ "$(cat "$folder/installed")" = "$digest" ]; then
    echo "$requirements is installed"
    return
  fi
  rm -rf "$folder"
  python -m pip install --disable-pip-version-check --no-deps --no-compile --target "$folder" -r "$requirements"
  mkdir "$folder/apart"
  mv "$folder"/torchvision* "$folder/apart/"
  echo "$digest" >"$folder/installed"
}

say "system packages"
if [ "$mode" = all ]; then
  install_packages "${run_packages[@]}" "${test_packages[@]}"
else
  install_packages "${run_packages[@]}"
fi

say "virtual environment"
make_venv
use_venv

say "Python packages"
if [ "$mode" = all ]; then
  install_pins ci/requirements.txt all
  install_frameworks
else
  [ -f .venv/installed-all ] || install_pins ci/requirements-run.txt run
fi

say "collab"
# Not isolated: the extension is compiled against the torch in .venv. The kept build folder makes the next build fast.
python -m pip install --disable-pip-version-check --no-build-isolation --no-deps --config-settings build-dir=build/wheel .
python -c 'import torch, torch_collab; print("torch", torch.__version__, "with torch_collab from", torch_collab.__path__[0])'
