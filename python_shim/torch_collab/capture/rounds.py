"""Counts steps, runs the rounds that they lead to, and ends a run: the last round, then the site leaves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from torch_collab import log, native
from torch_collab.capture import refuse, traffic
from torch_collab.model.optimizer_copy import PLAIN
from torch_collab.swarm import optimizer_state
from torch_collab.world import state

if TYPE_CHECKING:
    from torch_collab import _C
    from torch_collab.model.vector import Vector
    from torch_collab.world.state import World


def count(world: World) -> None:
    """Counts one step of the model; a round may run here."""
    training = world.training
    session = training.session
    if session is None or _has_failed(world, "step"):
        return
    samples = training.end_step()
    if world.uneven.inside is not None:
        world.uneven.hold(samples)
        return
    if native.termination_requested():
        session.ask_to_leave()
    due = _count_step(world, session, samples)
    vector = training.vector
    assert vector is not None
    if vector.undone.step(vector.values.note(vector.parameters, training.unseen.steps)):
        _warn_of_undone(world, "one step after a round the parameters were back where they had been before it")
    traffic.stepped(world)
    if due:
        run_round(world)


def _has_failed(world: World, left_out: str) -> bool:
    """Whether the run has failed and the script went on after the error. The failed ranks warn."""
    run = world.run
    if run.failed and run.leaves_out(left_out):
        log.warning(
            f"rank {world.info.rank} has failed, and the script went on from the error (an `except` around the step?). "
            "Its steps no longer count, there are no rounds, and it trains alone. End it, correct the cause and start "
            f"it again. The error was: {run.error} [round.after-error]"
        )
    return run.failed


def _count_step(world: World, session: _C.Session, samples: int) -> bool:
    """Returns whether a round is due."""
    with world.run:
        return session.count_step(samples, optimizer_state.copy)


def count_owed(world: World) -> None:
    """Counts what was trained since the last counted step, before a round that all wait for."""
    training = world.training
    if training.session is None or _has_failed(world, "round"):
        return
    if training.owes_step and world.uneven.inside is None:
        count_before_round(world, training.end_step())


def count_before_round(world: World, samples: int) -> None:
    """Counts a step of the model before a round of the whole model, on every rank of every site."""
    session, config = world.training.session, world.info.config
    if session is None or world.run.failed:
        return
    if _count_step(world, session, samples) and (config.overlap or config.fragments > 1):
        run_round(world)  # the due round would only begin, or be of one fragment


def run_round(world: World, until: int = 0) -> None:
    """Runs a round, and more rounds up to `until`. Every rank of every site calls this."""
    session, vector = world.training.session, world.training.vector
    assert session is not None and vector is not None
    before, steps = vector.values.noted, session.status().steps_since_round
    with world.run:
        outcome = session.synchronize(optimizer_state.copy, until)
    refuse.watch_checkpoints(world)
    vector.look_again()
    vector.undone.round(before, vector.values.note(vector.parameters, world.training.unseen.steps), steps)
    if keeper := vector.undone.keeper(world.training.optimizers):
        _warn_of_undone(world, f"the state {keeper[1]!r} of {keeper[0]} is a copy of the parameters it trains")
    _look_at_frozen(world, session, vector, until)
    world.training.metrics.write(session)
    if outcome.took_anchor:
        reset_unfit_state(world)
    if outcome.leaving:
        _leave(world)


def values_replaced(world: World) -> bool:
    """Whether the script has replaced the parameters' values since the last step; those must not be averaged."""
    training = world.training
    return training.vector is not None and training.vector.values.replaced(training.unseen.steps)


def is_to_average(world: World) -> bool:
    """Whether there are, or may be, other sites."""
    return world.info.several_sites or bool(world.info.config.coordinator)


def reduces_by_itself(world: World) -> bool:
    """Whether there is no DDP and the script reduces its gradients between sites."""
    return world.training.without_ddp.are_reduced(world.traffic.reduced)


def _look_at_frozen(world: World, session: _C.Session, vector: Vector, until: int) -> None:
    config = world.info.config
    whole = until > 0 or not (config.overlap or config.fragments > 1)
    changed = vector.frozen_changed(alike=whole and session.status().steps_since_round == 0)
    if changed and world.is_leader and is_to_average(world):
        log.warning(
            f"{changed} is frozen, but its values have changed since the last round. Sites do not average frozen "
            "parameters: unless all sites change them alike, they train different models from now on. Change it right "
            "after dist.barrier() (adapters that are merged into their base), or let it require a gradient when the "
            "model is wrapped in DistributedDataParallel. A merge for an evaluation that is undone after it (LoRA's "
            "merge_adapter(), unmerge_adapter()) leaves rounding, harmless in float32 if rare: evaluate without "
            "merging, or load the base anew [capture.frozen-changes]"
        )


def _warn_of_undone(world: World, why: str) -> None:
    if world.is_leader and is_to_average(world):
        log.warning(
            f"{why}: an optimizer that keeps its own parameters (fp32 masters, slow weights, the z of schedule-free) "
            "goes on from those, and undoes some or all of what a round changed. Sites then drift apart. Train with "
            "an optimizer that updates the parameters in place, as those of torch.optim do [round.undone]"
        )


def _leave(world: World) -> None:
    """The site's leader got SIGTERM or SIGHUP, and the last round is over. Every rank of the site ends as if by that
    signal."""
    if world.is_leader:
        asked = f"it was asked to end ({native.termination_signal()})"
        log.info(f"site {world.info.site.name} leaves the swarm, because {asked}")
    try:
        finish()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        native.carry_out_termination()


def reset_unfit_state(world: World) -> None:
    """After NaN or Inf in the parameters the site took the anchor. Optimizer state that is not finite starts anew."""
    reset = 0
    for optimizer in world.training.optimizers:
        for parameter in [p for p, held in optimizer.state.items() if _unfit(held)]:
            del optimizer.state[parameter]
            reset += 1
    log.error(
        f"the parameters of site {world.info.site.name} were not finite: the anchor replaced them"
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
        # A tensor subclass, as in 8-bit optimizers, supports few operations. If it cannot dequantize, it starts anew.
        try:
            value = value.dequantize()
        except (NotImplementedError, RuntimeError, TypeError):
            return False
    return bool(torch.isfinite(value).all())


def finish(aborting: bool = False) -> None:
    """Runs the last round, then this site leaves. A second call does nothing."""
    world = state.current()
    if world is None or world.run.finished:
        return
    world.run.finish()
    failed = aborting or world.run.failed
    try:
        if world.training.session is not None and world.is_leader and failed:
            log.warning(
                f"site {world.info.site.name} leaves without a last round, because {_why(world)} [round.no-last]"
            )
        if not failed:
            _warn_of_nothing_averaged(world)
            last_round(world)
        world.hub.leave()  # before lingering, so that nobody waits for this rank any more
        if not failed:
            world.coordinators.linger()
    finally:
        world.installed.close()  # from here on SIGTERM acts at once
        world.hub.leave()  # if the last round has failed; otherwise it has left already
        world.training.end()
        world.coordinators.stop()
        state.leave()
        log.flush()  # a forked child may end without its exit handlers


def last_round(world: World, next_generation: int = 0) -> None:
    """Runs the last round of the current models; `next_generation` is 0 if no others follow."""
    session = world.training.session
    if session is None:
        return
    count_owed(world)
    if values_replaced(world):
        session.keep_out()
    session.finish(next_generation)
    world.training.metrics.write(session)


def _why(world: World) -> str:
    kind = sys.exc_info()[0] or getattr(sys, "last_type", None)
    if kind is not None and issubclass(kind, KeyboardInterrupt):
        return "it was interrupted (SIGTERM, as `kill` sends it, lets a site have its last round first)"
    return f"it has failed: {world.run.error}" if world.run.failed else "the script is handling an error"


def _warn_of_nothing_averaged(world: World) -> None:
    if not world.is_leader or not is_to_average(world):
        return
    if world.training.session is not None:
        if world.training.session.status().steps == 0 and not world.training.owes_step:
            log.warning(
                "no step of an optimizer that trains this model was seen, so nothing was averaged between sites. The "
                "optimizer must hold the parameters of the module that is wrapped in DistributedDataParallel; one made "
                "before the model was copied does not. If the script updates them itself, call torch_collab.step() "
                "[optimizer.no-step-seen]"
            )
    elif world.generations.number == 0 and not reduces_by_itself(world):
        log.warning(
            "no training forward of a DistributedDataParallel was seen here, so nothing was averaged between sites. "
            "Wrap the model in DistributedDataParallel after init_process_group, and call the wrapper, ddp(x), not the "
            "module inside it; without gradients, call torch_collab.step() after each update [ddp.none-trained]"
        )
