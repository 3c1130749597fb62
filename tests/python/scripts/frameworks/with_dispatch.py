"""Accelerate with an IterableDataset and its defaults: rank 0 reads for all, which collab warns of."""

from __future__ import annotations

from collections.abc import Iterator

import tiny
import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield from tiny.data()


dist.init_process_group("collab")
accelerator = Accelerator(cpu=True)
plain = tiny.model()
model, optimizer, loader = accelerator.prepare(
    plain, torch.optim.AdamW(plain.parameters(), lr=0.01), DataLoader(Stream(), batch_size=8)
)
for inputs, labels in loader:
    optimizer.zero_grad()
    accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), labels))
    optimizer.step()
tiny.end(accelerator.unwrap_model(model))
