"""One site that sends its rounds to a logger of its own while it trains, from its events or from status().

logs_rounds.py      COLLAB_EVENTS_FILE says which
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch_collab
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_collab.integrations import Round, RoundLogger


class Printed(RoundLogger):
    def _send(self, each: Round) -> None:
        print(f"sent {each.number} {sorted(each.metrics)}\n", end="")


dist.init_process_group("collab")
model = DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with Printed() as logger:
    for _ in range(12):
        loss = model(torch.ones(3, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch_collab.log_metrics({"loss": loss})
        logger.update()
    torch_collab.synchronize()
dist.destroy_process_group()
