#!/usr/bin/env bash
# Checks the form: C++ and Python formatting, ruff, mypy, and the project's own rules (ci/tidy.py).
. "$(dirname "$0")/common.sh"
use_venv

failed=0
check() {
  echo "-- ${*:1:4}$([ $# -le 4 ] || echo " and $(($# - 4)) more")"
  "$@" || failed=1
}

mapfile -t cpp < <(find include plugin tests -name '*.h' -o -name '*.cpp' | sort)
check clang-format-14 --dry-run -Werror "${cpp[@]}"
check ruff check .
check ruff format --check .
check mypy
check python ci/tidy.py
exit "$failed"
