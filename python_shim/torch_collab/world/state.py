"""The one collab world of this process: what is fixed, and parts of which each owns what it changes.

Threads: everything here belongs to the thread that runs the script. Processes: a forked child (a DataLoader worker)
sees `current()` as None and so runs no hook.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from torch_collab import torch_compat
from torch_collab.model.modules import Copies, Ddps, Loads
from torch_collab.model.traffic import CollectiveTraffic
from torch_collab.model.uneven import UnevenInputs
from torch_collab.world.coordinator import Coordinators
from torch_collab.world.generations import Generations, Training
from torch_collab.world.groups import SiteGroups
from torch_collab.world.hub import Hub
from torch_collab.world.topology import WorldInfo


class Installed:
    """Changes to torch and the process for this world. They are undone at its end, in reverse order."""

    def __init__(self) -> None:
        self._undo = ExitStack()
        self._known: set[object] = set()

    def undo(self, call: Callable[..., Any], *args: Any) -> None:
        self._undo.callback(call, *args)

    def once(self, what: object, install: Callable[[], Callable[[], Any] | None]) -> None:
        """Does nothing if `what` is installed. `install` returns a function that undoes it; None: try again later."""
        if what not in self._known and (undo := install()) is not None:
            self._known.add(what)
            self._undo.callback(undo)

    def replace(self, point: tuple[Any, str], make: Callable[[Any], Any]) -> None:
        self.once(point, lambda: torch_compat.replace(point, make))

    def close(self) -> None:
        self._undo.close()


_TOLD_AGAIN = 100


class Run:
    """running --an error left the script or a round--> failed; either --finish--> finished"""

    def __init__(self) -> None:
        self.failed = False  # no step counts any more, and there is no last round
        self.error = ""  # the error's text
        self.finished = False
        self._left_out: Counter[str] = Counter()

    def __enter__(self) -> None:
        """`with world.run:` makes the run fail if the body raises."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is not None and not self.failed:
            self.failed, self.error = True, str(error) or kind.__name__

    def leaves_out(self, what: str) -> bool:
        """Counts what is left out since the run failed. Returns whether to log it: the first, and every hundredth."""
        self._left_out[what] += 1
        return self._left_out[what] % _TOLD_AGAIN == 1

    def finish(self) -> None:
        self.finished = True


@dataclass(frozen=True, eq=False)
class World:
    info: WorldInfo
    groups: SiteGroups
    hub: Hub
    coordinators: Coordinators
    backend: Any  # c10d's backend of the world
    generations: Generations
    ddps: Ddps = field(default_factory=Ddps)
    copies: Copies = field(default_factory=Copies)
    loads: Loads = field(default_factory=Loads)
    uneven: UnevenInputs = field(default_factory=UnevenInputs)
    traffic: CollectiveTraffic = field(default_factory=CollectiveTraffic)  # collectives between sites
    installed: Installed = field(default_factory=Installed)
    run: Run = field(default_factory=Run)

    @property
    def training(self) -> Training:
        return self.generations.training

    @property
    def is_leader(self) -> bool:
        return self.info.is_leader


_world: World | None = None
_pid = 0


def current() -> World | None:
    """The world of exactly this process; None before init, after destroy, and in forked children."""
    return _world if _pid == os.getpid() else None


def inherited() -> World | None:
    """As current(), but in a forked child the parent's world: use only what is fixed there, never its groups."""
    return _world


def require() -> World:
    world = current()
    if world is None:
        raise RuntimeError(
            'collab: there is no collab world here; call init_process_group("collab") first [ddp.no-world]'
        )
    return world


def enter(world: World) -> None:
    global _world, _pid
    if _world is not None:
        _world.installed.close()  # the parent's, in a forked child
    _world, _pid = world, os.getpid()


def leave() -> None:
    global _world
    _world = None
