"""What must keep working, over two sites: each case trains a few steps in a world of its own.

After every case all ranks hold the same parameters, which only the last round can have done, and the ranks of a site
held the same ones before it.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, WORLD, batch, small_model, spread_over_world
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

STEPS = 5
CASES: dict[str, Callable[[], nn.Module]] = {}


def case(function: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    CASES[function.__name__] = function
    return function


def fit(ddp: nn.Module, optimizer: torch.optim.Optimizer | None = None, steps: int = STEPS) -> nn.Module:
    optimizer = optimizer or torch.optim.AdamW([p for p in ddp.parameters() if p.requires_grad], lr=0.01)
    for step in range(steps):
        x, y = batch(step, RANK)
        optimizer.zero_grad()
        cross_entropy(ddp(x), y).backward()
        optimizer.step()
    return ddp


def expect_steps(count: int) -> None:
    assert torch_collab.status()["steps"] == count, (torch_collab.status(), count)


@case
def fp16_hook() -> nn.Module:
    ddp = DistributedDataParallel(small_model())
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return fit(ddp)


@case
def power_sgd() -> nn.Module:
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(6, 64), nn.Linear(64, 64), nn.Linear(64, 3)))
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=1
    )
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return fit(ddp)


@case
def own_hook_over_world() -> nn.Module:
    """A hook as users write them: over the default group, divided by its size."""

    def hook(state, bucket):  # torch looks at annotations, which are strings in this file
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda f: f.value()[0] / dist.get_world_size())

    plain, hooked = DistributedDataParallel(small_model()), DistributedDataParallel(small_model())
    hooked.register_comm_hook(None, hook)
    x, y = batch(0, RANK)
    for ddp in (plain, hooked):
        cross_entropy(ddp(x), y).backward()
    for a, b in zip(plain.parameters(), hooked.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    optimizer = torch.optim.SGD([*plain.parameters(), *hooked.parameters()], lr=0.1)
    optimizer.step()
    expect_steps(1)
    return nn.ModuleList([plain, hooked])


@case
def accumulation() -> nn.Module:
    ddp = DistributedDataParallel(small_model())
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    for step in range(3 * STEPS):
        last = step % 3 == 2
        with contextlib.nullcontext() if last else ddp.no_sync():
            x, y = batch(step, RANK)
            cross_entropy(ddp(x), y).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    expect_steps(STEPS)
    return ddp


def scaled(fused: bool) -> nn.Module:
    ddp = DistributedDataParallel(small_model())
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for step in range(STEPS):
        x, y = batch(step, RANK)
        loss = cross_entropy(ddp(x), y)
        scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    expect_steps(STEPS - 1)  # the scaler skipped one
    return ddp


@case
def scaler_with_skipped_steps() -> nn.Module:
    return scaled(fused=False)


@case
def fused_scaler_with_skipped_steps() -> nn.Module:
    return scaled(fused=True)


@case
def two_optimizers_of_one_model() -> nn.Module:
    ddp = DistributedDataParallel(small_model())
    parameters = list(ddp.parameters())
    optimizers = [torch.optim.SGD(parameters[:2], lr=0.1), torch.optim.AdamW(parameters[2:], lr=0.01)]
    for step in range(STEPS):
        x, y = batch(step, RANK)
        ddp.zero_grad()
        cross_entropy(ddp(x), y).backward()
        for optimizer in optimizers:
            optimizer.step()
    expect_steps(STEPS)
    return ddp


@case
def optimizer_of_something_else() -> nn.Module:
    ddp = DistributedDataParallel(small_model())
    other = nn.Linear(2, 2)
    others = torch.optim.SGD(other.parameters(), lr=0.1)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(STEPS):
        other(torch.ones(1, 2)).sum().backward()
        others.step()
        x, y = batch(step, RANK)
        optimizer.zero_grad()
        cross_entropy(ddp(x), y).backward()
        optimizer.step()
    expect_steps(STEPS)
    return ddp


@case
def optimizer_inside_backward() -> nn.Module:
    """Each parameter is stepped as soon as its gradient is there; for sites of one rank, as torch's own does on CPU."""
    ddp = DistributedDataParallel(small_model())
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in ddp.parameters()}
    for parameter in ddp.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    for step in range(STEPS):
        x, y = batch(step, RANK)
        ddp.zero_grad()
        cross_entropy(ddp(x), y).backward()
    expect_steps(STEPS - 1)  # the last one is counted at the next forward, or at the end
    return ddp


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.head = nn.Linear(6, 3)
        self.frozen = nn.Linear(6, 6)
        for p in self.frozen.parameters():
            p.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(self.frozen(x))))))


@case
def tied_and_frozen() -> nn.Module:
    torch.manual_seed(3)
    model = Tied()
    before = model.frozen.weight.clone()
    ddp = fit(DistributedDataParallel(model))
    assert torch.equal(model.frozen.weight, before)
    assert model.second.weight is model.first.weight
    return ddp


@case
def batch_norm() -> nn.Module:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    ddp = fit(DistributedDataParallel(model))
    torch_collab.synchronize()
    for buffer in (model[1].running_mean, model[1].running_var):
        low, high = buffer.clone(), buffer.clone()
        dist.all_reduce(low, dist.ReduceOp.MIN)
        dist.all_reduce(high, dist.ReduceOp.MAX)
        assert torch.equal(low, high), "the sites' running statistics are averaged like parameters"
    return ddp


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.left(x) if bool(x[0, 0] > 0) else self.right(x)


@case
def unused_parameters() -> nn.Module:
    torch.manual_seed(6)
    return fit(DistributedDataParallel(Branches(), find_unused_parameters=True))


@case
def static_graph() -> nn.Module:
    return fit(DistributedDataParallel(small_model(), static_graph=True))


@case
def bucket_views() -> nn.Module:
    return fit(DistributedDataParallel(small_model(), gradient_as_bucket_view=True))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8)), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(checkpoint(self.body, x, use_reentrant=False))


@case
def activation_checkpointing() -> nn.Module:
    torch.manual_seed(7)
    ddp = fit(DistributedDataParallel(Checkpointed()))
    expect_steps(STEPS)
    return ddp


@case
def parameters_that_are_not_float32() -> nn.Module:
    """The vector is float32; one model's parameters are narrower, the other's wider."""
    narrow = DistributedDataParallel(small_model(1).to(torch.bfloat16))
    wide = DistributedDataParallel(small_model(2).double())
    optimizer = torch.optim.SGD([*narrow.parameters(), *wide.parameters()], lr=0.1)
    for step in range(STEPS):
        x, y = batch(step, RANK)
        optimizer.zero_grad()
        cross_entropy(narrow(x.bfloat16()).float(), y).backward()
        cross_entropy(wide(x.double()), y).backward()
        optimizer.step()
    expect_steps(STEPS)
    return nn.ModuleList([narrow, wide])


@case
def deep_copy() -> nn.Module:
    ddp = DistributedDataParallel(small_model())
    fit(ddp, steps=2)
    average = copy.deepcopy(ddp)
    with torch.no_grad():
        average(batch(0, RANK)[0])
    return fit(ddp)


@case
def parameters_moved_to_other_memory() -> nn.Module:
    """As `p.data = …` does, in some optimizers' steps and in `.to()` there and back: what is moved is averaged."""
    ddp = DistributedDataParallel(nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 3)))
    ddp.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(STEPS):
        x, y = batch(step, RANK, features=9)
        optimizer.zero_grad()
        cross_entropy(ddp(x.view(-1, 1, 3, 3)), y).backward()
        optimizer.step()
        for p in ddp.parameters():
            p.data = p.data.clone(memory_format=torch.contiguous_format)
    ddp.double().float()
    expect_steps(STEPS)
    return ddp


@case
def two_ddp_modules() -> nn.Module:
    """As a GAN does it: two models, two optimizers, one after the other."""
    left, right = DistributedDataParallel(small_model(1)), DistributedDataParallel(small_model(2))
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (left, right)]
    for step in range(STEPS):
        for ddp, optimizer in zip((left, right), optimizers, strict=True):
            x, y = batch(step, RANK)
            optimizer.zero_grad()
            cross_entropy(ddp(x), y).backward()
            optimizer.step()
    expect_steps(STEPS)
    return nn.ModuleList([left, right])


@case
def compiled() -> nn.Module:
    ddp = DistributedDataParallel(small_model())
    model = torch.compile(ddp, backend="aot_eager")
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    for step, size in enumerate((5, 7, 4, 9, 5)):
        x, y = batch(step, RANK, size)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    expect_steps(5)
    return ddp


@case
def compiled_inside() -> nn.Module:
    """Its forward counts samples once, however often the DDP's module is replaced."""
    ddp = DistributedDataParallel(small_model())
    ddp.module = torch.compile(ddp.module, backend="aot_eager")
    ddp.module = ddp.module
    assert len(ddp._forward_pre_hooks) == 1, ddp._forward_pre_hooks
    fit(ddp)
    expect_steps(STEPS)
    return ddp


@case
def not_a_number() -> nn.Module:
    """Site b breaks: its part is left out, it takes the anchor, and its optimizer's broken state starts anew."""
    ddp = DistributedDataParallel(small_model())
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    fit(ddp, optimizer)
    first = next(ddp.parameters())
    if torch_collab.site_index() == 1:
        with torch.no_grad():
            first[0, 0] = float("nan")
        optimizer.state[first]["exp_avg"][0, 0] = float("nan")
    torch_collab.synchronize()
    assert all(bool(torch.isfinite(p).all()) for p in ddp.parameters())
    assert (first in optimizer.state) == (torch_collab.site_index() == 0)
    return fit(ddp, optimizer)


@case
def told_samples() -> nn.Module:
    """Site b says that it has processed next to nothing: the swarm takes site a's model."""
    ddp = DistributedDataParallel(small_model())
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    for _ in range(STEPS):
        torch_collab.count_samples(1 if torch_collab.site_index() == 1 else 100_000)
        fit(ddp, optimizer, steps=1)
    before = [p.detach().clone() for p in ddp.parameters()]
    for tensor in before:
        dist.broadcast(tensor, 0)
    torch_collab.synchronize()
    for p, expected in zip(ddp.parameters(), before, strict=True):
        torch.testing.assert_close(p.detach(), expected, rtol=0, atol=1e-3)
    return ddp


def run(name: str, number: int, base: dist.Store) -> None:
    store = dist.PrefixStore(f"world{number}", base)
    dist.init_process_group("collab", store=store, rank=RANK, world_size=WORLD)
    module = CASES[name]()
    site = torch_collab.site_group()
    inside, across = spread_over_world(module, site), spread_over_world(module)
    assert inside == 0.0, f"{name}: ranks of a site differ by {inside}"
    torch_collab.synchronize()
    assert spread_over_world(module) == 0.0, f"{name}: sites differ after a round"
    dist.destroy_process_group()
    print(f"{name} ok (sites were {across:.2g} apart)", flush=True)


store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)
chosen = sys.argv[1:] or [name for name in CASES if name != "optimizer_inside_backward"]
for number, name in enumerate(chosen):
    run(name, number, store)
print("done", flush=True)
