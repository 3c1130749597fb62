"""Finds training that causes no rounds, because its steps or forwards are not seen.

Parameters may change between synchronised backward passes without a `torch.optim.Optimizer` of theirs, or without any
pass that has gradients. Optimizers may step before a forward of a DDP that they train, or without a DDP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torch.nn.parameter import is_lazy

from torch_collab import log, torch_compat
from torch_collab.model.values import capturing

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

# So many changes without a step are no warm-up.
PASSES = 20
_SAMPLED = 8
_MOST_LOOKS = 1000  # each look waits for the device


class _Changes:
    """How often a few values of the parameters differed from the previous look."""

    def __init__(self) -> None:
        self._values: list[float] | None = None
        self._count = 0

    def look(self, parameters: list[Tensor]) -> int:
        values = sample(parameters)
        if self._values is not None and values != self._values:
            self._count += 1
        self._values = values
        return self._count


class UnseenSteps:
    """Looks at the parameters before each training forward, until a step has been seen."""

    def __init__(self) -> None:
        self._changes = _Changes()
        self._over = False
        self.steps = 0  # of all optimizers, counted or not

    def stepped(self) -> None:
        self._over = True
        self.steps += 1

    def forward(self, ddp: nn.Module, parameters: list[Tensor], tells: bool) -> None:
        """A training forward of `ddp` begins; not counted under no_sync(). `tells`: this rank may warn."""
        if self._over or not torch_compat.syncs_gradients(ddp):
            return
        if capturing():
            return
        if self._changes.look(parameters) < PASSES:
            return
        self._over = True
        if tells:
            log.warning(
                f"the parameters have changed in {PASSES} training passes without a step of a torch.optim.Optimizer "
                "that holds them. So there will be no rounds, and nothing is averaged between sites. If the script "
                "updates its parameters itself, call torch_collab.step() after each update. If it copies them from "
                "others (fp32 masters), refresh those from the parameters after each round, when "
                'torch_collab.status()["round"] has changed; otherwise they undo the round [optimizer.unseen]'
            )


class WithoutGradients:
    """Looks at the parameters of all DDPs before each forward that has no gradients, while none has had any."""

    def __init__(self) -> None:
        self._changes = _Changes()
        self._looks = 0

    def forward(self, parameters: list[Tensor], tells: bool) -> None:
        if self._looks == _MOST_LOOKS or capturing():
            return
        self._looks += 1
        if self._changes.look(parameters) < PASSES:
            return
        self._looks = _MOST_LOOKS
        if tells:
            log.warning(
                f"parameters of a DistributedDataParallel have changed {PASSES} times between forwards without "
                "gradients; no forward with gradients was seen, and no step of an optimizer. If this is training "
                "(evolution, zeroth order), there are no rounds, and nothing is averaged between sites: call "
                "torch_collab.step() after each update, on every rank [capture.no-gradients]"
            )


class UnseenForwards:
    """Counts steps of optimizers that hold parameters of a DDP, none of whose training forwards has been seen yet."""

    def __init__(self) -> None:
        self._steps = 0

    @property
    def none(self) -> bool:
        """Whether no such step was seen."""
        return self._steps == 0

    def stepped(self, optimizer: Optimizer, of_ddps: Iterable[frozenset[int]], tells: bool) -> None:
        """`of_ddps`: id() of what each DDP was made to train. `tells`: this rank may warn."""
        if self._steps == PASSES:
            return
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if all(held.isdisjoint(trained) for trained in of_ddps):
            return
        self._steps += 1
        if self._steps == PASSES and tells:
            log.warning(
                f"{type(optimizer).__name__} has made {PASSES} steps with parameters of a DistributedDataParallel, but "
                "no training forward of it was seen. So there are no rounds, and nothing is averaged between sites. "
                "Call the DistributedDataParallel itself, ddp(x), not the module inside it [optimizer.unseen-forward]"
            )


class StepsWithoutDdp:
    """Counts steps of optimizers while no DDP is there."""

    def __init__(self) -> None:
        self._steps = 0
        self._elements = 0  # held by the largest optimizer

    def stepped(self, optimizer: Optimizer) -> bool:
        """Counts a step. True once there were PASSES of them."""
        if self._steps == PASSES:
            return False
        self._steps += 1
        held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._elements = max(self._elements, sum(each.numel() for each in held if not is_lazy(each)))
        return self._steps == PASSES

    def are_reduced(self, elements: int) -> bool:
        """Whether the script reduces gradients by itself. `elements` were reduced between sites: more than for metrics
        and for one initial broadcast of the parameters."""
        return 0 < 2 * self._elements < elements


def sample(parameters: list[Tensor]) -> list[float]:
    """The middle element of a few of the parameters."""
    stride = max(1, len(parameters) // _SAMPLED)
    return [
        float(parameter.detach()[tuple(extent // 2 for extent in parameter.shape)])
        for parameter in parameters[::stride]
        if parameter.numel() > 0
    ]
