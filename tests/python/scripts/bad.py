"""Runs that must be refused in words; the first argument says what is wrong."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, batch, small_model
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def train(model: nn.Module, optimizer: type[torch.optim.Optimizer] | None = None) -> None:
    ddp = DistributedDataParallel(model)
    adam = torch.optim.AdamW([p for p in ddp.parameters() if p.requires_grad], lr=0.01)
    for step in range(3):
        x, y = batch(step, RANK)
        cross_entropy(ddp(x), y).backward()
        adam.step()


def other_model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 9), nn.Tanh(), nn.Linear(9, 3))


def main(what: str) -> None:
    options = torch_collab.Options(codec="zip") if what == "bad-option" else None
    if what == "foreign-options":
        options = dist.ProcessGroupGloo._Options()
    dist.init_process_group("collab", pg_options=options)
    if what == "other-model-at-b":
        train(other_model() if torch_collab.site_index() == 1 else small_model())
    elif what == "other-frozen-at-rank-1":
        model = small_model()
        if RANK == 1:
            model[0].bias.requires_grad_(False)
            model[2].bias.requires_grad_(True)
        ddp = DistributedDataParallel(model, init_sync=False)
        ddp(batch(0, RANK)[0])
    elif what == "late-ddp":
        train(small_model())
        train(small_model(5))
    elif what == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        ddp = DistributedDataParallel(small_model())
        zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1)
        x, y = batch(0, RANK)
        cross_entropy(ddp(x), y).backward()
        zero.step()
    elif what == "post-local-sgd":
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
        from torch.distributed.optim import PostLocalSGDOptimizer

        ddp = DistributedDataParallel(small_model())
        inner = torch.optim.SGD(ddp.parameters(), lr=0.1)
        optimizer = PostLocalSGDOptimizer(inner, PeriodicModelAverager(period=1, warmup_steps=0))
        x, y = batch(0, RANK)
        cross_entropy(ddp(x), y).backward()
        optimizer.step()
    elif what == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel

        FullyShardedDataParallel(small_model(), device_id=torch.device("cpu"))
    else:
        train(small_model())
    print("went through", flush=True)


main(sys.argv[1])
