"""Trains the same small runs over the backend that is asked for and writes every final parameter.

Twenty steps each: three seeds, gradient clipping, accumulation under no_sync, a learning-rate schedule.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from common import RANK, WORLD, batch, parameters_of, small_model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def train(seed: int, clip: bool = False, accumulate: bool = False, schedule: bool = False) -> list[torch.Tensor]:
    ddp = DistributedDataParallel(small_model(seed))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20) if schedule else None
    for step in range(20):
        if accumulate:
            x, y = batch(step + 500, RANK)
            with ddp.no_sync():
                cross_entropy(ddp(x), y).backward()
        x, y = batch(step, RANK)
        cross_entropy(ddp(x), y).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        if scheduler is not None:
            scheduler.step()
    return parameters_of(ddp)


VARIANTS = {
    "seed 0": {"seed": 0},
    "seed 1": {"seed": 1},
    "seed 2": {"seed": 2},
    "clipping": {"seed": 3, "clip": True},
    "accumulation": {"seed": 4, "accumulate": True},
    "schedule": {"seed": 5, "schedule": True},
    "all at once": {"seed": 6, "clip": True, "accumulate": True, "schedule": True},
}


def main(backend: str, out: str) -> None:
    base = dist.TCPStore("127.0.0.1", int(__import__("os").environ["MASTER_PORT"]), is_master=False)
    results = {}
    for number, (name, variant) in enumerate(VARIANTS.items()):
        store = dist.PrefixStore(f"world{number}", base)
        dist.init_process_group(backend, store=store, rank=RANK, world_size=WORLD)
        results[name] = train(**variant)
        dist.destroy_process_group()
    torch.save(results, f"{out}/{backend}-{RANK}.pt")


main(*sys.argv[1:])
