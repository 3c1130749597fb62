"""The models of a script, one generation after the other, and what is known of the generation that is trained now."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from torch_collab.model.cycle import OptimizerCycle, OptimizerNumbers
from torch_collab.model.optimizer_copy import Fetch
from torch_collab.model.samples import SampleCounter
from torch_collab.model.unseen import StepsWithoutDdp, UnseenForwards, UnseenSteps, WithoutGradients
from torch_collab.world.metrics import Metrics

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from torch_collab import _C
    from torch_collab.model.vector import Vector
    from torch_collab.world.topology import WorldInfo


class _Held(NamedTuple):
    """What is known of an optimizer."""

    of: tuple[Any, ...]  # its groups' parameters; the entry holds while these are unchanged
    trains: bool  # holds some of the vector
    whole: bool  # holds all of the vector
    number: int  # 0: holds none of the vector


_NOTHING = _Held((), False, False, 0)


class Training:
    """A generation: the models that are trained together, until others take their place.

    There is no session before its first training forward; samples and metrics reported before it still count.
    """

    def __init__(self, info: WorldInfo) -> None:
        self.samples = SampleCounter()
        self.cycle = OptimizerCycle()
        self._numbers = OptimizerNumbers()
        self._held: weakref.WeakKeyDictionary[Any, _Held] = weakref.WeakKeyDictionary()
        self.unseen = UnseenSteps()
        self.unseen_forwards = UnseenForwards()
        self.without_gradients = WithoutGradients()
        self.without_ddp = StepsWithoutDdp()
        self.metrics = Metrics(info)
        self.session: _C.Session | None = None
        self.vector: Vector | None = None
        self.fetch: Fetch | None = None  # a member's optimizer state, at a site that has joined
        self.ddps: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # those whose training forwards ran
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # those that hold parameters of the vector
        self.stepped_in_backward = False  # since the last counted step; counted at the next training forward
        self._thread: threading.Thread | None = None  # thread of the last training forward

    @property
    def owes_step(self) -> bool:
        """Whether something was trained since the last counted step; a round that all wait for counts it."""
        return self.stepped_in_backward or self.cycle.owes_step

    def begin(self, session: _C.Session, vector: Vector, fetches: bool) -> None:
        self.session, self.vector = session, vector
        self.fetch = Fetch() if fetches else None

    def end(self) -> None:
        self.session = None

    def ran(self, ddp: nn.Module) -> None:
        """A training forward of `ddp` runs in this thread."""
        self.ddps.add(ddp)
        self._thread = threading.current_thread()

    def is_beside(self) -> bool:
        """Whether another thread trains, perhaps in the middle of a step."""
        thread = self._thread
        return thread is not None and thread is not threading.current_thread() and thread.is_alive()

    def step_in_backward(self) -> None:
        self.stepped_in_backward = True

    def end_step(self) -> int:
        """A step of the model is counted. Returns the samples since the last one."""
        self.stepped_in_backward = False
        self.cycle.counted()
        return self.samples.take()

    def trains(self, optimizer: Any) -> bool:
        """Whether the optimizer holds parameters of the vector. From here on the optimizer is known."""
        vector = self.vector
        if self.session is None or vector is None:
            return False
        held = self._held.get(optimizer, _NOTHING)
        of = (vector.version, *(_ends_of(group["params"]) for group in optimizer.param_groups))
        if held.of != of:
            ids = {id(p) for group in optimizer.param_groups for p in group["params"]} & vector.ids
            number = 0
            if ids:
                places = frozenset(place for place, (key, _) in enumerate(vector.trained) if key in ids)
                number = self._numbers.of(optimizer, places)
                self.optimizers.add(optimizer)
            held = self._held[optimizer] = _Held(of, bool(ids), ids == vector.ids, number)
        return held.trains

    def number_of(self, optimizer: Any) -> int:
        """The number of an optimizer of the vector, the same at each rank of the site."""
        return self._held.get(optimizer, _NOTHING).number

    def ends_step(self, optimizer: Any) -> bool:
        """An optimizer of the vector has stepped. Returns whether this ends a step of the model."""
        held = self._held.get(optimizer, _NOTHING)
        return self.cycle.after(held.number, whole=held.whole)


def _ends_of(parameters: Any) -> tuple[int, int, int]:
    """Tells a group's parameters from others by looking only at the ends of the list."""
    if not isinstance(parameters, list) or not parameters:
        return (0, 0, 0)
    return (len(parameters), id(parameters[0]), id(parameters[-1]))


class Generations:
    def __init__(self, info: WorldInfo) -> None:
        self._info = info
        self.number = 0  # of the generation that is trained; 0: none yet
        self.egress_spent = 0  # by earlier generations, in bytes
        self.training = Training(info)

    def begin(self) -> None:
        self.number += 1

    def end(self, session: _C.Session) -> None:
        self.egress_spent = max(self.egress_spent, session.status().egress_spent)
        self.training = Training(self._info)
