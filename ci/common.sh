# Sourced by every script here: the tree's root, functions for messages, the Python to use.
# shellcheck shell=bash
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

# One cache serves every clone and every build folder of it.
export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1
# The compiler's name as scikit-build-core writes it, too: the cache treats another name as another compiler.
export CXX="${CXX:-g++}"

say() { printf '\n== %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# The project's own Python; scripts that need it call this after ci/setup.sh has run.
use_venv() {
  [ -x .venv/bin/python ] || die "there is no .venv yet: run ci/setup.sh first"
  # shellcheck disable=SC1091
  . .venv/bin/activate
}

# configure_and_build PRESET [TARGET...]
configure_and_build() {
  local preset="$1"
  shift
  cmake --preset "$preset"
  cmake --build --preset "$preset" ${1+--target "$@"}
}

# A Python 3.11 with headers that can make virtual environments; the first one on PATH may lack these.
find_python() {
  local candidate
  for candidate in python3.11 /usr/bin/python3.11 python3 /usr/bin/python3; do
    if "$candidate" - 2>/dev/null <<'PROBE'
import ensurepip, os, sys, sysconfig, venv
sys.exit(not (sys.version_info[:2] == (3, 11) and os.path.exists(sysconfig.get_path("include") + "/Python.h")))
PROBE
    then
      echo "$candidate"
      return
    fi
  done
  die "no Python 3.11 with venv and headers was found (tried python3.11 and python3, on PATH and in /usr/bin)"
}

# environment_of_torch VERSION PYTHON FOLDER: FOLDER/venv with that torch from PyPI, and what pyproject.toml wants besides
# to build and test collab without isolation. The constraint replaces those of this machine's pip.
environment_of_torch() {
  local version="$1" python="$2" folder="$3"
  [ ! -f "$folder/venv/installed" ] || return 0
  rm -rf "$folder/venv" && mkdir -p "$folder" &&
    "$python" -m venv "$folder/venv" &&
    echo "torch==$version" >"$folder/torch.txt" &&
    PIP_CONSTRAINT="$folder/torch.txt" "$folder/venv/bin/python" -m pip install --disable-pip-version-check \
      "torch==$version" numpy "scikit-build-core>=0.11" "pybind11>=2.13" "libucx-cu12>=1.18" hypothesis pytest pytest-timeout pytest-rerunfailures &&
    touch "$folder/venv/installed"
}

# Installs the Debian packages that are still missing.
install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    echo "all $# system packages are there"
    return
  fi
  echo "missing: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "installing ${missing[*]} needs root: install sudo, or install them by hand"
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}
