"""Trains a model that is not wrapped in DistributedDataParallel; `reduces`: its gradients are reduced by hand."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from common import RANK, batch, mark, small_model
from torch.nn.functional import cross_entropy

dist.init_process_group("collab")
model = small_model()
for p in model.parameters():
    dist.all_reduce(p.data, dist.ReduceOp.MAX)  # no gradients
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(25):
    x, y = batch(step, RANK)
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    dist.all_reduce(loss.detach())
    if "reduces" in sys.argv:
        for p in model.parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    optimizer.step()
mark("all steps are done")
dist.destroy_process_group()
