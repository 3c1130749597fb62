#!/usr/bin/env bash
# The protocol in simulation, SEEDS fresh seeds (default 10000), on all processors, and a tenth as many with one site that
# lies or claims what is not so; a failure prints its replay command.
# With `sites`: real processes under torchrun that come and go for so many seconds (default 600).
# With `explore`: the agreement's machines through every order of few delays and crashes, up to so many states from each
# of the four starts (default a million).
# With `hostile`: one peer that attacks real swarms as fast as it can, for so many seconds in all (default an hour).
#
#   ci/soak.sh [SEEDS] [FIRST]
#   ci/soak.sh explore [STATES]
#   ci/soak.sh sites [SECONDS]
#   ci/soak.sh hostile [SECONDS]
. "$(dirname "$0")/common.sh"
if [ "${1-}" = sites ]; then
  ci/setup.sh
  use_venv
  export COLLAB_SOAK_SECONDS="${2:-600}"
  exec python -m pytest -s tests/python/test_elastic.py -k come_and_go
fi
if [ "${1-}" = hostile ]; then
  ci/setup.sh
  use_venv
  cmake --preset release
  cmake --build build/release --target collab_hostile
  export COLLAB_HOSTILE_SECONDS="${2:-3600}"
  exec python -m pytest -s tests/python/test_hostile.py
fi
if [ "${1-}" = explore ]; then
  cmake --preset debug -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCOLLAB_WITH_UCX=OFF -B build/soak
  cmake --build build/soak --target collab_explorer
  failed=0
  for start in "agreed" "split" "joining" "fresh" "agreed --fragments 2"; do
    # shellcheck disable=SC2086  # a name and its option
    build/soak/tests/sim/explorer/collab_explorer --start $start --kinds krwlxq --beyond --states "${2:-1000000}" || failed=1
  done
  [ "$failed" -eq 0 ] || die "some schedules went wrong: the commands above run them again"
  exit 0
fi
seeds="${1:-10000}"
first="${2:-$(date +%s%N)}"
cmake --preset debug -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCOLLAB_WITH_UCX=OFF -B build/soak
cmake --build build/soak --target collab_sim collab_sim_mutants
jobs="$(nproc)"
share=$(((seeds + jobs - 1) / jobs))
pids=()
for ((job = 0; job < jobs; ++job)); do
  build/soak/tests/sim/collab_sim --seed $((first + job * share)) --count "$share" &
  pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
# A member that lies, and one that claims rounds that nobody has agreed on, are drawn with no other fault.
for liar in "lie" "claim --rounds 20"; do
  # shellcheck disable=SC2086  # a name and its option
  build/soak/tests/sim/collab_sim --first "$first" --count $((seeds / 20 + 1)) --sites 4 --candidates 1 --hubs 0 --faults $liar || failed=1
done
build/soak/tests/sim/collab_sim_mutants --hunt --first "$first" || failed=1  # 500 seeds each; the lines above name those not found
[ "$failed" -eq 0 ] || die "some seeds failed, or some planted bugs were not found: see above"
