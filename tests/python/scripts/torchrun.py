"""A worker of `torchrun --rdzv-backend=collab`: trains until it is told to stop, and tells what happens to it.

    torchrun.py FOLDER       FOLDER is shared by all nodes of the test

It prints `started pid … rank … of … start …`, then `step N round R` now and then, and `ended step … digest …`. It stops
at the first step at which FOLDER/stop is there, and the round has been that this names, if it names one. With
FOLDER/crash-SITE there it takes that file away and crashes. While FOLDER/hold is there it does nothing after
init_process_group; with FOLDER/groups it makes groups inside its site and ends. TEST_WIDTH=N adds a layer of N x N
parameters; TEST_DATA=N is the first rank's data, so that sites that are worlds of their own have different ones;
TEST_MODEL=gpt2 trains the example's smallest GPT-2 instead. TEST_HALTS=T,T: after a round that ends within HALT seconds
before a moment T it waits for that, so that something can be timed to come in the midst of what follows. TEST_HOST=NAME
is taken for the machine's name. With TEST_LOADER each step waits for a DataLoader's worker.
"""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, WORLD, batch, drawn, say, small_model
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset
from torch_collab import native
from torch_collab.world import state

FOLDER = Path(sys.argv[1])
SITE = os.environ["COLLAB_SITE"]
DATA = int(os.environ.get("TEST_DATA", "0"))
HALTS = [float(moment) for moment in os.environ.get("TEST_HALTS", "").split(",") if moment]  # Unix seconds
HALT = 60.0


def crash_if_told() -> None:
    told = FOLDER / f"crash-{SITE}"
    if told.exists():
        told.unlink(missing_ok=True)
        say("crashes now")
        os._exit(3)


def halt() -> None:
    now = time.time()
    time.sleep(next((moment for moment in HALTS if now < moment < now + HALT), now) - now)


def told_to_stop(after_round: int) -> bool:
    told = FOLDER / "stop"
    return told.exists() and after_round >= int(told.read_text() or 0)


def make_groups() -> None:
    """Groups inside the site, when the world's store is gone."""
    site = torch_collab.site_group()
    dist.barrier(group=site)
    ranks = dist.get_process_group_ranks(site)
    for backend, local in (("collab", True), ("gloo", True), ("gloo", False)):
        one = torch.ones(1)
        dist.all_reduce(one, group=dist.new_group(ranks, backend=backend, use_local_synchronization=local))
        assert one.item() == len(ranks)
    say("groups are made")
    os._exit(0)  # there is no world to take down


def toy() -> tuple[nn.Module, Callable[[nn.Module, int], torch.Tensor]]:
    model = small_model(RANK)
    if width := int(os.environ.get("TEST_WIDTH", "0")):
        model = nn.Sequential(nn.Linear(6, width), nn.Linear(width, width), nn.Linear(width, 6), model)

    def loss(ddp: nn.Module, step: int) -> torch.Tensor:
        x, y = batch(step, RANK + DATA)
        return cross_entropy(ddp(x), y)

    return model, loss


def gpt2() -> tuple[nn.Module, Callable[[nn.Module, int], torch.Tensor]]:
    sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
    from gpt2_ddp import make_model  # type: ignore[import-not-found]

    torch.manual_seed(RANK)

    def loss(ddp: nn.Module, step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1000 * step + RANK)
        tokens = drawn(torch.randint(0, 256, (5, 16), generator=generator, device="cpu"))
        answer: torch.Tensor = ddp(tokens, labels=tokens).loss
        return answer

    return make_model(argparse.Namespace(size="nano", context=16), 256), loss


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return itertools.count()


def main() -> None:
    if host := os.environ.get("TEST_HOST"):
        socket.gethostname = lambda: host
    dist.init_process_group("collab")
    start = state.require().info.start.value
    restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
    say(f"started pid {os.getpid()} rank {RANK} of {WORLD} start {start} restart {restart}")
    while (FOLDER / "hold").exists():
        time.sleep(0.02)
    if (FOLDER / "groups").exists():
        return make_groups()
    model, loss = gpt2() if os.environ.get("TEST_MODEL") == "gpt2" else toy()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    step = told_round = 0
    stop = torch.zeros(1)
    loader: Iterator[int] = itertools.count()
    if os.environ.get("TEST_LOADER"):
        loader = iter(DataLoader(Endless(), batch_size=None, num_workers=1))  # no tensor: a worker may use no GPU
    while True:
        next(loader)
        optimizer.zero_grad()
        loss(ddp, step).backward()
        optimizer.step()
        step += 1
        now = torch_collab.status()["round"]
        if now != told_round or step % 50 == 0:
            say(f"step {step} round {now}")
        if now != told_round:
            told_round = now
            halt()
        crash_if_told()
        time.sleep(0.02)
        stop.fill_(float(told_to_stop(now)))
        dist.all_reduce(stop, dist.ReduceOp.MAX, group=torch_collab.site_group())  # the ranks of a site stop together
        if stop.item() > 0:
            break
    dist.destroy_process_group()
    flat = torch.cat([p.detach().flatten() for p in ddp.parameters()])
    say(f"ended step {step} digest {native.digest(flat)}")


main()
