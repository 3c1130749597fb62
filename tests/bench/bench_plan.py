"""What `collab plan` says of a round, beside what rounds took over the same lines of `collab lab`.

    python tests/bench/bench_plan.py [--lines fast near slight thin] [--rounds 3] [--millions 25] [--codec fp16]

Each line is two sites of equal lines. Medians of warm rounds; wanted is a plan within 10 % of the exchange that is
measured, on a machine that does nothing else. Needs what `collab lab` needs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import lab_worlds
import pairs
from bench_wan import WARM_SECONDS
from bench_wan import worker as train
from torch_collab.planning import costs, measured, presets
from torch_collab.planning.lines import Between, parse_sites
from torch_collab.planning.parameters import Model

SITES = ("s0", "s1")
# Mbit/s both ways, RTT in ms, loss in percent.
LINES = {
    "fast": ("1000", 10.0, 0.0),
    "near": ("100", 50.0, 0.0),
    "slight": ("100", 100.0, 0.1),
    "thin": ("20", 100.0, 0.0),
}
WITHIN = 0.10


def planned(name: str, args: argparse.Namespace) -> costs.Cost:
    rate, rtt, loss = LINES[name]
    settings = presets.of_knobs({"codec": args.codec})
    return costs.local_sgd(
        name, settings, parse_sites(["2"], rate), Between(rtt / 1e3, loss / 100), Model(int(args.millions * 1e6)), 1.0
    )


def measure(name: str, seconds: float, args: argparse.Namespace) -> measured.Measured:
    rate, rtt, loss = LINES[name]
    warm = min(10, max(2, round(WARM_SECONDS / seconds)))
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "BENCH_BACKEND": "collab",
            "BENCH_ELEMENTS": int(args.millions * 1e6),
            "BENCH_ROUNDS": args.rounds,
            "BENCH_WARM": warm,
            "BENCH_RESULT": folder + "/{site}.json",
            "COLLAB_EVENTS_FILE": folder + "/{site}.jsonl",
            "COLLAB_CODEC": args.codec,
            "COLLAB_SYNC_EVERY": 1000000,
        }
        lab_worlds.run(__file__, [rate] * len(SITES), rtt, loss, environment, args.limit)
        # Round events of those that were warm alone: the first is of the sites' coming together.
        for site in SITES:
            file = Path(folder, f"{site}.jsonl")
            rounds = [line for line in file.read_text().splitlines() if '"exchange_seconds"' in line]
            file.write_text("\n".join(rounds[: 1 + warm + args.rounds][-args.rounds - measured.COLD :]) + "\n")
        return measured.read([Path(folder, f"{site}.jsonl") for site in SITES])


def compare(name: str, args: argparse.Namespace) -> dict[str, Any]:
    plan = planned(name, args)
    run = measure(name, plan.exchange, args)
    row = {
        "line": name,
        "planned": {"exchange": plan.exchange, "round": plan.round, "megabytes": plan.bytes_up[0] / 1e6},
        "measured": {"exchange": run.exchange, "round": run.round, "megabytes": run.bytes_sent / 1e6},
    }
    row["off"] = plan.exchange / run.exchange - 1
    row["met"] = abs(row["off"]) <= WITHIN
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", nargs="+", choices=LINES, default=list(LINES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--millions", type=float, default=25, help="of parameters")
    parser.add_argument("--codec", default="fp16")
    parser.add_argument("--limit", type=float, default=600, help="seconds a line may take")
    parser.add_argument("--out", type=Path, default=Path("out/bench/plan.json"))
    args = parser.parse_args()
    rows = []
    load = os.getloadavg()[0]
    print(f"plan: {pairs.machine()}; load {load:.1f} at the start")
    for name in args.lines:
        row = compare(name, args)
        rows.append(row)
        rate, rtt, loss = LINES[name]
        plan, run = row["planned"], row["measured"]
        print(
            f"  {name:<7} {rate} Mbit/s, {rtt:g} ms, {loss:g} % loss: exchange planned {plan['exchange']:.2f} s, "
            f"measured {run['exchange']:.2f} s ({row['off']:+.1%}: {'met' if row['met'] else 'MISSED'}); round "
            f"{plan['round']:.2f} s, {run['round']:.2f} s; {plan['megabytes']:.1f} MB, {run['megabytes']:.1f} MB",
            flush=True,
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    report = {"benchmark": "plan", "machine": pairs.machine(), "load": load, "codec": args.codec, "rows": rows}
    report["median_off"] = statistics.median(abs(row["off"]) for row in rows)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"  -> {args.out}")
    return int(not all(row["met"] for row in rows))


if __name__ == "__main__":
    if "--worker" in sys.argv:
        train()
    else:
        sys.exit(main())
