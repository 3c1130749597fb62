"""A site that trains until one that came later has; what a member serves and what the late one takes are written down.

Arguments: a folder, the site, the optimizer, what the late site's script has done to it before (fresh | restored).
"""

from __future__ import annotations

import os
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import common  # noqa: F401  (its device)
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

out, site, kind, before = Path(sys.argv[1]), *sys.argv[2:5]
late = site == "late"
dist.init_process_group("collab")

from torch_collab.swarm import optimizer_state  # noqa: E402  # after the backend is loaded

rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last), nn.Flatten(), nn.Linear(64, 5))
ddp = DistributedDataParallel(model)
parameters = list(ddp.parameters())
made: dict[str, Any] = {
    "adamw": lambda: [torch.optim.AdamW(parameters, lr=1e-3, amsgrad=True)],
    "sgd": lambda: [torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)],
    "plain": lambda: [torch.optim.SGD(parameters, lr=1e-2)],
    "two": lambda: [torch.optim.AdamW(parameters[:2]), torch.optim.SGD(parameters[2:], lr=1e-2, momentum=0.9)],
}
optimizers = made[kind]()
# What collab makes for itself is on the host, whatever the script has chosen: on `meta` nothing has values.
if default := os.environ.get("TEST_DEFAULT"):
    torch.set_default_device(default)


def states() -> list[dict[str, Any]]:
    return [optimizer.state_dict() for optimizer in optimizers]


if late:
    if before == "restored":
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizers[0].step()
    # An optimizer's own hooks come after those of all.
    taken: list[Any] = []

    def keep(optimizer: Any, *_: Any) -> None:
        if len(taken) < len(optimizers):
            taken.append(deepcopy(optimizer.state_dict()))
            torch.save(taken, out / f"taken-{rank}.pt")

    for optimizer in optimizers:
        optimizer.register_step_pre_hook(keep)
else:
    serve = optimizer_state.copy

    def copy() -> Any:
        torch.save(states(), out / "served.pt")
        return serve()

    optimizer_state.copy = copy

for step in range(100_000):
    for optimizer in optimizers:
        optimizer.zero_grad()
    ddp(torch.randn(2, 2, 6, 6, device=parameters[0].device)).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
    if late and step == 6:
        (out / "done").write_text("")
    if ((out / "done").exists() and not late) or (late and step == 8):
        break
dist.destroy_process_group()
