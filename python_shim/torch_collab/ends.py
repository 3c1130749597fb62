"""The end of a run: the last round, leaving the swarm, and the coordinator's patience.

A last round is due at `destroy_process_group()`, at a clean exit, and in a barrier of all sites. After an exception
there is none: the site only leaves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from torch_collab import log, meeting, native, state, steps, swarm

if TYPE_CHECKING:
    from torch_collab.state import World

_exit_status: Any = None


class _Finalizer:
    """torch calls finalize() on what is in its list of communicators before it takes the world's groups down."""

    def finalize(self) -> None:
        finish(aborting=_raising())


def install_finalizer() -> Callable[[], None]:
    communicators = getattr(distributed_c10d._world, "comms", None)
    if isinstance(communicators, list):
        finalizer = _Finalizer()
        communicators.append(finalizer)
        return lambda: communicators.remove(finalizer) if finalizer in communicators else None
    return _replace_destroy()


def _replace_destroy() -> Callable[[], None]:
    """For a torch without that list."""
    original = distributed_c10d.destroy_process_group

    def destroy_process_group(group: Any = None) -> None:
        if group is None or group == dist.GroupMember.WORLD:
            finish(aborting=_raising())
        original(group)

    for owner in (dist, distributed_c10d):
        owner.destroy_process_group = destroy_process_group

    def undo() -> None:
        for owner in (dist, distributed_c10d):
            owner.destroy_process_group = original

    return undo


def note_exit_status() -> None:
    """Keeps what sys.exit was called with: nothing tells an exit handler whether the script failed."""
    original = sys.exit

    def exit_(status: Any = None, /) -> Any:
        global _exit_status
        _exit_status = status
        original(status)

    sys.exit = exit_


# A thread of torch's Gloo lets go of a collective's tensors a moment after it has ended, and needs the interpreter's
# lock for that; it aborts the process when the interpreter is gone by then.
_GLOO_LETS_GO = 0.05  # seconds


def at_exit() -> None:
    try:
        _end_the_run()
    finally:
        time.sleep(_GLOO_LETS_GO)


def _end_the_run() -> None:
    if state.current() is None:
        return
    failed = getattr(sys, "last_value", None) is not None or _exit_status not in (None, 0)
    try:
        finish(aborting=failed)
    except Exception as error:
        log.error(f"the end of the run: {error}")


def _raising() -> bool:
    """Also true in an `except` block that handles the error: nothing tells the two apart."""
    kind = sys.exc_info()[0]
    return kind is not None and not issubclass(kind, (SystemExit, GeneratorExit))


def _why() -> str:
    kind = sys.exc_info()[0] or getattr(sys, "last_type", None)
    if kind is not None and issubclass(kind, KeyboardInterrupt):
        return "it was interrupted (SIGTERM, as `kill` sends it, lets a site have its last round first)"
    return "the script is handling an error"


def finish(aborting: bool = False) -> None:
    """The last round, then this site leaves. Called twice it does nothing the second time."""
    from torch_collab import hooks

    world = state.current()
    if world is None or world.finished:
        return
    world.finished = True
    try:
        session = world.session
        if session is not None and world.is_leader and (aborting or world.failed):
            log.warning(f"site {world.site.name} leaves without a last round, because {_why()}")
        if not (aborting or world.failed):
            _warn_of_nothing_averaged(world)
        if session is not None and not (aborting or world.failed):
            if world.stepped_in_backward or world.cycle.unfinished():
                steps.count(world)
            native.finish(session)
        meeting.leave(world)
        if not (aborting or world.failed):
            swarm.linger(world)
    finally:
        if world.watches_for_termination and not native.termination_requested():
            native.watch_for_termination(0)  # from here on SIGTERM acts at once
        meeting.leave(world)
        world.session = None
        world.server = None
        hooks.uninstall()
        state.leave()


def _warn_of_nothing_averaged(world: World) -> None:
    if not world.is_leader or not (len(world.sites.sites) > 1 or world.config.coordinator):
        return
    if world.session is not None:
        if world.session.status().steps == 0 and not world.stepped_in_backward and not world.cycle.unfinished():
            log.warning(
                "no step of an optimizer that trains this model was seen, so nothing was averaged between sites: an "
                "optimizer must hold the parameters of the module that is wrapped in DistributedDataParallel (one made "
                "before the model was copied does not); a script that updates them by itself calls torch_collab.step()"
            )
    elif world.generation == 0:
        log.warning(
            "no DistributedDataParallel module was trained here, so nothing was averaged between sites; wrap the model "
            "in DistributedDataParallel after init_process_group"
        )


def before_world_barrier() -> None:
    """All ranks of the world stand in a barrier: with steps since the last round anywhere, a round runs now."""
    world = state.current()
    if world is None or world.finished:
        return
    steps_since = 0 if world.session is None else world.session.status().steps_since_round
    if world.backend.most_at_barrier(steps_since) > 0 and world.session is not None:
        steps.run_round(world)
