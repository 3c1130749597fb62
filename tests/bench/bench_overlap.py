"""Rounds behind the training: what is left of the speed of never talking, and what a merge costs.

    python tests/bench/bench_overlap.py [--share 0.8] [--millions 5] [--periods 6] [--out out/bench/overlap.json]

Two pinned processes, each a site, over tcp with a cap on what they send. First a blocking round is timed; a period of
training is then as many steps as let such a round take `--share` of it. The same steps are trained with rounds that
block, with rounds behind the training (COLLAB_OVERLAP=1), and without any, by turns; a row is the time with over that
without. The last row is of processor time, until the last round is over: what both processes take beyond training
without rounds, where rounds are behind the training, over the same where they block; both make as many rounds. The
steps sleep, as a GPU's do for the processor, so that two cores suffice. What a merge takes is `merge_bench` (a target
of CMake).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pairs

STEP_SECONDS = 0.05


def worker() -> None:
    import os

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    class Model(torch.nn.Module):
        """Tensors of a million parameters whose gradient is cheap."""

        def __init__(self, millions: int) -> None:
            super().__init__()
            self.parts = torch.nn.ParameterList(torch.randn(1000, 1000) for _ in range(millions))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum((part[0].mean() * x.sum() for part in self.parts), torch.zeros(()))

    torch.set_num_threads(1)
    dist.init_process_group("collab")
    model = DistributedDataParallel(Model(int(os.environ["BENCH_MILLIONS"])))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train_one_step() -> None:
        model(torch.randn(4, 1)).backward()
        time.sleep(STEP_SECONDS)
        optimizer.step()

    train_one_step()
    import torch_collab

    for question in pairs.questions():
        if question["what"] == "round":
            train_one_step()
            start, busy = time.perf_counter(), time.process_time()
            torch_collab.synchronize()
            seconds = time.perf_counter() - start
        else:
            torch_collab.synchronize()  # all begin at once, with a whole period ahead
            start, busy = time.perf_counter(), time.process_time()
            for _ in range(question["steps"]):
                train_one_step()
            seconds = time.perf_counter() - start
            torch_collab.synchronize()
        pairs.answer(seconds=seconds, processor=time.process_time() - busy)
    dist.destroy_process_group()


def world(args: argparse.Namespace, **environment: str) -> pairs.World:
    common = {
        "BENCH_MILLIONS": str(args.millions),
        "COLLAB_CODEC": "fp16",
        "COLLAB_TRANSPORT": "tcp",
        "COLLAB_MAX_MBIT_UP": str(args.mbit),
    }
    sites = [{"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "COLLAB_SITE": site} for site in ("a", "b")]
    return pairs.World(__file__, 2, common | environment, sites)


class Taken(NamedTuple):
    seconds: float  # by the slowest
    processor: float  # seconds, of all


def taken(of: pairs.World, **question: object) -> Taken:
    answers = of.ask(**question)
    return Taken(max(answer["seconds"] for answer in answers), sum(answer["processor"] for answer in answers))


def period_of(args: argparse.Namespace) -> int:
    """Steps, of which a blocking round takes the share that is wanted."""
    probe = world(args, COLLAB_SYNC_EVERY="1000000")
    try:
        rounds = sorted(taken(probe, what="round").seconds for _ in range(3))
        steps = taken(probe, what="steps", steps=20).seconds / 20
    finally:
        probe.close()
    print(f"a blocking round takes {rounds[1]:.2f} s, a step {steps:.3f} s", flush=True)
    # Of a period that is training and then a round, `share` is the round.
    return max(4, round(rounds[1] / args.share / steps))


def time_training(args: argparse.Namespace, period: int) -> Iterator[list[Taken]]:
    """Without rounds, blocking, behind: by turns, as the machine drifts."""
    every = str(period)
    worlds = [
        world(args, COLLAB_SYNC_EVERY="1000000"),
        world(args, COLLAB_SYNC_EVERY=every),
        world(args, COLLAB_SYNC_EVERY=every, COLLAB_OVERLAP="1"),
    ]
    try:
        for _ in range(args.pairs):
            yield [taken(each, what="steps", steps=period * args.periods + period // 2) for each in worlds]
    finally:
        for each in worlds:
            each.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Training speed with rounds behind it, against none.")
    parser.add_argument("--share", type=float, default=0.8, help="of a period, that a blocking round takes")
    parser.add_argument("--millions", type=int, default=5, help="of parameters")
    parser.add_argument("--mbit", type=int, default=40, help="that a site may send, a second")
    parser.add_argument("--periods", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/bench/overlap.json"))
    args = parser.parse_args()

    period = period_of(args)
    never, blocking, behind = zip(*time_training(args, period), strict=True)

    def seconds(of: Sequence[Taken]) -> list[float]:
        return [each.seconds for each in of]

    def beyond_training(of: Sequence[Taken]) -> list[float]:
        return [each.processor - without.processor for each, without in zip(of, never, strict=True)]

    rows = [
        pairs.row("training time with rounds behind it, against none", seconds(behind), seconds(never), 1.02),
        pairs.row("training time with rounds that block, against none", seconds(blocking), seconds(never), None),
    ]
    of_rounds = beyond_training(behind), beyond_training(blocking)
    if min(*of_rounds[0], *of_rounds[1]) > 0:
        rows.append(pairs.row("their processor time, behind against blocking", *of_rounds, 1.2))
    met = pairs.report("overlap", rows, args.out)
    if len(rows) < 3:
        print(f"processor time: in a pair, rounds took none beyond training without ({of_rounds} s): --periods more")
    sys.exit(not met or len(rows) < 3)


if __name__ == "__main__":
    worker() if "--worker" in sys.argv else main()
