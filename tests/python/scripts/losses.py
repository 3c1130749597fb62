"""One rank of a world that loses another by SIGKILL in mid-run: what the survivors' collectives do then."""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from common import RANK, WORLD

VICTIM = int(sys.argv[1])
GRACE = float(os.environ["COLLAB_LINK_GRACE"].removesuffix("s"))


def main() -> None:
    dist.init_process_group("collab")
    total = torch.full((5,), float(RANK + 1))
    dist.all_reduce(total)
    assert total[0].item() == sum(range(1, WORLD + 1))
    if RANK == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    living = [rank for rank in range(WORLD) if rank != VICTIM]
    begun = time.monotonic()
    for kind in ("sum", "mean", "count"):
        tensor = torch.full((3,), RANK + 1 if kind == "count" else float(RANK + 1))
        dist.all_reduce(tensor, dist.ReduceOp.AVG if kind == "mean" else dist.ReduceOp.SUM)
        expected = sum(rank + 1 for rank in living) / (len(living) if kind == "mean" else 1)
        assert abs(tensor[0].item() - expected) < 1e-6, (kind, tensor, expected)
    waited = time.monotonic() - begun
    assert waited < GRACE + 20, waited  # a busy machine has its share; what else would end it takes a minute
    dist.barrier()
    gathered = [torch.zeros(2) for _ in range(WORLD)]
    try:
        dist.all_gather(gathered, torch.ones(2))
    except dist.DistBackendError as error:
        print("all_gather:", error, flush=True)
    else:
        raise AssertionError("all_gather went through without the dead rank")
    survivors = dist.new_group(living, use_local_synchronization=True)
    more = torch.ones(1)
    dist.all_reduce(more, group=survivors)
    assert more.item() == len(living)
    print(f"went on after {waited:.1f} s", flush=True)
    dist.destroy_process_group()


main()
