"""What collab does at every training step, beside a step of 20 ms, and how long the next generation takes to begin.

    python tests/bench/bench_lookups.py [--repeats 7] [--out out/bench/lookups.json]

Two sites of one rank on loopback. The first figure is the forward hook and the count of a step of a model with the 148
parameters of GPT-2 (a thousand calls each, without the training between them); the second the wall time of the first
training forward of a later model of 25 M parameters, from the barrier before it to its return, at the slower site.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from pairs import bare_environment

STEP_SECONDS = 0.020
LOOKUPS_AT_MOST = 0.002
BEGINS_WITHIN = 2.0
CALLS = 1000


def worker(repeats: int) -> None:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch_collab.capture import forward, rounds
    from torch_collab.world import state

    torch.set_num_threads(1)
    dist.init_process_group("collab")
    block = [nn.Linear(8, 8) for _ in range(74)]
    ddp = DistributedDataParallel(nn.Sequential(*block))
    x = torch.ones(1, 8)
    ddp(x).sum().backward()
    torch.optim.SGD(ddp.parameters(), lr=0.1).step()
    world = state.require()
    lookups = []
    for _ in range(repeats):
        begin = time.thread_time()  # of the processor: a machine that is busy elsewhere adds nothing
        for _ in range(CALLS):
            forward.on_ddp_forward(ddp, (x,), {})
            rounds.count(world)
        lookups.append((time.thread_time() - begin) / CALLS)
    begins = []
    for seed in range(repeats):
        torch.manual_seed(seed)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(5000, 5000, bias=False), nn.Linear(5000, 3)))
        dist.barrier()
        begin = time.perf_counter()
        output = model(torch.ones(1, 5000))
        begins.append(time.perf_counter() - begin)
        output.sum().backward()
        dist.barrier()
    print(json.dumps({"lookups": lookups, "begins": begins}), flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description="What collab does at every step; how fast a generation begins.")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("out/bench/lookups.json"))
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args.repeats)

    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=120))
    common = {
        **bare_environment(),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": "2",
        "COLLAB_SYNC_EVERY": "1000000",
        "COLLAB_LOG_LEVEL": "warning",
    }
    command = [sys.executable, __file__, "--worker", "--repeats", str(args.repeats)]
    ranks = [
        subprocess.Popen(
            command, env={**common, "RANK": str(rank), "COLLAB_SITE": f"site{rank}"}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    said = [json.loads(rank.communicate(timeout=600)[0].splitlines()[-1]) for rank in ranks]
    share = max(statistics.median(rank["lookups"]) for rank in said) / STEP_SECONDS
    begins = statistics.median(max(pair) for pair in zip(*(rank["begins"] for rank in said), strict=True))
    print(f"at every step: {share * STEP_SECONDS * 1e6:.1f} us, {share:.4f} of 20 ms (at most {LOOKUPS_AT_MOST})")
    print(f"a later model of 25 M parameters begins in {begins:.2f} s (at most {BEGINS_WITHIN} s)")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"share": share, "begins": begins, "ranks": said}, indent=1))
    sys.exit(not (share <= LOOKUPS_AT_MOST and begins <= BEGINS_WITHIN))


if __name__ == "__main__":
    main()
