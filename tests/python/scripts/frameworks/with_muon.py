"""torch.optim.Muon for the matrices, AdamW for all else: a step of the model is a step of both."""

from __future__ import annotations

import tiny
import torch
import torch.distributed as dist
import torch_collab
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("collab")
model = DistributedDataParallel(tiny.model())
matrices = [p for p in model.parameters() if p.ndim == 2]
rest = [p for p in model.parameters() if p.ndim != 2]
optimizers = [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(rest, lr=0.01)]
for step in range(tiny.STEPS):
    inputs, labels = tiny.batch(step)
    model.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    for optimizer in optimizers:
        optimizer.step()
assert torch_collab.status()["steps"] == tiny.STEPS, "a cycle of two is one step"
tiny.end(model)
