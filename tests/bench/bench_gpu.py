"""What rounds cost a model on a GPU: the step's overhead, a blocking round, and a merge under overlap.

    python tests/bench/bench_gpu.py [--width 768] [--layers 12] [--rounds 5] [--period 60] [--out out/bench/gpu.json]

Two sites of one rank share the GPU and talk over loopback in fp16, so what a round takes is its copies and the work of
the processor. Beside them in the same run: two processes with DDP over NCCL, each alone in its world, whose steps share
the GPU as well; an all-reduce of as many float32 on the GPU over Gloo, by two more; and copies of the parameters to
pinned memory and back. The model has the tensors of a GPT-2: 138 million parameters unless told otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import pairs


def reduce_all(elements: int) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    vector = torch.ones(elements, device="cuda")
    for _ in pairs.questions():
        torch.cuda.synchronize()
        start = time.perf_counter()
        dist.all_reduce(vector)
        torch.cuda.synchronize()
        pairs.answer(seconds=time.perf_counter() - start)
        vector.fill_(1)
    dist.destroy_process_group()


def worker() -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    width, layers = int(os.environ["BENCH_WIDTH"]), int(os.environ["BENCH_LAYERS"])

    def block() -> torch.nn.Module:
        linear, norm = torch.nn.Linear, torch.nn.LayerNorm
        parts = [norm(width), linear(width, 3 * width), linear(3 * width, width)]
        parts += [norm(width), linear(width, 4 * width), torch.nn.GELU(), linear(4 * width, width)]
        return torch.nn.Sequential(*parts)

    torch.set_num_threads(1)
    torch.cuda.set_device(0)
    model = torch.nn.Sequential(torch.nn.Embedding(50257, width), *(block() for _ in range(layers))).cuda()
    words = torch.randint(0, 50257, (8, 1024), device="cuda")
    millions = sum(p.numel() for p in model.parameters()) / 1e6

    def steps_of(module: torch.nn.Module, optimizer: torch.optim.Optimizer, count: int) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            with torch.autocast("cuda", torch.bfloat16):
                loss = module(words).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / count

    if os.environ["BENCH_BACKEND"] == "gloo":
        return reduce_all(sum(p.numel() for p in model.parameters()))
    if os.environ["BENCH_BACKEND"] == "collab":
        dist.init_process_group("collab")
    else:
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    ddp = DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-4, fused=True)
    steps_of(ddp, optimizer, 5)
    for question in pairs.questions():
        values = {"millions": millions, "gigabytes": torch.cuda.max_memory_allocated() / 1e9}
        if question["what"] == "copies":
            host = [torch.empty(p.shape, pin_memory=True) for p in model.parameters()]
            torch.cuda.synchronize()
            for key, (to, source) in {"down": (host, model.parameters()), "up": (model.parameters(), host)}.items():
                start = time.perf_counter()
                with torch.no_grad():
                    for into, each in zip(to, source, strict=True):
                        into.copy_(each, non_blocking=True)
                torch.cuda.synchronize()
                values[key] = time.perf_counter() - start
        elif question["what"] == "steps":
            values["seconds"] = steps_of(ddp, optimizer, int(question["count"]))  # type: ignore[call-overload]
        else:
            import torch_collab

            steps_of(ddp, optimizer, 3)
            start = time.perf_counter()
            torch_collab.synchronize()
            torch.cuda.synchronize()
            values["seconds"] = time.perf_counter() - start
        pairs.answer(**values)
    dist.destroy_process_group()


def world(args: argparse.Namespace, folder: str, **environment: str) -> pairs.World:
    common = {
        "BENCH_BACKEND": "collab",
        "BENCH_WIDTH": str(args.width),
        "BENCH_LAYERS": str(args.layers),
        "COLLAB_CODEC": "fp16",
        "COLLAB_TRANSPORT": "tcp",
        "COLLAB_SYNC_EVERY": "1000000",
    }
    sites = [
        {
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "COLLAB_SITE": site,
            "COLLAB_EVENTS_FILE": f"{folder}/{site}.jsonl",
        }
        for site in ("a", "b")
    ]
    return pairs.World(__file__, 2, common | environment, sites)


def rounds_of(folder: str) -> list[dict[str, float]]:
    told = (json.loads(line) for line in Path(folder, "a.jsonl").read_text().splitlines())
    return [event for event in told if event["event"] == "round" and event["round"] > 1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Rounds of a model on a GPU.")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--period", type=int, default=60, help="steps between rounds behind the training")
    parser.add_argument("--out", type=Path, default=Path("out/bench/gpu.json"))
    args = parser.parse_args()

    def steps(of: pairs.World) -> float:
        return max(answer["seconds"] for answer in of.ask(what="steps", count=20))

    with tempfile.TemporaryDirectory() as folder:
        blocking = world(args, folder)
        alone = world(args, folder, BENCH_BACKEND="nccl")
        for _ in range(2):
            copies = blocking.ask(what="copies")[0]
        counted, plain = [], []
        for _ in range(args.rounds):
            counted.append(steps(blocking))
            plain.append(steps(alone))
        alone.close()
        gloo = world(args, folder, BENCH_BACKEND="gloo")
        rounds, reductions = [], []
        for _ in range(args.rounds):
            rounds.append(max(answer["seconds"] for answer in blocking.ask(what="round")))
            reductions.append(max(answer["seconds"] for answer in gloo.ask(what="reduce")))
        gloo.close()
        blocking.close()
    with tempfile.TemporaryDirectory() as folder:
        behind = world(args, folder, COLLAB_SYNC_EVERY=str(args.period), COLLAB_OVERLAP="1")
        behind.ask(what="steps", count=args.period * (args.rounds + 2))
        # What is under way still is waited for at the end, and so is a last round: neither holds up a training.
        stalls = [event["stall_seconds"] for event in rounds_of(folder) if event["overlap_seconds"] > 0]
        behind.close()
    moved = copies["down"] + copies["up"]
    print(f"{copies['millions']:.0f} M parameters, copies {copies['down']:.4f} s down, {copies['up']:.4f} s up")
    print(f"a step {plain[0] * 1e3:.1f} ms, GPU memory {copies['gigabytes']:.1f} GB")
    rows = [
        pairs.row("a counted step, against DDP alone", counted, plain, None),
        pairs.row("a blocking round, against an all-reduce over Gloo", rounds, reductions, None),
        pairs.row("a blocking round, against the copies", rounds, [moved] * len(rounds), None),
        pairs.row("a round behind the training, against the copies", stalls, [moved] * len(stalls), None),
    ]
    sys.exit(not pairs.report("gpu", rows, args.out))


if __name__ == "__main__":
    worker() if "--worker" in sys.argv else main()
