"""The end of a run: the last round, leaving the swarm, and the coordinator's patience.

A last round is due at `destroy_process_group()`, at a clean exit, and in a barrier of all sites. After an exception
there is none: the site only leaves.
"""

from __future__ import annotations

import atexit
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch_collab import log, native, torch_compat
from torch_collab.capture import metrics, steps
from torch_collab.swarm import coordinator
from torch_collab.world import hub, state

if TYPE_CHECKING:
    from torch_collab.world.state import World

_exit_status: Any = None
_at_exit_registered = False


def install(world: World) -> None:
    """Whatever comes first ends the run: the world's groups are taken down, the process ends, the site is asked to."""
    global _at_exit_registered
    world.finish = finish
    world.installed.callback(torch_compat.on_destroy(lambda: finish(aborting=_raising())))
    if not _at_exit_registered:
        atexit.register(at_exit)
        note_exit_status()
        _at_exit_registered = True


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
        log.error(f"the end of the run: {error} [round.last-failed]")


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
    world = state.current()
    if world is None or world.finished:
        return
    world.finished = True
    try:
        session = world.training.session
        if session is not None and world.is_leader and (aborting or world.failed):
            log.warning(f"site {world.site.name} leaves without a last round, because {_why()} [round.no-last]")
        if not (aborting or world.failed):
            _warn_of_nothing_averaged(world)
        if session is not None and not (aborting or world.failed):
            if world.training.stepped_in_backward or world.training.cycle.unfinished():
                steps.count(world)
            session.finish()
            metrics.write(world)
        hub.leave(world)
        if not (aborting or world.failed):
            coordinator.linger(world)
    finally:
        if world.watches_for_termination and not native.termination_requested():
            native.watch_for_termination(timedelta(0))  # from here on SIGTERM acts at once
        hub.leave(world)
        world.training.session = None
        world.server = None
        world.installed.close()
        state.leave()
        log.flush()  # a forked child may end without its exit handlers


def _warn_of_nothing_averaged(world: World) -> None:
    if not world.is_leader or not (len(world.sites.sites) > 1 or world.config.coordinator):
        return
    if world.training.session is not None:
        if (
            world.training.session.status().steps == 0
            and not world.training.stepped_in_backward
            and not world.training.cycle.unfinished()
        ):
            log.warning(
                "no step of an optimizer that trains this model was seen, so nothing was averaged between sites: an "
                "optimizer must hold the parameters of the module that is wrapped in DistributedDataParallel (one made "
                "before the model was copied does not); a script that updates them by itself calls torch_collab.step() "
                "[optimizer.no-step-seen]"
            )
    elif world.generation == 0:
        log.warning(
            "no DistributedDataParallel module was trained here, so nothing was averaged between sites; wrap the model "
            "in DistributedDataParallel after init_process_group [ddp.none-trained]"
        )


def before_world_barrier() -> None:
    """All ranks of the world stand in a barrier: with steps since the last round anywhere, a round runs now."""
    world = state.current()
    if world is None or world.finished:
        return
    steps_since = 0 if world.training.session is None else world.training.session.status().steps_since_round
    if world.backend.most_at_barrier(steps_since) > 0 and world.training.session is not None:
        steps.run_round(world)
