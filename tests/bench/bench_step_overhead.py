"""What a training step costs more under collab than under torch's Gloo: one site of two ranks, steps of about 100 ms.

    python tests/bench/bench_step_overhead.py [--pairs 20] [--steps 20] [--out out/bench/step_overhead.json]

Two worlds of two pinned processes, the same script but for the backend's name, take turns in blocks of steps; a block's
time is that of its slower rank. With the default of a round every 100 steps, every fifth block of collab holds one.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pairs


def worker() -> None:
    import os

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group(os.environ["BENCH_BACKEND"])
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))  # 6.3 M parameters, 25 MB of gradients a step
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    for question in pairs.questions():
        inputs = torch.randn(int(question["batch"]), 1024)  # type: ignore[call-overload]
        start = time.perf_counter()
        for _ in range(int(question["steps"])):  # type: ignore[call-overload]
            model(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        pairs.answer(seconds=time.perf_counter() - start)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description="Per-step overhead of collab against Gloo DDP.")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20, help="in a block")
    parser.add_argument("--out", type=Path, default=Path("out/bench/step_overhead.json"))
    args = parser.parse_args()

    ranks = [{"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "COLLAB_SITE": "one"} for rank in range(2)]
    worlds = {name: pairs.World(__file__, 2, {"BENCH_BACKEND": name}, ranks) for name in ("collab", "gloo")}

    def block(name: str, batch: int, steps: int) -> float:
        return max(answer["seconds"] for answer in worlds[name].ask(batch=batch, steps=steps))

    try:
        batch = 128
        for _ in range(3):  # towards 100 ms a step
            block("gloo", batch, 3)
            batch = max(8, min(4096, round(batch * 0.1 / (block("gloo", batch, 5) / 5))))
        seconds: dict[str, list[float]] = {"collab": [], "gloo": []}
        for name in seconds:
            block(name, batch, args.steps)  # warm
        for pair in range(args.pairs):
            for name in ("collab", "gloo") if pair % 2 == 0 else ("gloo", "collab"):
                seconds[name].append(block(name, batch, args.steps) / args.steps)
    finally:
        for world in worlds.values():
            world.close()
    rows = [pairs.row("a step, collab against Gloo DDP", seconds["collab"], seconds["gloo"], 1.01)]
    sys.exit(not pairs.report("step_overhead", rows, args.out))


if __name__ == "__main__":
    worker() if "--worker" in sys.argv else main()
