"""Two sites whose collectives come seldom, or in backward; then in every step; and what compiled code makes of one."""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import mark
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_collab.model.traffic import WINDOW

before = dist.all_reduce
dist.init_process_group("collab")
model = DistributedDataParallel(nn.Linear(4, 2))
model.register_comm_hook(
    None,
    lambda _, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0]),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(steps: int, every: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).square().mean()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            dist.all_reduce(loss.detach())
            objects = [None, None]
            dist.all_gather_object(objects, float(loss))


def summed(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor)
    return tensor * 1


train(2 * WINDOW, every=4)
mark("in every step")
train(2 * WINDOW, every=1)
compiled = torch.compile(summed, fullgraph=True, backend="aot_eager")
assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
dist.destroy_process_group()
assert dist.all_reduce is before, "what was put into torch is taken out"
