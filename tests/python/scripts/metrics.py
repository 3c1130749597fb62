"""Two sites that log how training goes: five steps, rounds after every second one and at the end."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, batch, small_model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def refused(values: object, error: type[Exception], words: str) -> None:
    try:
        torch_collab.log_metrics(values)
    except error as said:
        assert words in str(said), said
    else:
        raise AssertionError(f"{values} was taken")


dist.init_process_group("collab")
ddp = DistributedDataParallel(small_model())
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(1, 6):
    x, y = batch(step, RANK)
    loss = cross_entropy(ddp(x), y)
    loss.backward()
    torch_collab.log_metrics({"loss": loss, "step": step, "of": torch.tensor([float(RANK)])})
    if step == 3:
        torch_collab.log_metrics({"rate": float("nan")})
    optimizer.step()
    optimizer.zero_grad()
refused({"loss": "low"}, TypeError, "got a str for 'loss', expected a number")
refused({"": 1}, ValueError, "expected a string of 1 to 128 characters")
refused({str(n): n for n in range(70)}, ValueError, "at most 64 names")
refused({"loss": torch.ones(2)}, TypeError, "a tensor with one element")
dist.destroy_process_group()
assert os.environ["COLLAB_EVENTS_FILE"]
