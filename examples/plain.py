"""A plain script: predicts the next byte of a text with DistributedDataParallel. Only the word "collab" is new.

torchrun --standalone --nproc-per-node=1 examples/plain.py                                              # alone
collab lab --sites paris tokyo --rtt 60 -- torchrun --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d \
    --rdzv-endpoint=paris:29400 examples/plain.py                                                       # two sites
"""

import argparse

import small
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("collab")
torch.manual_seed(dist.get_rank())  # each rank draws its own batches; the first round makes the models equal
with open(argparse.__file__, "rb") as file:
    text = torch.tensor(list(file.read()))
model = DistributedDataParallel(
    nn.Sequential(nn.Embedding(256, 32), nn.Flatten(), nn.Linear(8 * 32, 128), nn.ReLU(), nn.Linear(128, 256))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
losses = []
for _ in range(small.STEPS):
    at = torch.randint(len(text) - 8, (64, 1))
    loss = nn.functional.cross_entropy(model(text[at + torch.arange(8)]), text[at.flatten() + 8])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
rank = dist.get_rank()
dist.destroy_process_group()  # runs the last round: after it all sites hold one model
print(f"rank {rank}: loss {small.fell(losses)}, model {small.digest(model)}\n", end="")
