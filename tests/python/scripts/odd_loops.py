"""Training loops that are written unlike the usual one: each in a world of its own. What it says is `name: words`."""

from __future__ import annotations

import copy
import io
import os
import sys
import threading
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch_collab
from common import RANK, WORLD, batch, drawn, mark, small_model, spread_over_world
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch_collab.model.modules import COPY_ALONE
from torch_collab.world import state

Forward = Callable[[torch.Tensor], torch.Tensor]
CASES: dict[str, Callable[[], None]] = {}


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


def fit(forward: Forward, optimizer: torch.optim.Optimizer, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        x, y = batch(step, RANK)
        optimizer.zero_grad()
        cross_entropy(forward(x), y).backward()
        optimizer.step()


def expect(**values: int) -> None:
    status = torch_collab.status()
    assert {name: status[name] for name in values} == values, (status, values)


def expect_common(module: nn.Module) -> None:
    """Only a round can have made the sites' parameters the same."""
    spread = spread_over_world(module)
    assert spread == 0.0, spread


def samples_seen() -> int:
    return state.require().training.samples.take()


@case
def forward_by_name() -> None:
    ddp = DistributedDataParallel(small_model())
    fit(ddp.forward, torch.optim.SGD(ddp.parameters(), lr=0.1), steps=8)
    expect(steps=8, round=2)
    expect_common(ddp)


@case
def forward_by_its_parts() -> None:
    """As torch's `replicate` does it."""
    ddp = DistributedDataParallel(small_model())

    def forward(x: torch.Tensor) -> torch.Tensor:
        args, kwargs = ddp._pre_forward(x)
        return ddp._post_forward(ddp.module(*args, **kwargs))

    fit(forward, torch.optim.SGD(ddp.parameters(), lr=0.1), steps=4)
    expect(steps=4, round=1)
    expect_common(ddp)


@case
def samples_once() -> None:
    class Named(DistributedDataParallel):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    class Whole(DistributedDataParallel):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.module(x)

    x, _ = batch(0, RANK, size=7)
    for kind in (DistributedDataParallel, Named, Whole):
        ddp = kind(small_model())
        compiled = torch.compile(ddp, backend="aot_eager")
        for forward in (ddp, ddp.forward, compiled, ddp):
            if kind is Whole and forward == ddp.forward:
                continue  # nothing of torch's is passed
            forward(x)
            assert samples_seen() == 7, (kind, forward)
        for evaluated in (ddp, ddp.module):
            ddp(x)
            evaluated.eval()
            ddp(batch(0, RANK, size=9)[0])
            evaluated.train()
            assert samples_seen() == 7, "a look at the loss, with gradients on"
        with torch.no_grad():
            ddp(x)
        assert samples_seen() == 1  # none
    ddp = DistributedDataParallel(small_model())
    hook = ddp.register_forward_pre_hook(fail)
    with pytest.raises(ValueError, match="not yet"):
        ddp(x)
    hook.remove()
    samples_seen()
    ddp.forward(x)
    assert samples_seen() == 7, "after a call that has failed before it came to forward()"


def fail(*_: object) -> None:
    raise ValueError("not yet")


@case
def sent_by_one_rank() -> None:
    """As a careful script does: harmless at the start and after a barrier; else what others trained is lost."""
    ddp = DistributedDataParallel(small_model())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)

    def send() -> None:
        dist.broadcast(torch.ones(1), 0)
        for parameter in ddp.parameters():
            dist.broadcast(parameter.data, src=0)

    send()
    fit(ddp, optimizer, steps=2)
    dist.barrier()
    send()
    mark("sent_by_one_rank: now between two rounds")
    fit(ddp, optimizer, steps=2)
    send()
    expect(steps=4, round=1)
    expect_common(ddp)


@case
def a_group_of_another_backend() -> None:
    """For CPU objects and joins, as scripts for GPUs make it."""
    for group in (dist.new_group(), dist.new_group([RANK], backend="gloo", use_local_synchronization=True)):
        dist.barrier(group)
    mark("a_group_of_another_backend: now over both sites")
    for _ in range(2):
        dist.monitored_barrier(dist.new_group(backend="gloo"))
    ddp = DistributedDataParallel(small_model())
    fit(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1), steps=4)


@case
def several_default_backends() -> None:
    """What changing one word makes of "cpu:gloo,cuda:nccl"."""
    dist.destroy_process_group()
    apart = dist.PrefixStore("several", store)
    dist.init_process_group("cpu:gloo,cuda:collab", store=apart, rank=RANK, world_size=WORLD)
    with pytest.raises(RuntimeError, match=r"cpu:gloo, cuda:collab.*\[ddp.mixed-backends\]"):
        DistributedDataParallel(small_model())


@case
def reduced_in_backward() -> None:
    """As apex and DeepSpeed do."""
    model = small_model()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad, dist.ReduceOp.AVG))
    fit(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=30)
    expect_common(model)


@case
def reduced_in_step() -> None:
    """By an optimizer that shares its work, with the names that torch has had since 2.13."""
    reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)

    class Shared(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure: None = None) -> None:
            for parameter in self.param_groups[0]["params"]:
                part = parameter.grad.new_empty(len(parameter) // WORLD, *parameter.shape[1:])
                reduce_scatter(part, parameter.grad, dist.ReduceOp.AVG)
                part.neg_().mul_(0.1).add_(parameter.chunk(WORLD)[RANK])
                all_gather(parameter.data, part)

    model = nn.Sequential(nn.Linear(6, 16, bias=False), nn.Tanh(), nn.Linear(16, 4, bias=False))
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    fit(model, Shared(model.parameters(), lr=0.1), steps=30)
    expect_common(model)


@case
def sharded() -> None:
    """Refused where the optimizer is made, before a forward has taken the model over the line."""
    mesh = init_device_mesh("cpu", (WORLD,))
    part = nn.Parameter(DTensor.from_local(torch.ones(2), mesh, [Shard(0)], run_check=False))
    with pytest.raises(RuntimeError, match=r"parameter of SGD is a DTensor.*\[ddp.dtensor\]"):
        torch.optim.SGD([part], lr=0.1)


@case
def around_the_ddp() -> None:
    """One forward of the DDP, a summary, say; then the module inside it is trained."""
    ddp = DistributedDataParallel(small_model())
    ddp(batch(0, RANK)[0])
    fit(ddp.module, torch.optim.SGD(ddp.parameters(), lr=0.1), steps=8)
    expect(steps=8, round=2)
    expect_common(ddp)


@case
def forwards_unseen() -> None:
    ddp = DistributedDataParallel(small_model())
    foreign = torch.optim.SGD(small_model().parameters(), lr=0.1)
    for _ in range(30):
        foreign.step()
    mark("forwards_unseen: now its own")
    fit(ddp.module, torch.optim.SGD(ddp.parameters(), lr=0.1), steps=30)
    expect(round=0)


@case
def masters_by_hand() -> None:
    ddp = DistributedDataParallel(small_model().bfloat16())
    masters = [p.detach().float().clone() for p in ddp.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=0.01)
    for step in range(30):
        x, y = batch(step, RANK)
        ddp.zero_grad()
        cross_entropy(ddp(x.bfloat16()).float(), y).backward()
        for master, p in zip(masters, ddp.parameters(), strict=True):
            master.grad = p.grad.float()
        optimizer.step()
        for master, p in zip(masters, ddp.parameters(), strict=True):
            p.data.copy_(master)
    expect(round=0)


def evolve(ddp: nn.Module, steps: int, stepped: Callable[[], None] = lambda: None) -> None:
    """Zeroth order: two looks at the loss for each update, none with gradients."""
    parameters = list(ddp.parameters())
    with torch.no_grad():
        for step in range(steps):
            x, y = batch(step, RANK)
            generator = torch.Generator().manual_seed(step)
            directions = [drawn(torch.randn(p.shape, generator=generator, device="cpu")) for p in parameters]
            losses = []
            for sign in (1.0, -1.0):
                torch._foreach_add_(parameters, directions, alpha=sign * 1e-3)
                losses.append(float(cross_entropy(ddp(x), y)))
                torch._foreach_add_(parameters, directions, alpha=-sign * 1e-3)
            torch._foreach_add_(parameters, directions, alpha=-0.01 * (losses[0] - losses[1]) / 2e-3)
            stepped()


@case
def without_gradients() -> None:
    ddp = DistributedDataParallel(small_model())
    evolve(ddp, steps=9)
    mark("without_gradients: now twenty")
    evolve(ddp, steps=9)
    mark("without_gradients: nothing more")
    evolve(ddp, steps=9)
    expect(generation=0)


@case
def without_gradients_and_told() -> None:
    ddp = DistributedDataParallel(small_model(RANK))
    evolve(ddp, steps=10, stepped=torch_collab.step)
    expect(steps=10, round=2, generation=1)
    assert spread_over_world(ddp) > 0.0
    dist.barrier()
    expect_common(ddp)


@case
def told_without_a_model() -> None:
    try:
        torch_collab.step()
    except RuntimeError as error:
        assert str(error).endswith("[capture.step-early]"), error
    else:
        raise AssertionError("a step of nothing")


@case
def no_samples() -> None:
    ddp = DistributedDataParallel(small_model())

    def forward(x: torch.Tensor) -> torch.Tensor:
        torch_collab.count_samples(0)
        return ddp(x)

    fit(forward, torch.optim.SGD(ddp.parameters(), lr=0.1), steps=4)
    expect(round=1)


@case
def two_of_the_whole_in_turn() -> None:
    ddp = DistributedDataParallel(small_model())
    optimizers = [torch.optim.Adam(ddp.parameters(), lr=0.01), torch.optim.SGD(ddp.parameters(), lr=0.01)]
    for epoch in range(4):
        fit(ddp, optimizers[epoch % 2], steps=6, first=6 * epoch)
        expect(steps=6 * (epoch + 1))
    expect(round=6)
    expect_common(ddp)


@case
def a_new_optimizer_each_epoch() -> None:
    ddp = DistributedDataParallel(small_model())
    kept = []  # so that none takes the place in memory of another
    for epoch in range(4):
        kept.append(torch.optim.Adam(ddp.parameters(), lr=0.01 / (epoch + 1)))
        fit(ddp, kept[-1], steps=6, first=6 * epoch)
        expect(steps=6 * (epoch + 1))
    expect(round=6)


@case
def a_new_optimizer_of_the_head_each_epoch() -> None:
    ddp = DistributedDataParallel(small_model())
    kept = []  # at one rank of a site: there none takes the place in memory of another
    for epoch in range(8):
        optimizer = torch.optim.Adam(ddp.module[4].parameters(), lr=0.01 / (epoch + 1))
        fit(ddp, optimizer, steps=6, first=6 * epoch)
        expect(steps=6 * (epoch + 1))
        kept.append(optimizer if RANK % 2 else None)
        del optimizer
    expect(round=12)


@case
def two_new_optimizers_each_epoch() -> None:
    ddp = DistributedDataParallel(small_model())
    first, second = list(ddp.parameters())[:2], list(ddp.parameters())[2:]
    kept: list[object] = []
    for epoch in range(8):
        optimizers = [torch.optim.SGD(first, lr=0.1), torch.optim.Adam(second, lr=0.01)]
        for step in range(6 * epoch, 6 * epoch + 6):
            x, y = batch(step, RANK)
            ddp.zero_grad()
            cross_entropy(ddp(x), y).backward()
            for optimizer in optimizers:
                optimizer.step()
        expect(steps=6 * (epoch + 1))
        kept.append(optimizers if RANK % 2 else None)
        del optimizer, optimizers
    expect(round=12)


@case
def a_cycle_in_a_barrier() -> None:
    """The generator steps seldom, at last no more; a barrier has a round for what the other has trained."""
    left, right = DistributedDataParallel(small_model(1)), DistributedDataParallel(small_model(2))
    seldom, often = (torch.optim.Adam(ddp.parameters(), lr=0.01) for ddp in (left, right))
    for step in range(6):
        fit(right, often, steps=1, first=step)
        if step % 2 and step < 4:
            fit(left, seldom, steps=1, first=step)
    assert spread_over_world(right) > 0
    dist.barrier()
    expect_common(nn.ModuleList([left, right]))
    expect(steps_since_round=0)
    steps = torch_collab.status()["steps"]
    fit(right, often, steps=2, first=6)
    dist.destroy_process_group()
    gathered = [p.detach().clone() for p in right.parameters()]
    mark(f"a_cycle_in_a_barrier: {steps} steps, {hash(tuple(gathered[0].flatten().tolist()))}")


class Adapted(nn.Module):
    """ReLoRA."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base = nn.Parameter(drawn(torch.randn(3, 6, device="cpu")), requires_grad=False)
        self.down, self.up = nn.Parameter(torch.zeros(2, 6)), nn.Parameter(torch.zeros(3, 2))
        self.begin_anew(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.base + self.up @ self.down).T

    @torch.no_grad()
    def begin_anew(self, seed: int) -> None:
        generator = torch.Generator("cpu").manual_seed(seed)
        self.base += self.up @ self.down
        self.down.copy_(torch.randn(2, 6, generator=generator, device="cpu"))
        self.up.zero_()


@case
def adapters_that_are_merged() -> None:
    """After a round all sites merge alike; between two each merges what it has."""
    ddp = DistributedDataParallel(Adapted())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for steps in (4, 6, 4):  # rounds every 4
        fit(ddp, optimizer, steps)
        dist.barrier()
        ddp.module.begin_anew(steps)
    fit(ddp, optimizer, steps=2)
    ddp.module.load_state_dict({name: held + 1 for name, held in ddp.module.state_dict().items()})
    fit(ddp, optimizer, steps=2)
    expect_common(ddp)
    mark("adapters_that_are_merged: now between two rounds")
    for seed in range(2):
        fit(ddp, optimizer, steps=2)
        ddp.module.begin_anew(seed)
        fit(ddp, optimizer, steps=2)
    assert spread_over_world(ddp.module) > 0.0


@case
def a_teacher() -> None:
    """An average of weights, called first and with gradients on."""
    ddp = DistributedDataParallel(small_model())
    teacher = AveragedModel(ddp, avg_fn=lambda average, value, _: 0.9 * average + 0.1 * value)
    frozen = copy.deepcopy(ddp).requires_grad_(False)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(12):
        x, y = batch(step, RANK)
        optimizer.zero_grad()
        taught = teacher(x + 0.01).detach() + frozen(x)
        answer = ddp(x)
        (cross_entropy(answer, y) + (answer - taught).square().mean()).backward()
        optimizer.step()
        teacher.update_parameters(ddp)
    expect(steps=12, round=3, generation=1)
    expect_common(ddp)


@case
def a_copy_for_each_task() -> None:
    ddp = DistributedDataParallel(small_model())
    outer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(8):
        fit(ddp, outer, steps=1, first=step)
        for _ in range(2):
            learner = copy.deepcopy(ddp)
            fit(learner, torch.optim.SGD(learner.parameters(), lr=0.1), steps=5)
    expect(steps=8, round=2, generation=1)
    expect_common(ddp)


@case
def a_copy_before_any_forward() -> None:
    """Nobody calls the DDP: only its copies are, and its gradients are set by hand."""
    ddp = DistributedDataParallel(small_model())
    outer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for _ in range(20):
        learner = copy.deepcopy(ddp)
        fit(learner, torch.optim.SGD(learner.parameters(), lr=0.1), steps=3)
        for p, q in zip(ddp.parameters(), learner.parameters(), strict=True):
            p.grad = (p - q).detach()
        outer.step()
    expect(generation=0)


@case
def a_copy_that_takes_over() -> None:
    ddp = DistributedDataParallel(small_model())
    fit(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1), steps=4)
    other = copy.deepcopy(ddp)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    fit(other, optimizer, steps=COPY_ALONE - 1)
    expect(generation=1)
    fit(other, optimizer, steps=4)
    expect(generation=2, steps=4, round=1)
    expect_common(other)


@case
def a_whole_ddp_that_was_saved() -> None:
    """No other is there when it trains; a frozen one that was loaded before it is a teacher."""
    saved = io.BytesIO()
    torch.save(DistributedDataParallel(small_model()), saved)
    teacher, ddp = (torch.load(io.BytesIO(saved.getvalue()), weights_only=False) for _ in range(2))
    teacher.requires_grad_(False)(batch(0, RANK)[0])
    expect(generation=0)
    fit(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1), steps=8)
    expect(steps=8, round=2, generation=1)
    expect_common(ddp)


@case
def uneven_inputs() -> None:
    """A rank has fewer batches in the first epoch, none in the second; then inputs are even, in join() and without."""
    ddp = DistributedDataParallel(small_model())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for epoch, batches in enumerate([(6, 9), (0, 5)]):
        with ddp.join():
            fit(ddp, optimizer, steps=batches[RANK % 2], first=10 * epoch)
        expect(steps=epoch + 1, steps_since_round=0)
        assert torch_collab.status()["round"] > epoch
        expect_common(ddp)
    with ddp.join(throw_on_early_termination=True):
        fit(ddp, optimizer, steps=10, first=20)
    fit(ddp, optimizer, steps=10, first=30)
    expect(steps=22)
    dist.barrier()
    assert torch_collab.status()["round"] > 2


@case
def a_barrier_beside_the_training() -> None:
    """As in torch.distributed.checkpoint.async_save: a round there would move the parameters under the training."""
    ddp = DistributedDataParallel(small_model())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    fit(ddp, optimizer, steps=6)
    beside = threading.Thread(target=dist.barrier)
    beside.start()
    beside.join()
    expect(steps=6, round=1)
    fit(ddp, optimizer, steps=2, first=6)
    expect(steps=8, round=2)
    expect_common(ddp)


@case
def a_step_apart() -> None:
    """One step is skipped at one site (GradScaler, a batch without a target), and collectives come more often than
    rounds: whenever a period is over here, the other site stands in a collective that waits for this one."""
    ddp = DistributedDataParallel(small_model())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    fit(ddp, optimizer, steps=1 - RANK)
    for step in range(1, 24):
        fit(ddp, optimizer, steps=1, first=step)
        if step % 2:
            dist.all_reduce(torch.ones(1))
    assert torch_collab.status()["round"] >= 4, torch_collab.status()


@case
def join_of_one_rank() -> None:
    """Nobody to wait for: rounds come inside."""
    ddp = DistributedDataParallel(small_model())
    with ddp.join():
        fit(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1), steps=8)
        expect(steps=8, round=2)
    expect_common(ddp)


def run(name: str, store: dist.Store) -> None:
    """In one store for all: a world that is made again finds nothing of the one before."""
    dist.init_process_group("collab", store=store, rank=RANK, world_size=WORLD)
    mark(f"{name}: begins")
    CASES[name]()
    if dist.is_initialized():
        dist.destroy_process_group()
    mark(f"{name}: ended")


store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)
for chosen in sys.argv[1:]:
    run(chosen, store)
