"""Accelerate: the group is made before the Accelerator, which then takes it as it is."""

from __future__ import annotations

import tiny
import torch
import torch.distributed as dist
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader

dist.init_process_group("collab")
accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=False))
assert accelerator.num_processes == 2 and accelerator.process_index == tiny.RANK

plain = tiny.model()
model, optimizer, loader = accelerator.prepare(
    plain, torch.optim.AdamW(plain.parameters(), lr=0.01), DataLoader(tiny.data(), batch_size=8, shuffle=True)
)
for inputs, labels in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
seen = accelerator.gather_for_metrics(loss.detach().unsqueeze(0))
assert seen.numel() == 2
tiny.end(accelerator.unwrap_model(model))
