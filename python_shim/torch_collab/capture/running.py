"""Which optimizer's step() runs on this thread, and what happens when it calls a collective between sites.

torch's hooks tell when a step begins and when it has ended without an error. If it raises, they tell nothing. So each
step is kept with the frame of torch's wrapper around it, and counts as running only while that frame executes. A
finished step can therefore never be taken for a running one, whatever was raised, and no later event has to clear it.
docs/decisions/step-by-frame.md gives the reasons.

A closure that is given to step() is the script's own: forward, backward, metrics.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch_collab import native, torch_compat
from torch_collab.capture import refuse
from torch_collab.world import state


@dataclass(slots=True)
class _Step:
    optimizer: Any
    frame: FrameType | None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.inside: list[_Step | None] = []  # outermost first; None: a closure of the step before it


_here = _Thread()
_set_flag: Callable[[bool], None] | None = None  # set if there are several sites: tells the core whether a step runs
_warned: set[tuple[type, str]] = set()


def watch(backend: Any) -> None:
    """Checks this group's collectives while a step runs, if the group has ranks of several sites."""
    global _set_flag
    if not backend.single_site:
        backend.watch_steps(_on_collective)
        _set_flag = native.set_in_step


def forget() -> None:
    """Called when the world ends."""
    global _set_flag
    _here.inside.clear()
    _warned.clear()
    _flag()
    _set_flag = None


def enter(optimizer: Any) -> bool:
    """Called by a pre-hook when a step begins. True if it is inside another optimizer's step."""
    inside = _here.inside
    drop_dead()
    nested = bool(inside)
    inside.append(_Step(optimizer, torch_compat.frame_of_step()))
    _flag()
    return nested


def leave(optimizer: Any) -> bool:
    """Called when a step has ended without an error. True if it is inside another optimizer's step."""
    inside = _here.inside
    for place in range(len(inside) - 1, -1, -1):
        step = inside[place]
        if step is not None and step.optimizer is optimizer:
            del inside[place:]
            break
    _flag()
    return bool(inside)


def with_closures(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """New arguments of step() for its pre-hook to return (the optimizer is the first); None: leave them unchanged."""
    if _set_flag is None:
        return None
    if len(args) > 1 and callable(args[1]):
        return (args[0], _outside_step(args[1]), *args[2:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": _outside_step(kwargs["closure"])}
    return None


def _outside_step(closure: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        inside = _here.inside
        depth = len(inside)
        inside.append(None)
        _flag()
        try:
            return closure(*args, **kwargs)
        finally:
            del inside[depth:]
            _flag()

    return call


def _on_collective(collective: str, elements: int) -> None:
    """Called by a group of several sites if, as far as it knows, a step is running on this thread."""
    drop_dead()
    _flag()
    step = _here.inside[-1] if _here.inside else None
    world = state.current()
    if step is None or world is None or world.run.finished or world.training.vector is None:
        return
    trained = {id(p) for group in step.optimizer.param_groups for p in group["params"]}
    if trained.isdisjoint(world.training.vector.ids):
        return  # this optimizer trains something of its own, which sites do not average
    key = (type(step.optimizer), collective)
    refuse.collective_in_step(world, step.optimizer, collective, elements, told=key in _warned)
    _warned.add(key)


def _flag() -> None:
    if _set_flag is not None:
        _set_flag(bool(_here.inside) and _here.inside[-1] is not None)


def drop_dead() -> None:
    """Drops steps that an exception ended. They are on top of the stack, because each later step calls this first."""
    inside = _here.inside
    while inside:
        step = inside[-1]
        if step is None or _executes(step.frame):
            return
        inside.pop()


def _executes(frame: FrameType | None) -> bool:
    """Python tells this in only one way: a frame that executes cannot be cleared."""
    if frame is None:
        return False
    try:
        frame.clear()
    except RuntimeError:
        return True
    return False
