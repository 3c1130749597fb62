#!/usr/bin/env bash
# The protocol in simulation, SEEDS fresh seeds (default 10000), on all processors; a failure prints its replay command.
#
#   ci/soak.sh [SEEDS] [FIRST]
. "$(dirname "$0")/common.sh"
seeds="${1:-10000}"
first="${2:-$(date +%s%N)}"
cmake --preset debug -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCOLLAB_WITH_UCX=OFF -B build/soak
cmake --build build/soak --target collab_sim
jobs="$(nproc)"
share=$(((seeds + jobs - 1) / jobs))
pids=()
for ((job = 0; job < jobs; ++job)); do
  build/soak/tests/sim/collab_sim --seed $((first + job * share)) --count "$share" &
  pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
[ "$failed" -eq 0 ] || die "some seeds failed: the commands above run them again"
