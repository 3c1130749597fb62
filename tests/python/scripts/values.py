"""What stands in the parameters' place is not always what was trained, nor what stays. Case by case, named first."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, batch, small_model, spread_over_world
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

CASE = sys.argv[1]
dist.init_process_group("collab")


def train(ddp: nn.Module, optimizer: torch.optim.Optimizer, steps: range, label: int | None = None) -> None:
    for step in steps:
        x, y = batch(step, RANK)
        if label is not None:
            y = torch.full_like(y, label)
        optimizer.zero_grad()
        cross_entropy(ddp(x), y).backward()
        optimizer.step()


def largest(ddp: nn.Module) -> float:
    return max(float(parameter.detach().abs().max()) for parameter in ddp.parameters())


def load_best(part: str = "") -> None:
    """13 steps, a round every 5; then rank 0 loads another state and tests it."""
    ddp = DistributedDataParallel(small_model())
    train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1), range(13))
    if RANK == 0:
        module = ddp.module[0] if part else ddp.module
        module.load_state_dict({name: torch.full_like(held, 100.0) for name, held in module.state_dict().items()})
    dist.destroy_process_group()
    print("largest", largest(ddp), flush=True)


def load_best_of_a_part() -> None:
    load_best("0")


def copy_to() -> None:
    ddp = DistributedDataParallel(small_model())
    train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1), range(13))
    if RANK == 0:
        for parameter in ddp.parameters():
            parameter.data = torch.full_like(parameter, 100.0)
    dist.destroy_process_group()
    print("largest", largest(ddp), flush=True)


def load_and_restore() -> None:
    """The last round is not lost where the trained state is back by then."""
    ddp = DistributedDataParallel(small_model())
    train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1), range(13))
    trained = {name: held.clone() for name, held in ddp.module.state_dict().items()}
    ddp.module.load_state_dict({name: torch.full_like(held, 100.0) for name, held in trained.items()})
    ddp.module.load_state_dict(trained)
    dist.destroy_process_group()
    print("sum", sum(float(parameter.detach().double().sum()) for parameter in ddp.parameters()), flush=True)


def ema_swap() -> None:
    """An average of weights stands in the model in each barrier."""
    ddp = DistributedDataParallel(small_model())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    average = [parameter.detach().clone() for parameter in ddp.parameters()]
    for epoch in range(3):
        train(ddp, optimizer, range(4 * epoch, 4 * epoch + 4))
        since = torch_collab.status()["steps_since_round"]
        trained = [parameter.detach().clone() for parameter in ddp.parameters()]
        for kept, parameter in zip(average, ddp.parameters(), strict=True):
            kept.lerp_(parameter.detach(), 0.1)
            parameter.data.copy_(kept)
        dist.barrier()
        assert torch_collab.status()["steps_since_round"] == since
        assert all(torch.equal(kept, parameter) for kept, parameter in zip(average, ddp.parameters(), strict=True))
        for kept, parameter in zip(trained, ddp.parameters(), strict=True):
            parameter.data.copy_(kept)
    dist.destroy_process_group()
    print("sum", sum(float(parameter.detach().double().sum()) for parameter in ddp.parameters()), flush=True)


def clipped() -> None:
    """A script that clips its weights after each step, as WGAN does, has its round in a barrier."""
    ddp = DistributedDataParallel(small_model())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(8):
        train(ddp, optimizer, range(step, step + 1))
        for parameter in ddp.parameters():
            parameter.data.clamp_(-0.05, 0.05)
    dist.barrier()
    assert torch_collab.status()["steps_since_round"] == 0
    assert spread_over_world(ddp) == 0.0


class Masters(torch.optim.SGD):
    """fp32 copies of its own, in no state of torch's."""

    def __init__(self, parameters: list[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, lr=lr)
        self.masters = [parameter.detach().float().clone() for parameter in parameters]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for master, parameter in zip(self.masters, self.param_groups[0]["params"], strict=True):
            master.add_(parameter.grad.float(), alpha=-self.param_groups[0]["lr"])
            parameter.copy_(master)


class Slow(torch.optim.AdamW):
    """Lookahead's slow weights, in its state."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step()
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state.setdefault("slow", parameter.clone())
            if int(state["step"]) % 6 == 0:
                state["slow"].lerp_(parameter, 0.5)
                parameter.copy_(state["slow"])


OPTIMIZERS = {
    "masters": lambda parameters: Masters(parameters, lr=0.1),
    "slow": lambda parameters: Slow(parameters, lr=0.002),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.95),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.02),
    "asgd": lambda parameters: torch.optim.ASGD(parameters, lr=0.1),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.9),
}


def optimize() -> None:
    """Each site learns one label of its own, so that a round changes much more than the step after it."""
    ddp = DistributedDataParallel(small_model())
    optimizer = OPTIMIZERS[sys.argv[2]](list(ddp.parameters()))
    step = 0
    while step < 5 or torch_collab.status()["round"] < 12:
        train(ddp, optimizer, range(step, step + 5), label=RANK)
        step += 5


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = small_model()
        torch.manual_seed(7 + RANK)
        self.expert = nn.Linear(6, 6)
        self.expert.register_buffer("scale", torch.full((3,), float(RANK)))
        self.weight = nn.Parameter(torch.full((4,), float(RANK)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shared(x + torch.tanh(self.expert(x))) * self.weight.mean().tanh().exp()


def ignored() -> None:
    """Experts of a rank's own, which DDP leaves alone: trained ones, a frozen one, a buffer, one of the root."""
    model = Experts()
    model.expert.bias.requires_grad_(False)
    mine = {name: held.clone() for name, held in model.state_dict().items() if not name.startswith("shared")}
    names = ["expert.weight", "expert.bias", "expert.scale", "weight", ".weight"]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    ddp = DistributedDataParallel(model)
    assert spread_over_world(ddp.module.expert) > 0
    optimizer = torch.optim.SGD(model.shared.parameters(), lr=0.1)
    train(ddp, optimizer, range(12))
    dist.barrier()
    assert torch_collab.status()["round"] > 1 and torch_collab.status()["steps_since_round"] == 0
    assert spread_over_world(model.shared) == 0.0
    assert all(torch.equal(model.state_dict()[name], held) for name, held in mine.items()), mine


def frozen() -> None:
    """A frozen layer drawn at random at each rank: DDP gives all of them rank 0's."""
    torch.manual_seed(RANK)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), small_model())
    model[0].requires_grad_(False)
    drawn = [parameter.detach().clone() for parameter in model[0].parameters()]
    ddp = DistributedDataParallel(model)
    train(ddp, torch.optim.SGD(model[2].parameters(), lr=0.1), range(6))
    assert spread_over_world(model[0]) == 0.0
    if RANK == 0:
        assert all(torch.equal(a, b) for a, b in zip(drawn, model[0].parameters(), strict=True))


globals()[CASE]()
if dist.is_initialized():
    dist.destroy_process_group()
print("done", flush=True)
