"""The one collab world of this process, and what belongs to it.

Threads: everything here belongs to the thread that runs the script. Processes: a forked child (a DataLoader worker)
sees `current()` as None and so runs no hook.
"""

from __future__ import annotations

import enum
import os
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch_collab.cycle import OptimizerCycle
from torch_collab.samples import SampleCounter

if TYPE_CHECKING:
    from datetime import timedelta

    from torch.distributed import ProcessGroup, Store
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim import Optimizer

    from torch_collab import _C
    from torch_collab.moments import Wish
    from torch_collab.native import Settings
    from torch_collab.places import Place, Site, Sites
    from torch_collab.signed_store import SignedStore


class Start(enum.Enum):
    """How this world came to be (README, "Ways to start")."""

    ONE_WORLD = "one world"  # its ranks are all the sites there are; its first site serves the coordinator
    COHORT = "cohort"  # several sites, the first of a swarm that others join; the coordinator is outside
    LONE = "lone"  # one site of a swarm; the coordinator is outside


@dataclass(eq=False)
class World:
    # Fixed when the world is made.
    start: Start
    rank: int
    size: int
    store: Store  # of the world; in a cohort it may be lost once init_process_group has returned
    told: SignedStore  # the same, for what collab's ranks tell one another
    site_store: Store  # for what concerns this site alone
    timeout: timedelta
    config: Settings
    options: dict[str, str]  # what the script passed as pg_options
    places: list[Place]
    sites: Sites
    site: Site
    pid: int = field(default_factory=os.getpid)

    # Made while the script runs.
    backend: Any = None  # the c10d backend of the world, made in init_process_group
    seat: _C.MeetingSeat | None = None  # several sites, unless torch's Gloo is asked for
    meeting_id: int = 0
    site_group: ProcessGroup | None = None
    part_groups: dict[tuple[int, ...], Any] = field(default_factory=dict)
    ddp_modules: list[weakref.ref[DistributedDataParallel]] = field(default_factory=list)
    session: _C.Session | None = None
    server: _C.CoordinatorServer | None = None
    coordinators: list[str] = field(default_factory=list)
    vector: tuple[tuple[int, int], ...] = ()  # id() and elements of every trained parameter in the vector, in order
    vector_ids: frozenset[int] = frozenset()  # id() of every trained parameter in the vector
    optimizers: weakref.WeakSet[Optimizer] = field(default_factory=weakref.WeakSet)
    samples: SampleCounter = field(default_factory=SampleCounter)
    cycle: OptimizerCycle = field(default_factory=OptimizerCycle)
    stepped_in_backward: bool = False
    wish: Wish | None = None  # for a member's optimiser state, until our optimisers have stepped
    watches_for_termination: bool = False
    failed: bool = False  # the script or a round raised: no last round
    finished: bool = False

    @property
    def one_world(self) -> bool:
        """Nobody but the ranks of this world takes part, and one of them serves the coordinator."""
        return self.start is Start.ONE_WORLD

    @property
    def ranks_tell_sites_apart(self) -> bool:
        return self.start is not Start.LONE

    @property
    def is_leader(self) -> bool:
        return self.rank == self.site.leader

    @property
    def site_rank(self) -> int:
        return self.site.ranks.index(self.rank)

    @property
    def one_host(self) -> bool:
        return len({self.places[rank].host for rank in self.site.ranks}) == 1

    def living_ddp_modules(self) -> list[DistributedDataParallel]:
        return [module for module in (ref() for ref in self.ddp_modules) if module is not None]


_world: World | None = None


def current() -> World | None:
    """The world of this very process; None before init, after destroy, and in forked children."""
    if _world is None or _world.pid != os.getpid():
        return None
    return _world


def require() -> World:
    world = current()
    if world is None:
        raise RuntimeError('collab: there is no collab world here; call init_process_group("collab") first')
    return world


def enter(world: World) -> None:
    global _world
    _world = world


def leave() -> None:
    global _world
    _world = None
