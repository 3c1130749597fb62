"""Rounds behind a training with gradient accumulation, a GradScaler, evaluations and checkpoints, two ranks a site.

What a script does between two steps sees one model: a round that is done meanwhile is merged at a step, not before.
"""

from __future__ import annotations

import io
import math

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, batch, parameters_of, small_model, spread_over_world
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

STEPS = 26
UNFIT = (5, 14)  # steps whose gradients are not finite, so the scaler leaves them out

dist.init_process_group("collab")
ddp = DistributedDataParallel(small_model())
optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(STEPS):
    x, y = batch(step, RANK)
    with ddp.no_sync():
        scaler.scale(cross_entropy(ddp(x), y)).backward()
    x, y = batch(step + 500, RANK)
    loss = cross_entropy(ddp(x), y)
    scaler.scale(loss * math.inf if step in UNFIT else loss).backward()
    counted = torch_collab.status()["steps"]
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    assert torch_collab.status()["steps"] - counted == (0 if step in UNFIT else 1), (step, counted)

    before = parameters_of(ddp)
    saved = io.BytesIO()
    torch.save({"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    ddp.module.eval()
    with torch.no_grad():
        for held_out in range(200):  # takes long enough for an exchange that is under way to end
            ddp.module(batch(held_out, RANK, size=500)[0])
    ddp.module.train()
    assert all(torch.equal(a, b) for a, b in zip(before, parameters_of(ddp), strict=True)), f"merged after step {step}"
    saved.seek(0)
    fresh = small_model(seed=1)
    fresh.load_state_dict(torch.load(saved)["model"])
    assert all(torch.equal(a, b) for a, b in zip(before, parameters_of(fresh), strict=True)), step

assert torch_collab.status()["round"] >= 1, "none was merged"
dist.barrier()
assert spread_over_world(ddp) == 0.0
dist.destroy_process_group()
print("done", flush=True)
