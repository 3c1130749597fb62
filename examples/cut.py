"""Three sites, one of which is cut off and comes back: after every round each site prints which model it has.

export COLLAB_SYNC_EVERY=4s COLLAB_LINK_GRACE=3s COLLAB_LOG_LEVEL=warning TORCH_CPP_LOG_LEVEL=ERROR OMP_NUM_THREADS=1
cat examples/cut.txt
collab lab --sites paris tokyo rome --rtt 80 --script examples/cut.txt -- torchrun --nnodes=3 --nproc-per-node=1 \
    --rdzv-backend=collab --rdzv-endpoint=paris:29400 --rdzv-id=cut examples/cut.py 2>&1 | cut -c -120

Takes a minute; docs/recording.py makes the documents' recording from it. Rounds go by the clock, as the lab's cuts do,
and all sites end after the same round, number ROUNDS.
"""

import argparse
import os

import small
import torch
import torch.distributed as dist
import torch_collab
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROUNDS = int(os.environ.get("ROUNDS", "10"))

dist.init_process_group("collab")
torch.manual_seed(dist.get_rank())
with open(argparse.__file__, "rb") as file:
    text = torch.tensor(list(file.read()))
model = DistributedDataParallel(
    nn.Sequential(nn.Embedding(256, 32), nn.Flatten(), nn.Linear(8 * 32, 128), nn.ReLU(), nn.Linear(128, 256))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
told = 0
while told < ROUNDS:
    at = torch.randint(len(text) - 8, (64, 1))
    loss = nn.functional.cross_entropy(model(text[at + torch.arange(8)]), text[at.flatten() + 8])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    now = torch_collab.status()
    if now["round"] > told and now["steps_since_round"] == 0:
        told = now["round"]
        print(f"round {told}: loss {loss.item():.2f} in {now['steps']} steps, model {small.digest(model)}", flush=True)
dist.destroy_process_group()
