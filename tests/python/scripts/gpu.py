"""What scripts do on a GPU, at one rank of each of two sites: each case ends with one model at both.

    gpu.py CASE

Prints `steps N rounds N` and `done`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, batch, small_model, spread_over_world
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

STEPS = 12
HERE = torch.device("cuda", torch.cuda.current_device())
Step = Callable[[int], None]


def data(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = batch(step, RANK)
    return x.to(HERE), y.to(HERE)


def wrapped(model: nn.Module) -> DistributedDataParallel:
    return DistributedDataParallel(model.to(HERE), device_ids=[HERE.index])


def loop(ddp: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    def one(step: int) -> None:
        x, y = data(step)
        cross_entropy(ddp(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return one


def fused() -> tuple[nn.Module, Step]:
    ddp = wrapped(small_model(RANK))
    return ddp, loop(ddp, torch.optim.AdamW(ddp.parameters(), lr=0.01, fused=True))


def capturable() -> tuple[nn.Module, Step]:
    ddp = wrapped(small_model(RANK))
    return ddp, loop(ddp, torch.optim.AdamW(ddp.parameters(), lr=0.01, capturable=True))


def half() -> tuple[nn.Module, Step]:
    """bfloat16 parameters, some of them strided."""
    model = small_model(RANK).to(HERE, torch.bfloat16)
    with torch.no_grad():
        model[0].weight.data = model[0].weight.data.t().contiguous().t()
    ddp = wrapped(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)

    def one(step: int) -> None:
        x, y = data(step)
        cross_entropy(ddp(x.bfloat16()).float(), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return ddp, one


def scaled() -> tuple[nn.Module, Step]:
    """Mixed precision; the first step overflows and the scaler skips it."""
    ddp = wrapped(small_model(RANK))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01, fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**100 if RANK == 0 else 2.0**10)

    def one(step: int) -> None:
        x, y = data(step)
        with torch.autocast("cuda", torch.float16):
            loss = cross_entropy(ddp(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return ddp, one


def streams() -> tuple[nn.Module, Step]:
    """The script trains on a stream of its own, behind much work: a round must not read what is not there yet."""
    ddp = wrapped(small_model(RANK))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    side = torch.cuda.Stream()
    heavy = torch.randn(4096, 4096, device=HERE)
    side.wait_stream(torch.cuda.current_stream())

    def one(step: int) -> None:
        with torch.cuda.stream(side):
            x, y = data(step)
            for _ in range(20):
                heavy.copy_((heavy @ heavy).tanh_())
            scale = 1.0 + 0.0 * heavy[0, 0].nan_to_num()
            (scale * cross_entropy(ddp(x), y)).backward()
            optimizer.step()
            optimizer.zero_grad()

    return ddp, one


def graph() -> tuple[nn.Module, Step]:
    """Forward, backward and step in a CUDA graph; the script says when it has been replayed."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # as torch wants it of what is captured
        ddp = wrapped(small_model(RANK))
        optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01, capturable=True)
        x, y = data(0)
        plain = loop(ddp, optimizer)
        plain(0)
    torch.cuda.current_stream().wait_stream(side)
    inner = ddp.module  # a site of one rank has no gradients to average
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        cross_entropy(inner(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    def one(step: int) -> None:
        new_x, new_y = data(step)
        x.copy_(new_x)
        y.copy_(new_y)
        captured.replay()
        torch_collab.step()

    return ddp, one


def compiled() -> tuple[nn.Module, Step]:
    ddp = wrapped(small_model(RANK))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    return ddp, loop(torch.compile(ddp), optimizer)  # type: ignore[arg-type]


def norms() -> tuple[nn.Module, Step]:
    """Channels last, batch statistics, an average of weights beside."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 3))
    model = model.to(HERE, memory_format=torch.channels_last)
    ddp = wrapped(model)
    ema = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)

    def one(step: int) -> None:
        generator = torch.Generator(HERE).manual_seed(100 * step + RANK)
        x = torch.randn(4, 3, 6, 6, device=HERE, generator=generator)
        cross_entropy(ddp(x.to(memory_format=torch.channels_last)), torch.arange(4, device=HERE) % 3).backward()
        optimizer.step()
        optimizer.zero_grad()
        ema.update_parameters(model)

    return ddp, one


def main() -> None:
    dist.init_process_group("collab")
    torch.manual_seed(RANK)
    ddp, one = globals()[sys.argv[1]]()
    for step in range(STEPS):
        one(step)
    told = torch_collab.status()
    dist.barrier()
    worst = spread_over_world(ddp)
    assert worst == 0.0, f"parameters differ by {worst}"
    assert all(bool(p.isfinite().all()) for p in ddp.parameters())
    print(f"steps {told['steps']} rounds {told['round']}", flush=True)
    dist.destroy_process_group()
    print("done", flush=True)


main()
