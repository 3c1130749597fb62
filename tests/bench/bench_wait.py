"""Tokens a second over a line between cities, of what the same machines train where they never talk.

    python tests/bench/bench_wait.py [--mbit 100] [--rtt 100] [--millions 25] [--step 0.3] [--out out/bench/wait.json]

Two sites of `collab lab`, steps that sleep as a GPU's do for the processor: without rounds, with `COLLAB_PRESET=wan`,
and DDP over Gloo, whose every step waits for the line. Of each the seconds of a step, over whole periods of the preset
(DDP: over a few steps); the share is that without rounds over it. Needs what `collab lab` needs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lab_worlds
import pairs

PERIOD = 32  # steps, of the preset
AT_LEAST = 0.97
WAYS = {
    "never": {"BENCH_BACKEND": "collab", "COLLAB_SYNC_EVERY": "1000000"},
    "wan": {"BENCH_BACKEND": "collab", "COLLAB_PRESET": "wan", "COLLAB_SYNC_EVERY": str(PERIOD)},
    "ddp": {"BENCH_BACKEND": "gloo"},
}


def worker() -> None:
    import torch
    import torch.distributed as dist
    from flat_model import FlatModel
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    backend, sleep = os.environ["BENCH_BACKEND"], float(os.environ["BENCH_STEP"])
    dist.init_process_group(backend)
    model = DistributedDataParallel(FlatModel(int(os.environ["BENCH_ELEMENTS"])), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(4, 1)

    def train(steps: int) -> float:
        begun = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            model(inputs).backward()
            time.sleep(sleep)
            optimizer.step()
        return (time.perf_counter() - begun) / steps

    train(int(os.environ["BENCH_WARM"]))
    spans = [train(int(os.environ["BENCH_STEPS"])) for _ in range(int(os.environ["BENCH_SPANS"]))]
    result: dict[str, Any] = {"step_seconds": spans}
    if backend == "collab":
        import torch_collab

        result["rounds"] = torch_collab.status()["round"]
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))
    dist.destroy_process_group()


def measure(way: str, args: argparse.Namespace) -> dict[str, Any]:
    """Of the slower site."""
    is_ddp = way == "ddp"
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "BENCH_ELEMENTS": int(args.millions * 1e6),
            "BENCH_STEP": args.step,
            "BENCH_WARM": 1 if is_ddp else 2 * PERIOD,
            "BENCH_STEPS": 1 if is_ddp else PERIOD,
            "BENCH_SPANS": args.spans,
            "BENCH_RESULT": folder + "/{site}.json",
            **WAYS[way],
        }
        lab_worlds.run(__file__, [f"{args.mbit:g}"] * 2, args.rtt, 0, environment, args.limit)
        sites = [json.loads(Path(folder, f"s{index}.json").read_text()) for index in range(2)]
    spans = [max(of) for of in zip(*(site["step_seconds"] for site in sites), strict=True)]
    low, middle, high = pairs.interval(spans)
    return {"way": way, "step_seconds": middle, "low": low, "high": high, "rounds": sites[0].get("rounds")}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mbit", type=float, default=100, help="of each site's line, both ways")
    parser.add_argument("--rtt", type=float, default=100, help="in ms")
    parser.add_argument("--millions", type=float, default=25, help="of parameters")
    parser.add_argument("--step", type=float, default=0.3, help="seconds that a step sleeps")
    parser.add_argument("--spans", type=int, default=7, help="periods that are timed; for DDP, steps")
    parser.add_argument("--limit", type=float, default=1200, help="seconds a way may take")
    parser.add_argument("--out", type=Path, default=Path("out/bench/wait.json"))
    args = parser.parse_args()
    print(f"wait: {pairs.machine()}", flush=True)
    rows = []
    for way in WAYS:
        rows.append(row := measure(way, args))
        row["share"] = rows[0]["step_seconds"] / row["step_seconds"]
        row["met"] = way != "wan" or (row["share"] >= AT_LEAST and row["rounds"] > 0)
        target = f", at least {AT_LEAST}: {'met' if row['met'] else 'MISSED'}" if way == "wan" else ""
        rounds = "" if row["rounds"] is None else f", {row['rounds']} rounds"
        print(
            f"  {way:<6} a step in {row['step_seconds']:.3f} s [{row['low']:.3f}, {row['high']:.3f}]{rounds}: "
            f"{row['share']:.3f} of never talking{target}",
            flush=True,
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"benchmark": "wait", "machine": pairs.machine(), "rows": rows}, indent=1) + "\n")
    return int(not all(row["met"] for row in rows))


if __name__ == "__main__":
    if "--worker" in sys.argv:
        worker()
    else:
        sys.exit(main())
