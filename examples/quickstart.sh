#!/usr/bin/env bash
# Trains a small GPT on the text of Python's standard library at two sites over a thin emulated line, with collab and with
# DDP over Gloo, and at one of the sites alone, each for the same time. It ends with a table and out/quickstart/loss.png,
# the loss on held-out text over time. About three minutes on two cores; needs no network once set up.
#
# The line is that of `collab lab`, which wants root or user namespaces. Where it may not run, a small GPT-2 is
# fine-tuned three ways without one, in seven minutes, and the picture is of the training loss:
#   a  alone: one process on one core
#   b  two sites, each with one core and half of every batch, averaging their models every 40 steps (collab)
#   c  the two halves of b, each on its own and never talking: the fastest this machine can do
#
# examples/quickstart.sh [--quick] [--no-lab] [--no-setup] [--out DIR]
#   --quick     a minute of the same, to see that everything works; its figures mean nothing
#   --no-lab    as where the lab may not run
#   --no-setup  use the Python environment as it is (.venv in the root, or $PYTHON)
set -euo pipefail
cd "$(dirname "$0")/.."

setup=yes lab=yes out=out/quickstart
# On this line a step's gradients take three seconds, and a round about two.
line=(--line 20 --rtt 60 --loss 0) training=(--seconds 45 --look 3 --batch 4)
batch=128
model=(--data stdlib --size nano --context 64)
pretraining=(--steps 500 --lr 3e-3 --warmup 20 --seed 0)
# With so few steps, sites average more often than by default.
steps=160 tuning=(--lr 4e-4 --warmup 10) sync=40
while [ $# -gt 0 ]; do
  case $1 in
    --quick)
      training=(--seconds 10 --look 1 --size nano --batch 4 --eval-samples 32)
      pretraining+=(--steps 10) steps=20 sync=10 batch=8 model+=(--eval-samples 64)
      ;;
    --no-lab) lab=no ;;
    --no-setup) setup=no ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
  esac
  shift
done

[ "$setup" = no ] || ci/setup.sh --run
python=${PYTHON:-.venv/bin/python}
"$python" -c "import torch_collab, transformers" || {
  echo "quickstart: $python lacks torch_collab or transformers; run ci/setup.sh" >&2
  exit 1
}

if [ "$lab" = yes ] && refused=$("$python" -m torch_collab.cli lab --check 2>&1); then
  rm -rf "$out"/{alone,ddp,collab}-0 "$out"/{settings,table}.json "$out"/{table.md,loss.png}
  exec "$python" examples/compare.py --out "$out" --ways alone ddp collab --seeds 1 "${line[@]}" "${training[@]}"
fi
[ "$lab" = no ] || printf 'quickstart: without the emulated line: %s\n' "$refused" >&2
command -v taskset >/dev/null || { echo "quickstart: taskset is missing (Debian, Ubuntu: util-linux)" >&2; exit 1; }

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
  set +e # a stopped child exits with an error status
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
  pids=()
}
trap stop_children EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start LOG CPUS RANKS torchrun-arguments…: one torchrun, pinned, in the background.
start() {
  local log=$1 cpus=$2 ranks=$3
  shift 3
  date +%s.%N >"${log%.log}.launched"
  taskset -c "$cpus" "$python" -m torch.distributed.run --nproc-per-node="$ranks" --local-addr=127.0.0.1 "$@" \
    >"$log" 2>&1 &
  pids+=($!) logs+=("$log")
}

# finish LABEL LOSSES: waits for all started processes; the first failure stops the rest and shows its log.
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
    [ ! -t 1 ] || printf '\r%-34s step %s ' "$1" "$(grep -c '"step":' "$2" 2>/dev/null || true)"
    sleep 0.5
  done
  logs=()
  [ ! -t 1 ] || printf '\r'
  printf '%-34s done, %s s in all\n' "$1" "$((SECONDS - begun))"
}

export COLLAB_SYNC_EVERY=$sync GLOO_SOCKET_IFNAME=lo HF_HUB_OFFLINE=1
mkdir -p "$out"
rm -f "$out"/{start,[abc]*}.{jsonl,log,launched,events,pt} "$out"/loss.png

example=(examples/gpt2_ddp.py "${model[@]}")
begun=$SECONDS
start "$out/start.log" "$cpu_a,$cpu_b" 2 --standalone "${example[@]}" "${pretraining[@]}" \
  --backend gloo --batch "$batch" --checkpoint "$out/start.pt" --log-file "$out/start.jsonl"
finish "   the model to fine-tune" "$out/start.rank0.jsonl"

example+=("${tuning[@]}" --steps "$steps" --init "$out/start.pt")
alone=(--standalone "${example[@]}" --backend gloo)
begun=$SECONDS
start "$out/a.log" "$cpu_a" 1 "${alone[@]}" --batch "$batch" --seed 1 --log-file "$out/a.jsonl"
finish "a  alone" "$out/a.rank0.jsonl"

begun=$SECONDS
# Not an ephemeral port: an outgoing connection could take it before torchrun listens there.
port=$("$python" - <<'PY'
import socket
for port in range(29400, 30000):
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        continue
    print(port)
    break
PY
)
join=(--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint="127.0.0.1:$port" --rdzv-id=quickstart)
both=("${join[@]}" "${example[@]}" --batch "$batch" --seed 1 --log-file "$out/b.jsonl")
for site in a b; do
  cpu=cpu_$site
  COLLAB_SITE=$site COLLAB_EVENTS_FILE=$out/b-$site.events start "$out/b-$site.log" "${!cpu}" 1 "${both[@]}"
done
finish "b  two sites, averaging" "$out/b.rank0.jsonl"

begun=$SECONDS
alone+=(--batch $((batch / 2)))
start "$out/c-a.log" "$cpu_a" 1 "${alone[@]}" --seed 1 --log-file "$out/c-a.jsonl"
start "$out/c-b.log" "$cpu_b" 1 "${alone[@]}" --seed 2 --log-file "$out/c-b.jsonl"
finish "c  two sites, never talking" "$out/c-a.rank0.jsonl"

"$python" examples/plot.py "$out"
