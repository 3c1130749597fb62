#!/usr/bin/env bash
# Trains one small GPT-2 three ways on this machine, on the text of Python's standard library, and compares them:
#   a  alone: one process on one core
#   b  two sites, each with one core and half of every batch, averaging their models every 10 steps (collab)
#   c  the two halves of b, each on its own and never talking: the fastest this machine can do
# It ends with a table and out/quickstart/loss.png. About eight minutes on two cores; needs no network once set up.
#
# examples/quickstart.sh [--quick] [--no-setup] [--out DIR]
#   --quick     half a minute of the same, to see that everything works; its figures mean nothing
#   --no-setup  use the Python environment as it is (.venv in the root, or $PYTHON)
set -euo pipefail
cd "$(dirname "$0")/.."

setup=yes out=out/quickstart
model=(--data stdlib --size nano --context 64 --lr 3e-3 --seed 0)
# Few steps of large batches from random weights: sites drift apart quickly, so they average more often than by default.
steps=340 batch=128 warmup=40 sync=10
while [ $# -gt 0 ]; do
  case $1 in
    --quick) steps=20 batch=8 warmup=5 sync=10; model+=(--eval-samples 64) ;;
    --no-setup) setup=no ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
  esac
  shift
done

[ "$setup" = no ] || ci/setup.sh --run
python=${PYTHON:-.venv/bin/python}
command -v taskset >/dev/null || { echo "quickstart: taskset is missing (Debian, Ubuntu: util-linux)" >&2; exit 1; }
"$python" -c "import torch_collab, transformers" || {
  echo "quickstart: $python lacks torch_collab or transformers; run ci/setup.sh" >&2
  exit 1
}

# Two CPUs that are not hyperthreads of one core.
read -r cpu_a cpu_b < <("$python" - <<'PY'
import os
from pathlib import Path
seen = {}
for cpu in sorted(os.sched_getaffinity(0)):
    file = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    seen.setdefault(file.read_text() if file.exists() else cpu, cpu)
print(*list(seen.values())[:2])
PY
) || true
[ -n "${cpu_b:-}" ] || { echo "quickstart: it compares two sites of one core each; this machine lends only one core" >&2; exit 1; }

pids=() logs=()
stop_children() {
  set +e # a child that was stopped has a status of its own
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
  pids=()
}
trap stop_children EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start LOG CPU torchrun-arguments…: one torchrun, pinned, in the background.
start() {
  local log=$1 cpu=$2
  shift 2
  date +%s.%N >"${log%.log}.launched"
  taskset -c "$cpu" "$python" -m torch.distributed.run --nproc-per-node=1 --local-addr=127.0.0.1 "$@" >"$log" 2>&1 &
  pids+=($!) logs+=("$log")
}

# finish LABEL LOSSES: waits for all that was started; the first failure stops the rest and shows its log.
finish() {
  while [ ${#pids[@]} -gt 0 ]; do
    for i in "${!pids[@]}"; do
      kill -0 "${pids[i]}" 2>/dev/null && continue
      if ! wait "${pids[i]}"; then
        unset "pids[i]"
        printf '\nquickstart: %s failed; the end of %s:\n' "$1" "${logs[i]}" >&2
        tail -n 25 "${logs[i]}" >&2
        exit 1
      fi
      unset "pids[i]"
    done
    [ ! -t 1 ] || printf '\r%-34s step %s of %s ' "$1" "$(grep -c '"step"' "$2" 2>/dev/null || true)" "$steps"
    sleep 0.5
  done
  logs=()
  [ ! -t 1 ] || printf '\r'
  printf '%-34s done, %s s in all\n' "$1" "$((SECONDS - begun))"
}

export COLLAB_SYNC_EVERY=$sync GLOO_SOCKET_IFNAME=lo HF_HUB_OFFLINE=1
script=(examples/gpt2_ddp.py "${model[@]}" --steps "$steps" --warmup "$warmup")
half=$((batch / 2))
mkdir -p "$out"
rm -f "$out"/[abc]*.{jsonl,log,launched,events} "$out"/loss.png

begun=$SECONDS
start "$out/a.log" "$cpu_a" --standalone "${script[@]}" --backend gloo --batch "$batch" --log-file "$out/a.jsonl"
finish "a  alone" "$out/a.rank0.jsonl"

begun=$SECONDS
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
join=(--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint="127.0.0.1:$port" --rdzv-id=quickstart)
for site in a b; do
  cpu=cpu_$site
  COLLAB_SITE=$site COLLAB_EVENTS=$out/b-$site.events \
    start "$out/b-$site.log" "${!cpu}" "${join[@]}" "${script[@]}" --batch "$batch" --log-file "$out/b.jsonl"
done
finish "b  two sites, averaging" "$out/b.rank0.jsonl"

begun=$SECONDS
start "$out/c-a.log" "$cpu_a" --standalone "${script[@]}" --backend gloo --batch "$half" --log-file "$out/c-a.jsonl"
start "$out/c-b.log" "$cpu_b" --standalone "${script[@]}" --backend gloo --batch "$half" --seed 1 --log-file "$out/c-b.jsonl"
finish "c  two sites, never talking" "$out/c-a.rank0.jsonl"

"$python" examples/plot.py "$out"
