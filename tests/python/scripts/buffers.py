"""A text tower as CLIP has one: a causal mask that holds -inf, a table computed at the start, batch statistics.

Arguments: what is done with the buffers, and how many steps. Prints `rounds N`, `first LOSS`, `last LOSS`, `sum X`
(of the parameters) and `mask ok`.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, drawn
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

WHAT, STEPS = sys.argv[1], int(sys.argv[2])
SITE = os.environ["COLLAB_SITE"]
WORDS, WIDTH, LENGTH = 11, 8, 6


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)
        mask = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)
        if WHAT == "other-mask" and SITE == "b":
            mask = mask.clamp(min=-1e4)
        if WHAT == "other-mask-at-rank-1" and RANK == 1:
            mask = mask.clamp(min=-1e4)
        self.register_buffer("attn_mask", mask)
        places = torch.linspace(-1, 1, LENGTH)
        if WHAT == "other-table" and SITE == "b":
            places = torch.nextafter(places, torch.tensor(2.0))
        self.register_buffer("places", places, persistent=False)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.places[:, None]
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        x = x + scaled_dot_product_attention(q, k, v, attn_mask=self.attn_mask)
        return self.head(self.norm(x.flatten(0, 1)))


torch.manual_seed(0)
dist.init_process_group("collab")
tower = Tower()
ddp = DistributedDataParallel(tower, init_sync=WHAT != "other-mask-at-rank-1")
optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.02)
generator = torch.Generator().manual_seed(17 + RANK + ord(SITE[0]))
losses = []
for step in range(STEPS):
    tokens = (drawn(torch.randint(0, WORDS, (16, 1), generator=generator, device="cpu")) + torch.arange(LENGTH)) % WORDS
    loss = cross_entropy(ddp(tokens), ((tokens + 1) % WORDS).flatten())
    optimizer.zero_grad()
    loss.backward()
    if WHAT == "later" and SITE == "b" and step >= 4:
        tower.seen.fill_(float("inf"))
    optimizer.step()
    losses.append(loss.item())
print(f"rounds {torch_collab.status()['round']}", flush=True)
dist.destroy_process_group()
print(f"first {losses[0]:.4f}\nlast {losses[-1]:.4f}")
print(f"sum {sum(p.detach().double().sum() for p in tower.parameters()).item()!r}")
assert torch.isneginf(tower.attn_mask).sum() == LENGTH * (LENGTH - 1) // 2
print("mask ok", flush=True)
