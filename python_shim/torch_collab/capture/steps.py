"""What counts as a step of the model: the last optimizer of the cycle has stepped.

Not counted: steps inside backward (counted once, at the next training forward), optimizers stepped by another
optimizer, optimizers of other models, and steps a GradScaler skipped.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch

from torch_collab import log, native, torch_compat
from torch_collab.capture import metrics, refuse, running, traffic
from torch_collab.model.optimizer_copy import PLAIN
from torch_collab.swarm import optimizer_state
from torch_collab.world import state

if TYPE_CHECKING:
    from torch_collab.world.state import World

_checked: weakref.WeakSet[Any] = weakref.WeakSet()


def before_optimizer_step(optimizer: Any, args: Any, kwargs: Any) -> Any:
    world = state.current()
    if world is None or world.finished:
        return None
    if optimizer not in _checked:
        refuse.optimizer(world, optimizer)
        _checked.add(optimizer)
    refuse.watch_post_local_sgd(world)
    nested = running.enter(optimizer)
    if not (nested or torch_compat.in_backward() or world.training.session is None) and _trains_vector(
        world, optimizer
    ):
        if world.training.cycle.before(id(optimizer)):
            _tell_of_cycle(world)
            count(world)
        optimizer_state.before_step(world, optimizer)
    return running.with_closures(args, kwargs)


def after_optimizer_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    world = state.current()
    if world is None or world.finished:
        return
    world.training.unseen.stepped()
    nested = running.leave(optimizer)
    if torch_compat.in_backward():
        if world.training.session is not None and _trains_vector(world, optimizer):
            world.training.stepped_in_backward = True
            optimizer_state.steps_in_backward(world)
        return
    if nested or world.training.session is None or not _trains_vector(world, optimizer):
        return
    if torch_compat.skipped_by_scaler(optimizer):
        return
    ends = world.training.cycle.after(id(optimizer))
    if len(world.training.optimizers) > 1:
        _tell_of_cycle(world)
    if ends:
        count(world)


def _tell_of_cycle(world: World) -> None:
    """With several optimizers, what is counted; and that it comes seldom."""
    introduced, steps = world.training.cycle.to_introduce(), world.training.cycle.to_warn_of()
    if not world.is_leader:
        return
    if introduced is not None:
        count_of, last = introduced
        log.info(
            f"{count_of} optimizers train the model; a step is counted when {_name(world, last)} (the last of the "
            "cycle) has stepped"
        )
    every = world.config.sync_every
    period = every if isinstance(every, int) else 0  # else rounds are counted in time, or by the leader
    if steps and period:
        log.warning(
            f"a step is counted only every {steps} steps of another optimizer, when "
            f"{_name(world, world.training.cycle.last)} steps: COLLAB_SYNC_EVERY={period} means {steps * period:,} "
            "steps of the others between rounds. Lower COLLAB_SYNC_EVERY, or give it in seconds "
            "(COLLAB_SYNC_EVERY=30s) [optimizer.rare-steps]"
        )


def _name(world: World, key: object) -> str:
    return next((type(each).__name__ for each in world.training.optimizers if id(each) == key), "the last one")


def count(world: World) -> None:
    """One step of the model is done; a round may run here."""
    if world.training.session is None or world.failed:
        return
    world.training.stepped_in_backward = False
    if native.termination_requested():
        world.training.session.ask_to_leave()
    try:
        due = world.training.session.count_step(world.training.samples.take(), optimizer_state.copy)
    except BaseException:
        world.failed = True
        raise
    traffic.stepped(world)
    if due:
        run_round(world)


def run_round(world: World) -> None:
    """A round now. Every rank of every site comes here."""
    assert world.training.session is not None and world.training.vector is not None
    try:
        outcome = world.training.session.synchronize(optimizer_state.copy)
    except BaseException:
        world.failed = True
        raise
    world.training.vector.look_again = True
    metrics.write(world)
    if outcome.took_anchor:
        reset_unfit_state(world)
    if outcome.leaving:
        _leave(world)


def _leave(world: World) -> None:
    """SIGTERM has come to the site's leader, and its last round is over: every rank of the site ends as by SIGTERM."""
    if world.is_leader:
        log.info(f"site {world.site.name} leaves the swarm, because it was asked to end (SIGTERM)")
    assert world.finish is not None
    try:
        world.finish()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        native.carry_out_termination()


def reset_unfit_state(world: World) -> None:
    """After NaN or Inf in the parameters the anchor was taken; optimizer state that is not finite starts anew."""
    reset = 0
    for optimizer in world.training.optimizers:
        for parameter in [p for p, held in optimizer.state.items() if _unfit(held)]:
            del optimizer.state[parameter]
            reset += 1
    log.error(
        f"the parameters of site {world.site.name} were not finite: they were replaced by the anchor"
        + (f", and the optimizer state of {reset} parameters, not finite either, starts anew" if reset else "")
        + " [optimizer.not-finite]"
    )


def _unfit(held: Any) -> bool:
    if not isinstance(held, dict):
        return False
    return any(
        isinstance(value, torch.Tensor) and value.is_floating_point() and not _is_finite(value)
        for value in held.values()
    )


def _is_finite(value: torch.Tensor) -> bool:
    if type(value) not in PLAIN:
        # A class of its own, as 8-bit optimizers have it, knows few operations. One that cannot say starts anew.
        try:
            value = value.dequantize()
        except (NotImplementedError, RuntimeError, TypeError):
            return False
    return bool(torch.isfinite(value).all())


def _ends_of(parameters: Any) -> tuple[int, int, int]:
    """What tells a group's parameters from others, at the cost of a look at the ends."""
    if not isinstance(parameters, list) or not parameters:
        return (0, 0, 0)
    return (len(parameters), id(parameters[0]), id(parameters[-1]))


def _trains_vector(world: World, optimizer: Any) -> bool:
    vector = world.training.vector
    assert vector is not None
    held = getattr(optimizer, "collab_held", None)
    of = (vector.version, *(_ends_of(group["params"]) for group in optimizer.param_groups))
    if held is None or held[0] != of:
        ids = {id(p) for group in optimizer.param_groups for p in group["params"]} & vector.ids
        held = (of, bool(ids), ids == vector.ids)
        optimizer.collab_held = held
        if ids:
            world.training.optimizers.add(optimizer)
    if held[2]:
        world.training.cycle.alone(id(optimizer))
    return bool(held[1])
