"""What scripts do to the parameters they train, and several models in one process. Each case named by an argument runs
in this one world, one after the other, at every rank."""

from __future__ import annotations

import copy
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, batch, mark, parameters_of, small_model, spread_over_world
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1)


def train(ddp: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 5, seconds: float = 0) -> None:
    for step in range(steps):
        time.sleep(seconds)
        x, y = batch(step, RANK)
        optimizer.zero_grad()
        cross_entropy(ddp(x), y).backward()
        optimizer.step()


def generation() -> int:
    return int(torch_collab.status()["generation"])


def agree(ddp: nn.Module) -> None:
    """The sites have moved apart, and a round brings them together: the vector is what the script trains."""
    apart = spread_over_world(ddp)
    assert apart > 0.0, "each site trains on data of its own"
    dist.barrier()
    assert spread_over_world(ddp) == 0.0
    assert torch_collab.status()["steps_since_round"] == 0


def new_storage() -> None:
    ddp = DistributedDataParallel(small_model(RANK))
    optimizer = sgd(ddp)
    train(ddp, optimizer)
    before = generation()
    for parameter in ddp.parameters():
        parameter.data = parameter.data.clone()
    train(ddp, optimizer)
    agree(ddp)
    assert generation() == before


def there_and_back() -> None:
    """At a site of several ranks DDP itself does not survive another type: it loses its hooks."""
    ddp = DistributedDataParallel(small_model(RANK))
    optimizer = sgd(ddp)
    train(ddp, optimizer)
    ddp.module.to(torch.float64).to(torch.float32)
    train(ddp, optimizer)
    agree(ddp)


def assigned_before_the_first_forward() -> None:
    ddp = DistributedDataParallel(small_model(RANK))
    ddp.module.load_state_dict({name: value.clone() for name, value in ddp.module.state_dict().items()}, assign=True)
    train(ddp, sgd(ddp))
    agree(ddp)


def assigned_while_it_trains() -> None:
    ddp = DistributedDataParallel(small_model(RANK))
    train(ddp, sgd(ddp))
    before = generation()
    ddp.module.load_state_dict({name: value.clone() for name, value in ddp.module.state_dict().items()}, assign=True)
    train(ddp, sgd(ddp))
    agree(ddp)
    assert generation() == before


def copied_early() -> None:
    ddp = DistributedDataParallel(small_model(RANK))
    average = copy.deepcopy(ddp.module)
    train(ddp, sgd(ddp))
    assert average is not None


def copied_late() -> None:
    ddp = DistributedDataParallel(small_model(RANK))
    ddp(batch(0, RANK)[0])
    average = copy.deepcopy(ddp.module)
    train(ddp, sgd(ddp))
    assert average is not None


def checkpointed() -> None:
    ddp = DistributedDataParallel(small_model())
    train(ddp, sgd(ddp))
    import torch.distributed.checkpoint as dcp  # a script may do so late

    train(ddp, sgd(ddp))
    mine = {name: value.clone() for name, value in ddp.module.state_dict().items()}
    for what, group in (("the site", torch_collab.site_group()), ("the world", None)):
        with tempfile.TemporaryDirectory() as folder:
            dcp.save({"model": ddp.module.state_dict()}, checkpoint_id=folder, process_group=group)
            mark(f"saved over {what}")
            if group is not None:
                read = {name: torch.zeros_like(value) for name, value in mine.items()}
                dcp.load({"model": read}, checkpoint_id=folder, process_group=group)
                assert all(torch.equal(read[name], value) for name, value in mine.items())


def one_rank_alone() -> None:
    """Before a barrier: nobody comes."""
    ddp = DistributedDataParallel(small_model())
    if RANK == 0:
        ddp(batch(0, RANK)[0])
    dist.barrier()


def torchscript() -> None:
    traced = torch.jit.trace(small_model(RANK), batch(0, RANK)[0])
    for model in (torch.jit.script(small_model(RANK)), nn.Sequential(traced, nn.Linear(3, 3))):
        ddp = DistributedDataParallel(model)
        train(ddp, sgd(ddp))
        agree(ddp)


def second_wrapper() -> None:
    """As a second HF Trainer around the same model makes it."""
    model = small_model(RANK)
    first = DistributedDataParallel(model)
    train(first, sgd(first))
    before = generation()
    del first
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    second = DistributedDataParallel(model)
    train(second, sgd(second))
    agree(second)
    assert generation() == before


def folds() -> None:
    """k-fold: a new model each, the old ones kept for an ensemble."""
    kept = []
    for fold in range(3):
        ddp = DistributedDataParallel(small_model(10 * fold + RANK))
        before = generation()
        train(ddp, sgd(ddp))
        assert generation() == before + 1
        agree(ddp)
        kept.append((ddp, parameters_of(ddp)))
        for older, values in kept:
            assert all(torch.equal(a, b) for a, b in zip(parameters_of(older), values, strict=True))


def gan() -> None:
    """Two modules that train together, each frozen while the other steps."""
    generator = DistributedDataParallel(nn.Linear(6, 6))
    critic = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)))
    of_generator, of_critic = sgd(generator), sgd(critic)
    before = generation()
    for step in range(6):
        x, _ = batch(step, RANK)
        of_critic.zero_grad()
        (critic(generator(x).detach()).mean() - critic(x).mean()).backward()
        of_critic.step()
        for parameter in critic.parameters():
            parameter.requires_grad_(False)
        of_generator.zero_grad()
        (-critic(generator(x)).mean()).backward()
        of_generator.step()
        for parameter in critic.parameters():
            parameter.requires_grad_(True)
    assert generation() == before + 1
    dist.barrier()
    assert spread_over_world(generator) == 0.0 and spread_over_world(critic) == 0.0


def one_that_comes_back() -> None:
    """Two that are trained in turn are one vector from the second turn of the first one on."""
    first, second = (DistributedDataParallel(small_model(10 * i + RANK)) for i in range(2))
    train(first, sgd(first))
    third = DistributedDataParallel(small_model(20 + RANK))
    train(third, sgd(third))
    train(first, sgd(first))
    together = generation()
    train(third, sgd(third))
    train(first, sgd(first))
    assert generation() == together
    dist.barrier()
    assert spread_over_world(first) == 0.0 and spread_over_world(third) == 0.0
    del second


def unfreezing() -> None:
    model = small_model()
    model[0].requires_grad_(False)
    ddp = DistributedDataParallel(model)
    train(ddp, sgd(ddp))
    dist.barrier()
    before = generation()
    model[0].requires_grad_(True)
    ddp = DistributedDataParallel(model)
    train(ddp, sgd(ddp))
    assert generation() == before + 1
    agree(ddp)


def unfrozen_without_a_new_wrapper() -> None:
    model = small_model()
    model[0].requires_grad_(False)
    ddp = DistributedDataParallel(model)
    train(ddp, sgd(ddp))
    model[0].requires_grad_(True)
    train(ddp, sgd(ddp))


def uneven() -> None:
    """One site comes to the next model long before the other, which goes on with the last one meanwhile."""
    ddp = DistributedDataParallel(small_model(RANK))
    train(ddp, sgd(ddp), 8 if RANK == 0 else 60, seconds=0.05)
    ddp = DistributedDataParallel(small_model(RANK))
    train(ddp, sgd(ddp))
    agree(ddp)


def own_updates() -> None:
    """No torch.optim.Optimizer: the script updates its parameters by itself, and says so in the end."""
    ddp = DistributedDataParallel(small_model(RANK))
    for step in range(30):
        x, y = batch(step, RANK)
        ddp.zero_grad()
        cross_entropy(ddp(x), y).backward()
        with torch.no_grad():
            for parameter in ddp.parameters():
                parameter -= 0.1 * parameter.grad
        if step >= 25:
            torch_collab.step()
    assert torch_collab.status()["steps"] == 5
    agree(ddp)


def rate_of_zero() -> None:
    ddp = DistributedDataParallel(small_model(RANK))
    train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.0))
    dist.barrier()


def other_type() -> None:
    ddp = DistributedDataParallel(small_model(RANK))
    optimizer = sgd(ddp)
    train(ddp, optimizer)
    last = list(ddp.parameters())[-1]
    last.data = last.data.double()
    last.grad = None
    try:
        optimizer.step()
    except ValueError as error:
        mark(f"other_type: {error}")
    else:
        raise AssertionError("went through")


def assigned_at_several_ranks() -> None:
    ddp = DistributedDataParallel(small_model(RANK))
    train(ddp, sgd(ddp))
    ddp.module.load_state_dict(copy.deepcopy(ddp.module.state_dict()), assign=True)
    try:
        train(ddp, sgd(ddp))
    except RuntimeError as error:
        mark(f"assigned_at_several_ranks: {error}")
    else:
        raise AssertionError("went through")


def large() -> None:
    """25 M parameters: how long the next generation takes to begin."""
    for seed in range(2):
        torch.manual_seed(seed)
        ddp = DistributedDataParallel(nn.Sequential(nn.Linear(5000, 5000, bias=False), nn.Linear(5000, 3)))
        optimizer = sgd(ddp)
        dist.barrier()
        begin = time.perf_counter()
        output = ddp(torch.ones(1, 5000))
        mark(f"generation {generation()} began in {time.perf_counter() - begin:.2f} s")
        output.sum().backward()
        optimizer.step()


dist.init_process_group("collab")
for case in sys.argv[1:]:
    globals()[case]()
    mark(f"{case} ok")
dist.destroy_process_group()
mark("done")
