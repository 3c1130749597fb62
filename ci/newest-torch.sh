#!/usr/bin/env bash
# PyPI's newest torch, or VERSION: installs it (the CUDA build, about 3 GB to fetch and 6 GB in $TMPDIR) in a fresh virtual
# environment without UCX, builds collab into it as docs/install.md says, and trains two sites on the CPU. Not in CI.
#
#   ci/newest-torch.sh [VERSION]
. "$(dirname "$0")/common.sh"
wanted="torch${1:+==$1}"
python="$(find_python)"

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch" "$root/build/newest-torch"' EXIT
unset PYTHONPATH
"$python" -m venv "$scratch/venv"
PATH="$scratch/venv/bin:$PATH" VIRTUAL_ENV="$scratch/venv"
export PATH VIRTUAL_ENV

say "$wanted"
# What pyproject.toml wants besides, for --no-build-isolation and --no-deps leave it to us.
python -m pip install --disable-pip-version-check "$wanted" numpy "scikit-build-core>=0.11" "pybind11>=2.13"

say "collab"
# Built beside the tests' build, so that ccache knows the core.
rm -rf build/newest-torch
if ! python -m pip install --disable-pip-version-check --no-build-isolation --no-deps -v -C build-dir=build/newest-torch . >"$scratch/build.log" 2>&1; then
  cat "$scratch/build.log"
  die "collab was not built for $wanted"
fi
grep -E -- "-- collab:|warning:|Successfully installed" "$scratch/build.log"

cd "$scratch" # what was installed is what runs
say "what it is"
python - <<'PROBE'
import subprocess

import torch
from torch_collab import _C

told = subprocess.run(["readelf", "-d", _C.__file__], check=True, capture_output=True, text=True).stdout
needed = [line.split("[")[1].rstrip("]") for line in told.splitlines() if "(NEEDED)" in line]
print("torch", torch.__version__, "with CUDA", torch.version.cuda, "- collab", _C.build_info())
print("the module needs", ", ".join(needed))
assert "libtorch_cpu.so" in needed and not [name for name in needed if "cuda" in name or name == "libtorch.so"], needed
PROBE

say "two sites under torchrun"
port="$(python -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')"
sites=(paris tokyo)
pids=()
for site in "${sites[@]}"; do
  COLLAB_SITE="$site" COLLAB_SYNC_EVERY=3 COLLAB_EVENTS_FILE="$scratch/$site.jsonl" COLLAB_JOIN_TIMEOUT=120s OMP_NUM_THREADS=1 \
    timeout 600 python -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --rdzv-backend=collab --rdzv-endpoint="127.0.0.1:$port" \
    --rdzv-id=newest "$root/tests/python/scripts/one_word.py" &
  pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
[ "$failed" -eq 0 ] || die "a site failed: see above"
python - "${sites[@]}" <<'CHECK'
import json, sys

sites = sys.argv[1:]
rounds = {}
for site in sites:
    events = [json.loads(line) for line in open(f"{site}.jsonl")]
    rounds[site] = [e for e in events if e["event"] == "round" and set(e["members"]) == set(sites)]
counts = {site: len(found) for site, found in rounds.items()}
assert min(counts.values()) >= 3, f"expected at least 3 rounds of both sites, got {counts}"
digests = {site: {e["round"]: e["digest"] for e in found} for site, found in rounds.items()}
assert len({str(found) for found in digests.values()}) == 1, f"the sites differ: {digests}"
last = rounds[sites[0]][-1]
print(f"{counts[sites[0]]} rounds of {', '.join(sites)} over {last['transport']}, the last one {last['round']}: {last['digest']}")
CHECK
