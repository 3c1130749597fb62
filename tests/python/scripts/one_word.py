"""An ordinary script with one word changed."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("collab")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    loss = (model(torch.randn(8, 4)) ** 2).mean()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
