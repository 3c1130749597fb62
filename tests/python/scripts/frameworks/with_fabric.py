"""Lightning Fabric: the backend's name goes to its DDPStrategy."""

from __future__ import annotations

import tiny
import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
from torch.utils.data import DataLoader

fabric = Fabric(accelerator="cpu", devices=1, num_nodes=2, strategy=DDPStrategy(process_group_backend="collab"))
fabric.launch()
assert fabric.world_size == 2 and fabric.global_rank == tiny.RANK

plain = tiny.model()
model, optimizer = fabric.setup(plain, torch.optim.AdamW(plain.parameters(), lr=0.01))
for inputs, labels in fabric.setup_dataloaders(DataLoader(tiny.data(), batch_size=8, shuffle=True)):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    fabric.backward(loss)
    optimizer.step()
assert fabric.all_gather(loss.detach()).numel() == 2
fabric.barrier()
tiny.end(plain)
