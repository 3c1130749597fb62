"""How a script is caught, over two sites of two ranks (a, a, b, b). Every check runs at every rank."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import pickle

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, batch, small_model, spread_over_world
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("collab")
SITE = torch_collab.site_group()
OURS = [0, 1] if RANK < 2 else [2, 3]


def check_map() -> None:
    assert [(s.name, s.ranks) for s in torch_collab.sites()] == [("a", (0, 1)), ("b", (2, 3))]
    assert dist.get_process_group_ranks(SITE) == OURS
    dist.barrier(group=SITE)
    assert "gloo" in dist.get_backend(SITE)
    assert torch_collab.site_index() == RANK // 2 and torch_collab.site_count() == 2


def check_groups() -> None:
    assert DistributedDataParallel(small_model()).process_group == SITE
    assert DistributedDataParallel(small_model(), process_group=dist.group.WORLD).process_group == SITE
    crossing = dist.new_group([1, 2, 3])
    if RANK in (1, 2, 3):
        group = DistributedDataParallel(small_model(), process_group=crossing).process_group
        assert dist.get_process_group_ranks(group) == ([1] if RANK == 1 else [2, 3])
    norm = nn.Sequential(nn.Linear(4, 4), nn.SyncBatchNorm(4))
    with contextlib.suppress(ValueError):  # torch has it on accelerators only; its group is set before that is said
        DistributedDataParallel(norm)
    assert norm[1].process_group == SITE
    assert copy.deepcopy(norm)[1].process_group == SITE
    assert reloaded(norm)[1].process_group == SITE


def check_copies() -> None:
    ddp = DistributedDataParallel(small_model())
    for other in (copy.deepcopy(ddp), pickle.loads(pickle.dumps(ddp)), reloaded(ddp)):
        assert other.process_group == SITE
        x, _ = batch(0, RANK)
        with torch.no_grad():
            assert torch.equal(other(x), ddp(x))


def reloaded(ddp: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(ddp, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def check_gradients_stay_inside() -> None:
    ddp = DistributedDataParallel(small_model())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(3):
        x, y = batch(step, RANK)
        optimizer.zero_grad()
        cross_entropy(ddp(x), y).backward()
        optimizer.step()
    inside = spread_over_world(ddp, SITE)
    across = spread_over_world(ddp)
    assert inside == 0.0 and across > 0.0, (inside, across)
    assert torch_collab.status()["steps"] == 3, torch_collab.status()
    dist.barrier()  # all sites stand here with steps since the last round
    assert spread_over_world(ddp) == 0.0
    assert torch_collab.status()["steps_since_round"] == 0


for check in (check_map, check_groups, check_copies, check_gradients_stay_inside):
    check()
    print(f"{check.__name__} ok", flush=True)
dist.destroy_process_group()
assert os.environ["COLLAB_SITE"] in "ab"
print("done", flush=True)
