#!/usr/bin/env bash
# Builds the source distribution, from it the wheel in a folder that is then removed, installs that in a fresh virtual
# environment, and trains there: the wheel needs neither the source tree nor .venv's collab.
. "$(dirname "$0")/common.sh"
use_venv

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

say "source distribution and wheel"
python -m build --no-isolation --sdist --outdir "$scratch/dist" .
mkdir "$scratch/source"
tar -xzf "$scratch"/dist/torch_collab-*.tar.gz -C "$scratch/source" --strip-components=1
CCACHE_BASEDIR="$scratch/source" python -m pip wheel --no-build-isolation --no-deps -C build-dir=build/wheel -w "$scratch/dist" "$scratch/source"
rm -rf "$scratch/source"

say "fresh virtual environment"
python -m venv --without-pip "$scratch/venv"
site="$("$scratch/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
# torch and the rest are linked rather than installed again; everything but collab itself.
for entry in "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"/*; do
  case "$(basename "$entry")" in
    torch_collab* | __pycache__) ;;
    *) ln -s "$entry" "$site/" ;;
  esac
done
python -m pip --python "$scratch/venv/bin/python" install --no-deps --no-index "$scratch"/dist/torch_collab-*.whl

say "what was installed works from anywhere"
cp tests/install/wheel_check.py "$scratch/"
cd "$scratch"
env -u PYTHONPATH -u VIRTUAL_ENV PATH="$scratch/venv/bin:$PATH" "$scratch/venv/bin/python" wheel_check.py
"$scratch/venv/bin/collab" doctor
