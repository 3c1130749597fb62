"""Decides what counts as a step of the model: a step of the cycle's last optimizer, or of one that trains all of it.

Not counted: steps inside backward (counted once, at the next training forward), steps by another optimizer's step,
steps of other models' optimizers, steps that a GradScaler skipped, and steps that a CUDA graph captures.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch_collab import log, torch_compat
from torch_collab.capture import forward, refuse, rounds, running, traffic
from torch_collab.model.unseen import PASSES
from torch_collab.model.values import capturing
from torch_collab.swarm import optimizer_state
from torch_collab.world import state

if TYPE_CHECKING:
    from torch_collab.world.state import World

_checked: weakref.WeakSet[Any] = weakref.WeakSet()
_captured: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers whose capture was reported


def before_optimizer_step(optimizer: Any, args: Any, kwargs: Any) -> Any:
    world = state.current()
    if world is None or world.run.finished:
        return None
    if optimizer not in _checked:
        refuse.optimizer(world, optimizer)
        refuse.watch_checkpoints(world)
        _checked.add(optimizer)
    refuse.watch_post_local_sgd(world)
    nested = running.enter(optimizer)
    if not (nested or torch_compat.in_backward() or capturing()) and forward.follow_optimizer(world, optimizer):
        if world.training.cycle.before(world.training.number_of(optimizer)):
            _tell_of_cycle(world)
            rounds.count(world)
        optimizer_state.before_step(world, optimizer)
    return running.with_closures(args, kwargs)


def after_optimizer_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    world = state.current()
    if world is None or world.run.finished:
        return
    nested = running.leave(optimizer)
    training = world.training
    if not training.trains(optimizer):
        if training.session is None and not nested:
            _before_any_session(world, optimizer)
        return
    if capturing():
        _tell_of_graph(world, optimizer)
        return
    training.unseen.stepped()
    if torch_compat.in_backward():
        training.step_in_backward()
        world.copies.others_stepped()
        optimizer_state.steps_in_backward(world)
        return
    if nested or torch_compat.skipped_by_scaler(optimizer):
        return
    ends = training.ends_step(optimizer)
    if len(training.optimizers) > 1:
        _tell_of_cycle(world)
    if ends:
        rounds.count(world)


def _before_any_session(world: World, optimizer: Any) -> None:
    training, constructed = world.training, world.ddps.constructed
    if constructed:
        training.unseen_forwards.stepped(optimizer, constructed.values(), world.is_leader)
        return
    traffic.stepped(world)
    many = training.without_ddp.stepped(optimizer)
    if not many or not world.is_leader or not rounds.is_to_average(world):
        return
    if not rounds.reduces_by_itself(world):
        log.warning(
            f"an optimizer ({type(optimizer).__name__}) has made {PASSES} steps, but no model is wrapped in "
            "DistributedDataParallel. So there are no rounds, and nothing is averaged between sites. Wrap the model in "
            "a world of one rank too: a script that wraps it under `if world_size > 1:` does not at a site of one GPU "
            "[ddp.none-made]"
        )
    elif training.without_ddp.are_reduced(world.traffic.in_backward):
        log.warning(
            "the script reduces its gradients over all sites in backward, without DistributedDataParallel: "
            f"{world.traffic.in_backward / PASSES / 1e6:.3g} million values a step. All sites train one model exactly, "
            "and each step waits for the line between them. To use rounds instead, wrap the model in "
            "DistributedDataParallel, which reduces over the site, and remove the script's own reduction "
            "[capture.gradients-over-sites]"
        )


def _tell_of_graph(world: World, optimizer: Any) -> None:
    """During the capture nothing is computed, and a round would become part of the graph."""
    if world.is_leader and optimizer not in _captured:
        _captured.add(optimizer)
        log.warning(
            f"the step of {type(optimizer).__name__} is captured by a CUDA graph. collab does not see its replays, so "
            "they lead to no round. Call torch_collab.step() after each graph.replay(), on every rank "
            "[capture.cuda-graph]"
        )


def _tell_of_cycle(world: World) -> None:
    """With several optimizers, tells what counts as a step, and warns if that comes seldom."""
    cycle = world.training.cycle
    introduced, gone, steps = cycle.to_introduce(), cycle.to_tell_of_who_left(), cycle.to_warn_of()
    if not world.is_leader:
        return
    if introduced is not None:
        count_of, last = introduced
        log.info(
            f"{count_of} optimizers train the model; a step is counted when {_name(world, last)} (the last of the "
            "cycle) has stepped"
        )
    if gone is not None:
        log.info(
            f"{_name(world, gone[1])}, the last optimizer of the cycle, has not stepped in {gone[0]} steps of another: "
            f"until it does, a step is counted when {_name(world, cycle.last)} has stepped [optimizer.left-cycle]"
        )
    every = world.info.config.sync_every
    period = every if isinstance(every, int) else 0  # otherwise rounds are timed, or the leader chooses
    if steps and period:
        log.warning(
            f"a step is counted only every {steps} steps of another optimizer, when "
            f"{_name(world, cycle.last)} steps: COLLAB_SYNC_EVERY={period} means {steps * period:,} "
            "steps of the others between rounds. Lower COLLAB_SYNC_EVERY, or give it in seconds "
            "(COLLAB_SYNC_EVERY=30s) [optimizer.rare-steps]"
        )


def _name(world: World, key: object) -> str:
    number_of = world.training.number_of
    return next((type(each).__name__ for each in world.training.optimizers if number_of(each) == key), "the last one")
