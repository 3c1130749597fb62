"""AdamW with a state of 8 bits, torchao's or bitsandbytes', in a loop of its own.

    eight_bit.py torchao|bitsandbytes [FOLDER]

With FOLDER it trains until a site named late, which came later, has taken a few steps.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import tiny
import torch
import torch.distributed as dist
import torch_collab
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if sys.argv[1] == "torchao":
    from torchao.optim import AdamW8bit

    # Else its step is compiled, for each shape anew, which takes long on the CPU.
    torch.compiler.set_stance("force_eager")
else:
    from bitsandbytes.optim import AdamW8bit
folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
site = os.environ["COLLAB_SITE"]
late = site == "late"
seed = sum(site.encode())  # sites that are worlds of their own all have a rank 0

dist.init_process_group("collab")
torch.manual_seed(seed)
# Only what has 4096 elements or more is kept in 8 bits.
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3)))
optimizer = AdamW8bit(model.parameters(), lr=0.01)
for step in range(tiny.STEPS if folder is None else 100_000):
    inputs, labels = tiny.batch(step, 64, seed)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    if folder is None:
        continue
    if late and step == 6:
        (folder / "done").write_text("")
    if ((folder / "done").exists() and not late) or (late and step == 8):
        break
weight = model.module[0].weight
held = optimizer.state[weight]
narrow = [v for v in held.values() if isinstance(v, torch.Tensor) and getattr(v, "codes", v).dtype == torch.uint8]
assert len(narrow) == 2, f"both moments are of 8 bits: {held}"
if folder is None:
    # One site breaks: it takes the anchor, and what of its state is broken starts anew, whatever class that has.
    if site == "tokyo":
        with torch.no_grad():
            weight[0, 0] = float("nan")
        (held["exp_avg"].scale if sys.argv[1] == "torchao" else held["absmax1"])[0] = float("nan")
    torch_collab.synchronize()
    assert (weight in optimizer.state) == (site != "tokyo")
tiny.end(model)
