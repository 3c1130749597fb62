"""Trains a model with tied and frozen weights and a buffer of integers; writes it as it began and as it ended."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ.get("RANK", "0"))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.frozen = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight
        self.frozen.requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.norm(self.frozen(self.embedding(tokens))))
        return answer


def main(out: str) -> None:
    torch.manual_seed(3)
    model = Tied()
    torch.save(model.state_dict(), f"{out}/base{RANK}.pt")
    dist.init_process_group("collab")
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(4):
        tokens = torch.randint(0, 16, (8,), generator=torch.Generator().manual_seed(10 * step + RANK))
        nn.functional.cross_entropy(ddp(tokens), tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
    torch.save(model.state_dict(), f"{out}/final{RANK}.pt")


if __name__ == "__main__":
    main(sys.argv[1])
