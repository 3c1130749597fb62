"""The points at which a run ends (capture/rounds.py ends it).

A last round is due at `destroy_process_group()`, at a clean exit, and in a barrier of all sites. After an exception
there is no last round: the site only leaves.
"""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from torch_collab import log, torch_compat
from torch_collab.capture import rounds
from torch_collab.world import state

if TYPE_CHECKING:
    from torch_collab.world.state import World

# Stand in for the round's number, and say why there is no round.
_REPLACED = 1 << 62
_BESIDE = _REPLACED + 1
_NO_ROUND = {
    _REPLACED: "since the last step, some rank has replaced the values of its parameters (by an average of weights for "
    "an evaluation, or by a loaded state), and such values are not averaged [round.values-swapped]",
    _BESIDE: "some rank called it in another thread than the one that trains (for example, in "
    "torch.distributed.checkpoint.async_save), where parameters may be in use [round.barrier-thread]",
}
_exit_status: Any = None
_exit_steps = -1  # the steps counted at that time
_registered_in = 0  # the process whose exit calls at_exit()


def install(world: World) -> None:
    """The first of these ends the run: the world's groups are destroyed, the process ends, the site must leave."""
    global _registered_in
    world.installed.undo(torch_compat.on_destroy(lambda: rounds.finish(aborting=_raising())))
    if world.info.ranks_tell_sites_apart and world.info.several_sites:
        world.backend.set_pre_barrier(before_world_barrier)
    if _registered_in != os.getpid():
        if _registered_in == 0:
            note_exit_status()  # forked children inherit this from their parent
        atexit.register(at_exit)
        # A child that multiprocessing has forked ends by os._exit(), after its finalizers. This is an early one.
        multiprocessing.util.Finalize(None, at_exit, exitpriority=100)
        _registered_in = os.getpid()


def note_exit_status() -> None:
    """Keeps the argument of sys.exit: nothing else tells an exit handler whether the script failed."""
    original = sys.exit

    def exit_(status: Any = None, /) -> Any:
        global _exit_status, _exit_steps
        _exit_status, _exit_steps = status, _steps()
        original(status)

    sys.exit = exit_


# A thread of torch's Gloo frees a collective's tensors a moment after the collective has ended. It needs the
# interpreter's lock for that, and aborts the process if the interpreter is gone by then.
_GLOO_LETS_GO = 0.05  # seconds


def at_exit() -> None:
    """Called twice if both exit handlers and finalizers run; by the second time there is no world."""
    try:
        _end_the_run()
    finally:
        time.sleep(_GLOO_LETS_GO)


def _end_the_run() -> None:
    if state.current() is None:
        return
    # multiprocessing ends a child while the error that its target raised is still propagating.
    failed = _failed_exit() or _uncaught_error() or _raising()
    try:
        rounds.finish(aborting=failed)
    except Exception as error:
        log.error(f"the end of the run: {error} [round.last-failed]")


def _failed_exit() -> bool:
    """False if the script trained on: then it has handled the SystemExit."""
    return _exit_status not in (None, 0) and _exit_steps == _steps()


def _uncaught_error() -> bool:
    """In an interactive interpreter or a notebook an error ends only a line or a cell, and the process goes on."""
    return getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")


def _steps() -> int:
    world = state.current()
    session = None if world is None else world.training.session
    return 0 if session is None else session.status().steps


def _raising() -> bool:
    """Also true in an `except` block that handles the error: the two look the same. The end of data is no error."""
    kind = sys.exc_info()[0]
    return kind is not None and not issubclass(kind, (SystemExit, GeneratorExit, StopIteration, StopAsyncIteration))


def before_world_barrier() -> None:
    """All ranks of the world stand in a barrier. If any has steps since the last round, a round runs now.

    All sites run the same number of rounds: a faster site may have one more behind its training.
    """
    world = state.current()
    if world is None or world.run.finished:
        return
    if world.training.is_beside():  # counting or averaging now would change things under the training
        world.backend.most_at_barrier(_BESIDE)
        return _tell_of_no_round(world, _BESIDE)
    session = world.training.session
    rounds.count_owed(world)
    settles_at = 0 if session is None else session.settles_at()
    replaced = settles_at > 0 and rounds.values_replaced(world)  # else no round is due here
    most = world.backend.most_at_barrier(_REPLACED if replaced else settles_at)
    if most >= _REPLACED:
        _tell_of_no_round(world, most)
    elif most > 0 and session is not None:
        rounds.run_round(world, until=most)


def _tell_of_no_round(world: World, why: int) -> None:
    if world.is_leader:
        log.warn_once(f"no round in a barrier; the steps since the last round count towards the next: {_NO_ROUND[why]}")
