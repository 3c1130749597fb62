"""`with ddp.join():` for uneven inputs. Ranks of a site that have no inputs left wait in its exit for the others, and
cannot take part in a round. A round runs once all have left it together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from torch_collab import native, torch_compat
from torch_collab.capture import forward, rounds
from torch_collab.world import state

if TYPE_CHECKING:
    from torch_collab.world.state import World


def watch_enter(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces Join.__enter__."""

    @functools.wraps(original)
    def enter(self: Any) -> Any:
        world = state.current()
        if world is not None and not world.run.finished and len(world.info.site.ranks) > 1:
            ddps = torch_compat.uneven_ddps(self)
            for ddp in ddps:  # a rank may have no input at all
                forward.follow(world, ddp)
            if ddps:
                world.uneven.enter(self)
        return original(self)

    return enter


def watch_exit(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces Join.__exit__, in which the site's ranks wait for each other."""

    @functools.wraps(original)
    def leave(self: Any, kind: Any, value: Any, traceback: Any) -> Any:
        world = state.current()
        if world is None or world.uneven.inside is not self:
            return original(self, kind, value, traceback)
        try:
            result = original(self, kind, value, traceback)
        finally:
            world.uneven.leave()
        if kind is None:
            _count_together(world)
        return result

    return leave


def _count_together(world: World) -> None:
    """The training inside counts as one step, because the ranks have made different numbers of steps."""
    training = world.training
    session = training.session
    if session is None or world.run.failed:
        return
    steps, samples = world.uneven.take()
    if training.owes_step:
        steps, samples = steps + 1, samples + training.end_step()
    most = torch.tensor(steps, device="cpu")
    dist.all_reduce(most, dist.ReduceOp.MAX, group=world.groups.site())
    if most == 0:
        return
    if native.termination_requested():
        session.ask_to_leave()
    rounds.count_before_round(world, samples)
    rounds.run_round(world)
