#!/usr/bin/env bash
# The protocol in simulation, SEEDS fresh seeds (default 10000), on all processors, and a tenth as many with one site that
# lies or claims what is not so; a failure prints its replay command.
# With `agreement`: 50,000 fresh seeds each of swarms of 2, 3 and 5 sites, and 500 of 50, of 40 rounds and more, with 3
# candidates and all faults: some hours. DIVISOR makes that many times fewer.
# With `sites`: real processes under torchrun that come and go for so many seconds (default 600).
# With `explore`: the agreement's machines through every order of few delays and crashes, up to so many states from each
# of the four starts (default a million).
# With `hostile`: one peer that attacks real swarms as fast as it can, for so many seconds in all (default an hour).
#
#   ci/soak.sh [SEEDS] [FIRST]
#   ci/soak.sh agreement [FIRST [DIVISOR]]
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
if [ "${1-}" = agreement ]; then
  first="${2:-$(date +%s%N)}"
  divisor="${3:-1}"
  cmake --preset debug -DCMAKE_BUILD_TYPE=Release -DCOLLAB_WITH_UCX=OFF -B build/soak-release
  cmake --build build/soak-release --target collab_sim
  blocks() {  # lines of --sites N --seed S --count C, a thousand or twenty-five at a time
    local block sites
    for ((block = 0; block < 50 / divisor; ++block)); do
      for sites in 2 3 5; do echo "--sites $sites --seed $((first + block * 1000)) --count 1000"; done
    done
    for ((block = 0; block < 20 / divisor; ++block)); do echo "--sites 50 --seed $((first + block * 25)) --count 25"; done
  }
  blocks | xargs -P "$(nproc)" -L 1 build/soak-release/tests/sim/collab_sim --candidates 3 --rounds 40 --faults all ||
    die "some seeds failed: the lines 'again' above replay them"
  exit 0
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
# Members that lie, or claim rounds that nobody agreed on, are simulated without other faults.
for liar in "lie --rounds 40" "claim --rounds 20"; do
  # shellcheck disable=SC2086  # a name and its option
  build/soak/tests/sim/collab_sim --first "$first" --count $((seeds / 20 + 1)) --sites 4 --candidates 1 --hubs 0 --faults $liar || failed=1
done
build/soak/tests/sim/collab_sim_mutants --hunt --first "$first" || failed=1  # 500 seeds each; the lines above name those not found
[ "$failed" -eq 0 ] || die "some seeds failed, or some planted bugs were not found: see above"
