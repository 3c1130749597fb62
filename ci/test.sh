#!/usr/bin/env bash
# Sets up, builds and runs the tests: C++, the model of the agreement, Python, documents, lint.
#
#   ci/test.sh          every test (about an hour on two cores)
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

# part NAME COMMAND...: runs the command, keeps its output, notes the result.
part() {
  local name="$1" begin=$SECONDS verdict=ok
  shift
  say "$name"
  "$@" 2>&1 | tee "$logs/$name.log" || verdict=FAILED
  printf '%-12s %-7s %4d s\n' "$name" "$verdict" $((SECONDS - begin)) >"$logs/$name.result"
}

last_match() { { [ -f "$logs/$1.log" ] && grep -E "$2" "$logs/$1.log" | tail -n 1; } || echo "no summary: see $logs/$1.log"; }

rm -f "$logs"/*.log "$logs"/*.result
part setup ci/setup.sh
! grep -q FAILED "$logs/setup.result" || die "the set-up failed; nothing can be tested (see above)"
use_venv

# The Python tests mostly wait, for processes to start and graces to pass. The spare processor time goes to the
# build, whose attacker the last tests need (test_hostile.py), and to parts that measure no time.
part configure cmake --preset ci
beside() {
  renice -n 19 "$BASHPID"
  # Not through cmake, which would leave ninja running when it is ended.
  ninja -C build/wheel collab_hostile && ninja -C build/wheel ||
    echo "the build beside the tests failed; it goes on after them, and says with what"
  part lint ci/lint.sh
  part docs ci/docs.sh
  part model ci/model.sh
}
set -m # its own process group, so that all of it can be ended
beside </dev/null >"$logs/beside.log" 2>&1 &
beside=$!
set +m
trap '[ -z "$(jobs -r)" ] || kill -- "-$beside"' EXIT
workers=()
[ "$(id -u)" -ne 0 ] || workers=(-n 3 --maxschedchunk=1) # three tests at a time (tests/python/turns.py)
part pytest env TEST_ATTACKER=built python -m pytest "${workers[@]}" --durations=15 --junitxml="$logs/pytest.xml"
say "lint, docs and model, beside them"
if ! wait "$beside"; then printf '%-12s FAILED\n' beside >"$logs/beside.result"; fi
tail -n 5 "$logs"/{lint,docs,model}.log || echo "cut off: see $logs/beside.log"
part build cmake --build --preset ci
part ctest ctest --preset ci --no-tests=error
if [ "$full" = yes ]; then
  part asan ci/asan.sh
  part tsan ci/tsan.sh
  part install ci/install.sh
  part wheel ci/wheel.sh
fi

say "summary"
cat $(ls -tr "$logs"/*.result)
# C++ failures are far above, between the tests that passed.
[ ! -f "$logs/ctest.log" ] || grep -E -A 6 ': Failure$|ERROR: |SUMMARY: |^\[  FAILED  \]' "$logs/ctest.log" | head -n 40 || :
last_match pytest '^[0-9]+ tests? passed at a second try'
last_match ctest 'tests passed'
last_match pytest '^=+ .*(passed|failed|error|no tests ran).* =+$'
! grep -q FAILED "$logs"/*.result
