"""Optimizers that call collectives inside step(), over two sites of two ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, WORLD, batch, parameters_of, spread_over_world
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

LARGE = 5000  # elements that no optimizer may reduce over the world


class SharingMuon(torch.optim.Optimizer):
    """As distributed Muon does it: each rank works out every n-th update, and all gather them."""

    def __init__(self, parameters, lr: float = 0.01, group: object = None) -> None:
        super().__init__(list(parameters), {"lr": lr})
        self.group = group

    @torch.no_grad()
    def step(self, closure: Callable[[], object] | None = None) -> None:
        if closure is not None:
            with torch.enable_grad():
                closure()
        rank, size = dist.get_rank(self.group), dist.get_world_size(self.group)
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            for base in range(0, len(parameters), size):
                several = parameters[base : base + size]
                mine = several[rank] if rank < len(several) else None
                like = torch.zeros(max(p.numel() for p in several))
                if mine is not None:
                    mine.add_(mine.grad.sign(), alpha=-group["lr"])
                    like[: mine.numel()] = mine.view(-1)
                gathered = [torch.empty_like(like) for _ in range(size)]
                dist.all_gather(gathered, like, group=self.group)
                for p, values in zip(several, gathered, strict=False):
                    p.copy_(values[: p.numel()].view_as(p))


class Clipped(torch.optim.SGD):
    """Clips by the norm over all ranks, which it asks for inside step()."""

    @torch.no_grad()
    def step(self, closure: object = None) -> object:
        norm = sum((p.grad.norm() ** 2 for group in self.param_groups for p in group["params"]), torch.zeros(()))
        work = dist.all_reduce(norm, async_op=True)
        work.wait()
        self.norm = float(norm)
        return super().step(closure)


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 64), nn.Linear(64, 64), nn.Linear(64, 3))


def forward_and_backward(ddp: nn.Module, step: int) -> None:
    x, y = batch(step, RANK)
    ddp.zero_grad()
    cross_entropy(ddp(x), y).backward()


def over_the_world() -> None:
    """A large collective outside step() goes through."""
    tensor = torch.ones(LARGE)
    dist.all_reduce(tensor)
    assert tensor[0].item() == WORLD


def refused(ddp: nn.Module, call: Callable[[], object], kind: str, collective: str) -> Exception:
    before = parameters_of(ddp)
    try:
        call()
    except RuntimeError as error:
        with torch.no_grad():  # the ranks had begun to update, each its own share
            for p, value in zip(ddp.parameters(), before, strict=True):
                p.copy_(value)
        text = str(error)
        assert f"{kind} calls {collective} of 4096 elements over ranks of several sites inside step()" in text, text
        assert "group=torch_collab.site_group()" in text, text
        over_the_world()  # the exception's frames are held, and the step is over all the same
        return error
    raise AssertionError(f"{kind} went through")


def expect_steps(count: int) -> None:
    assert torch_collab.status()["steps"] == count, (torch_collab.status(), count)


def large() -> None:
    ddp = DistributedDataParallel(model())
    muon = SharingMuon(ddp.parameters())
    forward_and_backward(ddp, 0)
    kept = refused(ddp, muon.step, "SharingMuon", "all_gather")
    over_the_world()
    expect_steps(0)
    muon.group = torch_collab.site_group()
    muon.step()  # no forward came between, and the exception's frames are held: it is nobody's inner optimizer
    expect_steps(1)
    muon.group = None
    forward_and_backward(ddp, 1)
    assert refused(ddp, muon.step, "SharingMuon", "all_gather") is not kept


def inside_site() -> None:
    ddp = DistributedDataParallel(model())
    muon = SharingMuon(ddp.parameters(), group=torch_collab.site_group())
    for step in range(3):
        forward_and_backward(ddp, step)
        muon.step()
    assert spread_over_world(ddp, torch_collab.site_group()) == 0.0
    expect_steps(3)


def subgroup() -> None:
    """A group of some ranks of both sites is as bad as the world."""
    group = dist.new_group([0, 1, 2, 3])
    ddp = DistributedDataParallel(model())
    muon = SharingMuon(ddp.parameters(), group=group)
    forward_and_backward(ddp, 0)
    refused(ddp, muon.step, "SharingMuon", "all_gather")


def small() -> None:
    ddp = DistributedDataParallel(model())
    clipped = Clipped(ddp.parameters(), lr=0.1)
    for step in range(3):
        forward_and_backward(ddp, step)
        mine = sum(float(p.grad.norm() ** 2) for p in ddp.parameters())
        clipped.step()
        everyone: list[object] = [None] * WORLD
        dist.all_gather_object(everyone, mine)
        assert abs(clipped.norm - sum(everyone)) < 1e-4 * clipped.norm, (clipped.norm, everyone)
    expect_steps(3)


def closure() -> None:
    """What a closure does is the script's; what comes after it is the optimizer's."""
    ddp = DistributedDataParallel(model())

    def run() -> None:
        forward_and_backward(ddp, 0)
        over_the_world()

    plain = torch.optim.SGD(ddp.parameters(), lr=0.1)
    plain.step(run)
    plain.step(closure=run)
    expect_steps(2)
    torch.optim.LBFGS(ddp.parameters(), max_iter=2).step(lambda: (run(), torch.zeros(()))[1])
    refused(ddp, lambda: SharingMuon(ddp.parameters()).step(run), "SharingMuon", "all_gather")

    def failing() -> None:
        run()
        raise KeyError("in the closure")

    try:
        plain.step(failing)
    except KeyError:
        over_the_world()
    over_the_world()


class Wrapping(torch.optim.Optimizer):
    """As Lookahead and SAM: another optimizer's step() inside its own."""

    def __init__(self, inner: torch.optim.Optimizer, size: int) -> None:
        super().__init__(inner.param_groups, {})
        self.inner, self.size = inner, size

    def step(self, closure: object = None) -> None:
        self.inner.step()
        dist.all_reduce(torch.ones(self.size))


def nested() -> None:
    ddp = DistributedDataParallel(model())
    wrapping = Wrapping(torch.optim.SGD(ddp.parameters(), lr=0.1), 1)
    for step in range(2):
        forward_and_backward(ddp, step)
        wrapping.step()
    expect_steps(2)
    wrapping.size = 4096
    refused(ddp, wrapping.step, "Wrapping", "all_reduce")
    expect_steps(2)


def compiled() -> None:
    """torch.compile keeps our hooks out of its graphs, with frames of its own around them."""
    ddp = DistributedDataParallel(model())
    wrapping = Wrapping(torch.optim.SGD(ddp.parameters(), lr=0.1), 4096)
    forward_and_backward(ddp, 0)
    refused(ddp, torch.compile(wrapping.step, backend="eager"), "Wrapping", "all_reduce")


def of_something_else() -> None:
    """What no DDP trains is not averaged between sites: all ranks step together, and may share over the world."""
    alone = model()
    muon = SharingMuon(alone.parameters())
    ddp = DistributedDataParallel(model(1))
    plain = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(3):
        forward_and_backward(ddp, step)
        plain.step()
        forward_and_backward(alone, step)
        for p in alone.parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        muon.step()
    assert spread_over_world(alone) == 0.0
    expect_steps(3)


dist.init_process_group("collab")
globals()[sys.argv[1]]()
dist.destroy_process_group()
