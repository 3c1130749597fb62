"""What COLLAB_SYNC_EVERY=auto comes to over lines of `collab lab`: how long training waits, and the period it chooses.

    python tests/bench/bench_auto.py [--lines fast near slight thin] [--target 0.02] [--out out/bench/auto.json]

Two sites train; their steps sleep, as a GPU's do for the processor. Of the last rounds: the share of the time in which
a site stood still (`waits`), the period in force, and the shortest with which those rounds, as long as their median,
would have kept to the target. Wanted are `waits` within `--target`, and a period of at most 1.25 times the shortest.
`--overlap` runs rounds behind the training: then `waits` is what is left, and the shortest is the one with which a
round ends before the next is due. Needs what `collab lab` needs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lab_worlds

# Mbit/s both ways, RTT in ms, loss in percent
LINES = {
    "fast": ("1000", 10, 0),
    "near": ("100", 50, 0),
    "slight": ("100", 100, 0.1),
    "thin": ("20", 100, 0),
}
MORE = 1.25  # a period, of the shortest that keeps to the target


def worker() -> None:
    import torch
    import torch.distributed as dist
    from flat_model import FlatModel
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    elements, rounds = int(os.environ["BENCH_ELEMENTS"]), int(os.environ["BENCH_ROUNDS"])
    step = float(os.environ["BENCH_STEP"])

    dist.init_process_group("collab")
    import torch_collab

    model = DistributedDataParallel(FlatModel(elements))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    begins: list[float] = []  # of the first step after each round
    steps: list[int] = []
    seen = -1
    while seen < rounds:
        model(torch.randn(4, 1)).backward()
        now = torch_collab.status()
        if now["round"] != seen:
            seen = now["round"]
            begins.append(time.time())
            steps.append(now["steps"])
        time.sleep(step)
        optimizer.step()
    told = [json.loads(line) for line in Path(os.environ["COLLAB_EVENTS_FILE"]).read_text().splitlines()]
    result = {"begins": begins, "steps": steps, "rounds": [event for event in told if event["event"] == "round"]}
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))
    dist.destroy_process_group()


def run(name: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    rate, rtt, loss = LINES[name]
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "BENCH_ELEMENTS": int(args.millions * 1e6),
            "BENCH_ROUNDS": args.rounds,
            "BENCH_STEP": args.step,
            "BENCH_RESULT": folder + "/{site}.json",
            "COLLAB_EVENTS_FILE": folder + "/{site}.jsonl",
            "COLLAB_CODEC": args.codec,
            "COLLAB_SYNC_EVERY": "auto",
            "COLLAB_TARGET_OVERHEAD": args.target,
            "COLLAB_OVERLAP": int(args.overlap),
        }
        lab_worlds.run(__file__, [rate] * 2, rtt, loss, environment, args.limit)
        return [json.loads(Path(folder, f"s{index}.json").read_text()) for index in range(2)]


def row(name: str, args: argparse.Namespace) -> dict[str, Any]:
    sites = run(name, args)
    last = [site["rounds"][-args.last :] for site in sites]
    stood = [[event["stall_seconds"] for event in events] for events in last]
    # Between the first steps after two rounds lie as many steps as the period says, and the round.
    spans = [
        [to - begin for begin, to in zip(site["begins"], site["begins"][1:], strict=False)][-args.last :]
        for site in sites
    ]
    waits = max(sum(of) / sum(spans[site]) for site, of in enumerate(stood))
    key = "overlap_seconds" if args.overlap else "stall_seconds"
    # The last site to be ready waits for nobody.
    round_seconds = statistics.median(min(pair) for pair in zip(*[[e[key] for e in es] for es in last], strict=True))
    trained = [site["steps"][-1] - site["steps"][-1 - args.last] for site in sites]
    step = max((sum(spans[site]) - sum(of)) / trained[site] for site, of in enumerate(stood))
    shortest = 1.05 * round_seconds / step + 1 if args.overlap else round_seconds / (args.target * step)
    chosen = last[0][-1]["period"]
    shortest = max(1, math.ceil(shortest))
    met = waits <= args.target and chosen <= MORE * shortest
    return {
        "line": name, "waits": waits, "chosen": chosen, "shortest": shortest, "met": met,
        "round_seconds": round_seconds, "step_seconds": step, "periods": [e["period"] for e in sites[0]["rounds"]],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="The period that the leader chooses over emulated lines.")
    parser.add_argument("--lines", nargs="+", choices=LINES, default=list(LINES))
    parser.add_argument("--target", type=float, default=0.02, help="COLLAB_TARGET_OVERHEAD")
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--millions", type=float, default=1, help="of parameters")
    parser.add_argument("--codec", default="fp16")
    parser.add_argument("--step", type=float, default=0.05, help="seconds that a step sleeps")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--last", type=int, default=4, help="rounds that are looked at")
    parser.add_argument("--limit", type=float, default=900, help="seconds a line may take")
    parser.add_argument("--out", type=Path, default=Path("out/bench/auto.json"))
    args = parser.parse_args()

    rows = []
    print(f"{'line':8} {'waits':>7} {'chosen':>7} {'shortest':>8} {'round s':>8} {'step s':>7}")
    for name in args.lines:
        rows.append(row(name, args))
        of = rows[-1]
        print(
            f"{name:8} {of['waits']:7.3f} {of['chosen']:7} {of['shortest']:8} {of['round_seconds']:8.3f} "
            f"{of['step_seconds']:7.3f}  {'met' if of['met'] else 'MISSED'}",
            flush=True,
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"bench": "auto", "target": args.target, "overlap": args.overlap, "rows": rows}))
    return int(not all(of["met"] for of in rows))


if __name__ == "__main__":
    if "--worker" in sys.argv:
        worker()
    else:
        sys.exit(main())
