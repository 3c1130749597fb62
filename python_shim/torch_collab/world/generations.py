"""The models of a script, one generation after the other, and what is known of the one that is trained now."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch_collab.model.cycle import OptimizerCycle
from torch_collab.model.optimizer_copy import Fetch
from torch_collab.model.samples import SampleCounter
from torch_collab.model.unseen import UnseenForwards, UnseenSteps
from torch_collab.world.metrics import Metrics

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from torch_collab import _C
    from torch_collab.model.vector import Vector
    from torch_collab.world.topology import WorldInfo


class Training:
    """Of a generation: the models that are trained together, until others take their place.

    Before its first training forward there is no session; what the script tells by then, samples and metrics, counts.
    """

    def __init__(self, info: WorldInfo) -> None:
        self.samples = SampleCounter()
        self.cycle = OptimizerCycle()
        self.unseen = UnseenSteps()
        self.unseen_forwards = UnseenForwards()
        self.metrics = Metrics(info)
        self.session: _C.Session | None = None
        self.vector: Vector | None = None
        self.fetch: Fetch | None = None  # of a member's optimizer state, at a site that has joined
        self.ddps: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # whose training forwards ran
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # of the vector
        self.stepped_in_backward = False  # since the last step: counted at the next training forward

    @property
    def owes_step(self) -> bool:
        """What has been trained since the last step that was counted: a round that is waited for counts it."""
        return self.stepped_in_backward or self.cycle.owes_step

    def begin(self, session: _C.Session, vector: Vector, fetches: bool) -> None:
        self.session, self.vector = session, vector
        self.fetch = Fetch() if fetches else None

    def end(self) -> None:
        self.session = None

    def ran(self, ddp: nn.Module) -> None:
        self.ddps.add(ddp)

    def step_in_backward(self) -> None:
        self.stepped_in_backward = True

    def end_step(self) -> int:
        """A step of the model is counted: the samples since the last."""
        self.stepped_in_backward = False
        self.cycle.counted()
        return self.samples.take()

    def trains(self, optimizer: Any) -> bool:
        """Whether the optimizer holds parameters of the vector. It is known from here on."""
        vector = self.vector
        if self.session is None or vector is None:
            return False
        held = getattr(optimizer, "collab_held", None)
        of = (vector.version, *(_ends_of(group["params"]) for group in optimizer.param_groups))
        if held is None or held[0] != of:
            ids = {id(p) for group in optimizer.param_groups for p in group["params"]} & vector.ids
            held = (of, bool(ids), ids == vector.ids)
            optimizer.collab_held = held
            if ids:
                self.optimizers.add(optimizer)
        return bool(held[1])

    def ends_step(self, optimizer: Any) -> bool:
        """An optimizer of the vector has stepped: does that end a step of the model?"""
        return self.cycle.after(id(optimizer), whole=optimizer.collab_held[2])


def _ends_of(parameters: Any) -> tuple[int, int, int]:
    """What tells a group's parameters from others, at the cost of a look at the ends."""
    if not isinstance(parameters, list) or not parameters:
        return (0, 0, 0)
    return (len(parameters), id(parameters[0]), id(parameters[-1]))


class Generations:
    def __init__(self, info: WorldInfo) -> None:
        self._info = info
        self.number = 0  # of the generation that is trained; 0: none yet
        self.egress_spent = 0  # by the generations before, in bytes
        self.training = Training(info)

    def begin(self) -> None:
        self.number += 1

    def end(self, session: _C.Session) -> None:
        self.egress_spent = max(self.egress_spent, session.status().egress_spent)
        self.training = Training(self._info)
