#!/usr/bin/env bash
# Sets up, builds and runs the tests: C++, the model of the agreement, Python, documents, lint.
#
#   ci/test.sh          every test (about fifty minutes on two cores)
#   ci/test.sh --full   then the sanitizers, the installed core and the wheel too
#
# A part that fails does not stop the others; the exit status is that of all. Logs are in build/ci.
. "$(dirname "$0")/common.sh"

full=no
case "${1-}" in
  "") ;;
  --full) full=yes ;;
  *) die "unknown argument $1; expected nothing or --full" ;;
esac

logs="$root/build/ci"
mkdir -p "$logs"
results=()
failed=0

# part NAME COMMAND...: runs it, keeps its output, notes how it went.
part() {
  local name="$1" begin=$SECONDS verdict=ok
  shift
  say "$name"
  if ! "$@" 2>&1 | tee "$logs/$name.log"; then
    verdict=FAILED
    failed=1
  fi
  results+=("$(printf '%-12s %-7s %4d s' "$name" "$verdict" $((SECONDS - begin)))")
}

last_match() { { [ -f "$logs/$1.log" ] && grep -E "$2" "$logs/$1.log" | tail -n 1; } || echo "no summary: see $logs/$1.log"; }

rm -f "$logs"/*.log
part setup ci/setup.sh
[ "$failed" -eq 0 ] || die "the set-up failed; nothing can be tested (see above)"
use_venv

# The Python tests mostly wait, for processes to start and graces to pass, and need one program of the build. The rest is
# built from what they leave of the processors.
part attacker configure_and_build ci collab_hostile
nice -n 19 ninja -C build/wheel >"$logs/beside.log" 2>&1 & # not by cmake, which would leave ninja behind when it ends
beside=$!
trap '[ -z "$(jobs -r)" ] || kill "$beside"' EXIT
workers=()
[ "$(id -u)" -ne 0 ] || workers=(-n 3) # three tests at a time (tests/python/turns.py)
part pytest python -m pytest "${workers[@]}" --durations=15
if ! wait "$beside"; then say "the build beside the tests failed; it goes on, and says with what"; fi
part build cmake --build --preset ci
part ctest ctest --preset ci --no-tests=error
part model ci/model.sh
part docs ci/docs.sh
part lint ci/lint.sh
if [ "$full" = yes ]; then
  part asan ci/asan.sh
  part tsan ci/tsan.sh
  part install ci/install.sh
  part wheel ci/wheel.sh
fi

say "summary"
printf '%s\n' "${results[@]}"
last_match pytest '^[0-9]+ tests? passed at a second try'
last_match ctest 'tests passed'
last_match pytest '^=+ .*(passed|failed|error|no tests ran).* =+$'
exit "$failed"
