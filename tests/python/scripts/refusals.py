"""Many refusals in one process: each in a world of its own, each caught; what was said is printed as `name: words`."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, WORLD, batch, small_model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

STORE = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)


def init(name: str, options: object = None) -> None:
    dist.init_process_group(
        "collab", store=dist.PrefixStore(name, STORE), rank=RANK, world_size=WORLD, pg_options=options
    )


def expect(name: str, kind: type[Exception], body: Callable[[], None]) -> None:
    try:
        body()
    except kind as error:
        print(f"{name}: {error}", flush=True)
    else:
        raise AssertionError(f"{name} went through")


def knob(variable: str, value: str) -> None:
    os.environ[variable] = value
    try:
        expect(variable, ValueError, lambda: init(variable))
    finally:
        del os.environ[variable]


def step(ddp: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = batch(0, RANK)
    cross_entropy(ddp(x), y).backward()
    optimizer.step()


def zero() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    ddp = DistributedDataParallel(small_model())
    step(ddp, ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1))


def post_local_sgd() -> None:
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    ddp = DistributedDataParallel(small_model())
    inner = torch.optim.SGD(ddp.parameters(), lr=0.1)
    step(ddp, PostLocalSGDOptimizer(inner, PeriodicModelAverager(period=1, warmup_steps=0)))


def fsdp() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    FullyShardedDataParallel(small_model(), device_id=torch.device("cpu"))


def too_early() -> None:
    torch_collab.synchronize()


knob("COLLAB_SYNC_EVRY", "5")
knob("COLLAB_CODEC", "zip")
knob("COLLAB_ROUND_TIMEOUT", "5 parsecs")
knob("COLLAB_CONNECTIONS", "100000")
expect("bad option", ValueError, lambda: init("bad option", torch_collab.Options(codec="zap")))
expect("foreign options", ValueError, lambda: init("foreign options", dist.ProcessGroupGloo._Options()))
expect("no world", RuntimeError, lambda: print(torch_collab.sites()))
for body in (zero, post_local_sgd, fsdp, too_early):
    init(body.__name__)
    expect(body.__name__, RuntimeError, body)
    dist.destroy_process_group()
print("done", flush=True)
