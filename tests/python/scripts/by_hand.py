"""Gradients that are reduced by hand in backward, and by communication hooks, over two sites of two ranks."""

from __future__ import annotations

import copy
import pickle
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

STEPS = 4
SITE = [RANK // 2 * 2, RANK // 2 * 2 + 1]


def loss_of(model: nn.Module, step: int, rank: int = RANK) -> torch.Tensor:
    x, y = batch(step, rank)
    return cross_entropy(model(x), y)


def expected_gradients(model: nn.Module, step: int, ranks: list[int]) -> list[torch.Tensor]:
    """The mean over these ranks, by plain autograd."""
    alone = copy.deepcopy(model)
    for p in alone.parameters():
        p._post_accumulate_grad_hooks = None
        p._backward_hooks = None
    alone.zero_grad()
    for rank in ranks:
        (loss_of(alone, step, rank) / len(ranks)).backward()
    return [p.grad.clone() for p in alone.parameters()]


def expect(model: nn.Module, gradients: list[torch.Tensor], **tolerance: float) -> None:
    for p, right in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(p.grad, right, **tolerance)


def reduce_after_accumulation(model: nn.Module) -> nn.Module:
    def reduce(p: torch.Tensor) -> None:
        dist.all_reduce(p.grad, dist.ReduceOp.AVG)

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(reduce)
    return model


def reduce_in_tensor_hooks(model: nn.Module) -> nn.Module:
    def reduce(gradient: torch.Tensor) -> torch.Tensor:
        whole = gradient.clone()
        future = dist.all_reduce(whole, async_op=True).get_future()
        return future.then(lambda f: f.value()[0] / dist.get_world_size()).wait()

    for p in model.parameters():
        p.register_hook(reduce)
    return model


def own_hook(state: object, bucket):  # torch looks at annotations, which are strings in this file
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda f: f.value()[0] / dist.get_world_size())


def chained_hook(state: object, bucket):
    """Its second collective is issued in a callback, as PowerSGD's are."""
    first = dist.all_reduce(torch.ones(1), async_op=True).get_future()

    def then(f):
        assert f.value()[0].item() == WORLD
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().wait()[0] / dist.get_world_size()

    return first.then(then)


def without_ddp(reduced: Callable[[nn.Module], nn.Module]) -> None:
    model = reduced(small_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        right = expected_gradients(model, step, list(range(WORLD)))
        optimizer.zero_grad()
        loss_of(model, step).backward()
        expect(model, right)
        optimizer.step()
    assert spread_over_world(model) == 0.0


def beside_ddp(hook: Callable[..., object] | None) -> None:
    """One backward of both; the DDP's gradients are the site's, the other model's the world's."""
    ddp = DistributedDataParallel(small_model(1))
    if hook is not None:
        ddp.register_comm_hook(state=None, hook=hook)
    other = reduce_after_accumulation(small_model(2))
    optimizer = torch.optim.SGD([*ddp.parameters(), *other.parameters()], lr=0.1)
    for step in range(STEPS):
        of_site = expected_gradients(ddp.module, step, SITE)
        of_world = expected_gradients(other, step, list(range(WORLD)))
        optimizer.zero_grad()
        (loss_of(ddp, step) + loss_of(other, step)).backward()
        expect(ddp.module, of_site)
        expect(other, of_world)
        optimizer.step()
    assert spread_over_world(other) == 0.0
    assert spread_over_world(ddp.module, torch_collab.site_group()) == 0.0


def torch_hooks() -> None:
    power = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
    hooks = (
        (None, default_hooks.allreduce_hook),
        (None, default_hooks.fp16_compress_hook),
        (power, default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
    )
    modules = [DistributedDataParallel(small_model(number)) for number in range(len(hooks))]
    for ddp, (state, hook) in zip(modules, hooks, strict=True):
        ddp.register_comm_hook(state, hook)
    for ddp in modules:
        of_site = expected_gradients(ddp.module, 0, SITE)
        loss_of(ddp, 0).backward()
        expect(ddp.module, of_site, rtol=2e-3, atol=1e-3)


def copies(make: Callable[[nn.Module], nn.Module]) -> None:
    """Copies and pickles list the script's own hook, and reduce over the site without it, as torch's copies do."""
    made = make(DistributedDataParallel(small_model()))
    assert made._comm_hooks == [(own_hook, None)], made._comm_hooks
    of_site = expected_gradients(made.module, 0, SITE)
    loss_of(made, 0).backward()
    expect(made.module, of_site)
    del made
    without_ddp(reduce_after_accumulation)


def hooked(ddp: nn.Module) -> nn.Module:
    ddp.register_comm_hook(None, own_hook)
    return ddp


CASES = {
    "after accumulation": lambda: without_ddp(reduce_after_accumulation),
    "tensor hooks": lambda: without_ddp(reduce_in_tensor_hooks),
    "beside a DDP": lambda: beside_ddp(None),
    "beside a DDP with a hook": lambda: beside_ddp(own_hook),
    "beside a DDP with a chained hook": lambda: beside_ddp(chained_hook),
    "torch's hooks": torch_hooks,
    "a copy": lambda: copies(lambda ddp: copy.deepcopy(hooked(ddp))),
    "a pickle": lambda: copies(lambda ddp: pickle.loads(pickle.dumps(hooked(ddp)))),
}

dist.init_process_group("collab")
for case in sys.argv[1:]:
    CASES[case]()
    print(f"{case}: as it should be", flush=True)
dist.destroy_process_group()
