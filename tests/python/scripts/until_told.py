"""A site that trains a small model, and logs its loss, until the file named exists."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch_collab
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("collab")
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while not Path(sys.argv[1]).exists():
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    torch_collab.log_metrics({"loss": loss})
    optimizer.step()
dist.destroy_process_group()
print("ended in good order", flush=True)
