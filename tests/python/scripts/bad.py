"""Runs that end with a refusal; the first argument says what is wrong."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, batch, mark, small_model
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


def go_on_from_errors() -> None:
    """As a guard against lack of memory does."""
    ddp = DistributedDataParallel(small_model())
    sgd = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(120):
        if step == 3:
            ddp.module[0].extra = nn.Parameter(torch.zeros(2))
        x, y = batch(step, RANK)
        try:
            cross_entropy(ddp(x), y).backward()
            sgd.step()
        except RuntimeError:
            mark(f"step {step} is left out")
        if step == 6:
            mark("steps go on")
    mark("in a barrier")
    dist.barrier()
    mark("at the end")
    dist.destroy_process_group()


def other_model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 9), nn.Tanh(), nn.Linear(9, 3))


def main(what: str) -> None:
    dist.init_process_group("collab")
    if what == f"dies-at-{torch_collab.site_index()}":
        os._exit(3)
    if what == "other-model-at-b":
        train(other_model() if torch_collab.site_index() == 1 else small_model())
    elif what == "other-frozen-at-rank-1":
        model = small_model()
        if RANK == 1:
            model[0].bias.requires_grad_(False)
            model[2].bias.requires_grad_(True)
        ddp = DistributedDataParallel(model, init_sync=False)
        ddp(batch(0, RANK)[0])
    elif what == "goes-on-from-errors":
        go_on_from_errors()
    else:
        train(small_model())
    mark("went through")


main(sys.argv[1])
