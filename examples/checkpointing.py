"""Activation checkpointing, and what is kept lies on the CPU: both are the site's own business, and rounds see neither.

torchrun --standalone --nproc-per-node=1 examples/checkpointing.py                                      # alone
collab lab --sites paris tokyo --rtt 60 -- torchrun --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d \
    --rdzv-endpoint=paris:29400 examples/checkpointing.py                                               # two sites

With --keep it trains without both: the same numbers, with more memory.
"""

import argparse
import contextlib

import small
import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--keep", action="store_true", help="keep all activations where they are made")
KEEP = parser.parse_args().keep


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(256, 32)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True) for _ in range(3)
        )
        self.head = nn.Linear(32, 256)

    def forward(self, tokens):
        x = self.embed(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=x.device)
        # What a block keeps for backward is its input alone, and that waits on the CPU.
        with contextlib.nullcontext() if KEEP else save_on_cpu(pin_memory=torch.cuda.is_available()):
            for block in self.blocks:
                x = block(x, mask) if KEEP else checkpoint(block, x, mask, use_reentrant=False)
        return self.head(x)


dist.init_process_group("collab")
rank = dist.get_rank()
torch.manual_seed(rank)
with open(argparse.__file__, "rb") as file:
    text = torch.tensor(list(file.read()))
model = DistributedDataParallel(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
losses = []
for _ in range(small.STEPS):
    rows = text[torch.randint(len(text) - 17, (8, 1)) + torch.arange(17)]
    loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
dist.destroy_process_group()
print(f"rank {rank}: loss {small.fell(losses)}, model {small.digest(model)}\n", end="")
