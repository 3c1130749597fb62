"""A site with 25 million parameters that trains until one that came later has; that one says how long it took."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import common  # noqa: F401  (its device)
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

out, late = Path(sys.argv[1]), sys.argv[2] == "late"
dist.init_process_group("collab")
torch.manual_seed(7 if late else 0)
ddp = DistributedDataParallel(nn.Linear(5000, 5000, bias=False))
optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-4)
began = time.monotonic()
for step in range(100_000):
    optimizer.zero_grad()
    ddp(torch.randn(2, 5000)).square().mean().backward()
    optimizer.step()
    if step == 0:
        (out / f"started-{sys.argv[2]}").write_text(str(time.monotonic() - began))
    if late and step == 5:
        (out / "done").write_text("")
    if (out / "done").exists():
        break
dist.destroy_process_group()
