"""One round of 25 M parameters between two sites on loopback, and the memory it takes.

    python tests/bench/bench_round.py [--pairs 20] [--millions 25] [--out out/bench/round.json]

Two pinned processes, each a site, over tcp, and over ucx beside. A round is timed from its trigger to the parameters in
place, and in the same processes, right before or after it, one Gloo all-reduce of as many float32, which takes no outer
step and commits nothing. Memory is the highest resident size of a leader less that of the same training under Gloo, for
two sizes of model: its growth is in multiples of the parameters, what is left (buffers in flight) is in megabytes.
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

    class Model(torch.nn.Module):
        """Tensors of a million parameters whose gradient is cheap."""

        def __init__(self, millions: int) -> None:
            super().__init__()
            self.parts = torch.nn.ParameterList(torch.randn(1000, 1000) for _ in range(millions))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum((part.mean() * x.sum() for part in self.parts), torch.zeros(()))

    torch.set_num_threads(1)
    backend = os.environ["BENCH_BACKEND"]
    dist.init_process_group(backend)
    millions = int(os.environ["BENCH_MILLIONS"])
    model = DistributedDataParallel(Model(millions), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def train_one_step() -> None:
        model(torch.randn(4, 1)).backward()
        optimizer.step()

    train_one_step()
    if os.environ.get("BENCH_MEMORY"):
        for _ in range(5):
            train_one_step()
        for _ in pairs.questions():
            fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            pairs.answer(bytes=int(fields["VmHWM"].split()[0]) * 1024)
    else:
        import torch_collab

        gloo = dist.new_group(backend="gloo")
        tensor = torch.randn(millions * 1_000_000)
        for question in pairs.questions():
            train_one_step()
            dist.barrier(gloo)
            start = time.perf_counter()
            if question["what"] == "round":
                torch_collab.synchronize()
            else:
                dist.all_reduce(tensor, group=gloo)
            pairs.answer(seconds=time.perf_counter() - start)
    dist.barrier()
    dist.destroy_process_group()


def time_rounds(transport: str, codec: str, args: argparse.Namespace) -> tuple[list[float], list[float]]:
    environment = {
        "BENCH_BACKEND": "collab",
        "BENCH_MILLIONS": str(args.millions),
        "COLLAB_CODEC": codec,
        "COLLAB_TRANSPORT": transport,
        "COLLAB_SYNC_EVERY": "1000000",
    }
    world = pairs.World(__file__, 2, environment, sites())
    seconds: dict[str, list[float]] = {"round": [], "all_reduce": []}
    try:
        for pair in range(-2, args.pairs):
            for what in ("round", "all_reduce") if pair % 2 == 0 else ("all_reduce", "round"):
                taken = max(answer["seconds"] for answer in world.ask(what=what))
                if pair >= 0:
                    seconds[what].append(taken)
    finally:
        world.close()
    return seconds["round"], seconds["all_reduce"]


def peak_bytes(environment: dict[str, str], millions: int) -> float:
    common = {"BENCH_MILLIONS": str(millions), "BENCH_MEMORY": "1", "COLLAB_SYNC_EVERY": "1"}
    world = pairs.World(__file__, 2, common | {"COLLAB_TRANSPORT": "tcp"} | environment, sites())
    try:
        return max(answer["bytes"] for answer in world.ask(what="memory"))
    finally:
        world.close()


def memory_row(codec: str, outer: str, at_most: float, plain: list[float], millions: int) -> dict[str, object]:
    """The growth of a leader with its model, and what it takes whatever the model's size."""
    environment = {"BENCH_BACKEND": "collab", "COLLAB_CODEC": codec, "COLLAB_OUTER_OPTIMIZER": outer}
    small, large = (
        peak_bytes(environment, size) - base for size, base in zip((millions, 2 * millions), plain, strict=True)
    )
    growth = (large - small) / (millions * 4e6)
    fixed = (2 * small - large) / 1e6
    return {
        "what": f"leader memory / parameters, {codec} {outer}",
        "ratio": growth,
        "fixed_megabytes": fixed,
        "at_most": at_most,
    }


def sites() -> list[dict[str, str]]:
    return [{"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "COLLAB_SITE": site} for site in ("a", "b")]


def main() -> None:
    parser = argparse.ArgumentParser(description="A round between two sites, against one Gloo all-reduce.")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--millions", type=int, default=25, help="of parameters")
    parser.add_argument("--out", type=Path, default=Path("out/bench/round.json"))
    args = parser.parse_args()

    rows = []
    for transport, codec, at_most in (
        ("tcp", "fp32", 1.0), ("tcp", "fp16", None), ("tcp", "int8", 0.85),
        ("ucx", "fp32", None), ("ucx", "int8", None),
    ):  # fmt: skip
        rounds, all_reduces = time_rounds(transport, codec, args)
        rows.append(
            pairs.row(f"{codec} round over {transport} against an fp32 all-reduce", rounds, all_reduces, at_most)
        )
    plain = [peak_bytes({"BENCH_BACKEND": "gloo"}, size) for size in (args.millions, 2 * args.millions)]
    for codec, outer, at_most in (("fp32", "average", 3), ("int8", "average", 4), ("fp32", "nesterov", 4)):
        rows.append(memory_row(codec, outer, at_most, plain, args.millions))
    sys.exit(not pairs.report("round", rows, args.out))


if __name__ == "__main__":
    worker() if "--worker" in sys.argv else main()
