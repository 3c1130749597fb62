"""The one collab world of this process, and what belongs to it.

Threads: everything here belongs to the thread that runs the script. Processes: a forked child (a DataLoader worker)
sees `current()` as None and so runs no hook.
"""

from __future__ import annotations

import enum
import os
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch_collab.model.cycle import OptimizerCycle
from torch_collab.model.samples import SampleCounter
from torch_collab.model.traffic import CollectiveTraffic
from torch_collab.model.unseen import UnseenSteps

if TYPE_CHECKING:
    from datetime import timedelta

    from torch.distributed import ProcessGroup, Store
    from torch.nn import Module
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim import Optimizer

    from torch_collab import _C
    from torch_collab.model.optimizer_copy import Fetch
    from torch_collab.model.vector import Vector
    from torch_collab.native import Settings
    from torch_collab.network.signed_store import SignedStore
    from torch_collab.world.topology import Place, Site, Sites


class Start(enum.Enum):
    """How this world came to be (docs/guides/two-sites.md)."""

    ONE_WORLD = "one world"  # its ranks are all the sites there are; its first site serves the coordinator
    FIRST_MEMBERS = "cohort"  # several sites, the first of a swarm that others join; the coordinator is outside
    LONE = "lone"  # one site of a swarm; the coordinator is outside


@dataclass(eq=False)
class Training:
    """Of a generation: the models that are trained together, until others take their place."""

    session: _C.Session | None = None
    vector: Vector | None = None
    trained: weakref.WeakSet[DistributedDataParallel] = field(default_factory=weakref.WeakSet)  # whose forwards ran
    optimizers: weakref.WeakSet[Optimizer] = field(default_factory=weakref.WeakSet)
    samples: SampleCounter = field(default_factory=SampleCounter)
    cycle: OptimizerCycle = field(default_factory=OptimizerCycle)
    stepped_in_backward: bool = False
    unseen: UnseenSteps = field(default_factory=UnseenSteps)
    metrics: dict[str, float] = field(default_factory=dict)  # as the script logged them last
    metrics_round: int | None = None  # after which they were written last
    fetch: Fetch | None = None  # of a member's optimizer state, until our optimizers have stepped


@dataclass(eq=False)
class World:
    # Fixed when the world is made.
    start: Start
    rank: int
    size: int
    store: Store  # of the world; with several sites of torchrun it may be lost once init_process_group has returned
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
    hub_link: _C.HubLink | None = None  # several sites, unless torch's Gloo is asked for
    hub_world: int = 0
    site_group: ProcessGroup | None = None
    part_groups: dict[tuple[int, ...], Any] = field(default_factory=dict)
    # DDPs that were constructed and are in no vector yet; what each DDP was constructed to train, by id().
    new_ddps: list[weakref.ref[DistributedDataParallel]] = field(default_factory=list)
    constructed: weakref.WeakKeyDictionary[DistributedDataParallel, frozenset[int]] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    server: _C.CoordinatorServer | None = None
    coordinators: list[str] = field(default_factory=list)
    watches_for_termination: bool = False
    watches_averager: bool = False  # torch's own, of models
    watches_dispatcher: bool = False  # accelerate's, of batches
    traffic: CollectiveTraffic | None = None  # between sites, where there are several
    installed: ExitStack = field(default_factory=ExitStack)  # undoes what was put into torch for this world
    finish: Callable[[], None] | None = None  # ends the run (backend/shutdown.py)
    failed: bool = False  # the script or a round raised: no last round
    finished: bool = False

    generation: int = 0  # none yet
    egress_spent: int = 0  # by the generations before, in bytes
    loaded: dict[int, weakref.ref[Module]] = field(default_factory=dict)  # since the last generation began
    training: Training = field(default_factory=Training)

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


_world: World | None = None


def current() -> World | None:
    """The world of this very process; None before init, after destroy, and in forked children."""
    if _world is None or _world.pid != os.getpid():
        return None
    return _world


def inherited() -> World | None:
    """As current(), and in a forked child the world of its parent: for what is fixed, never for its groups."""
    return _world


def require() -> World:
    world = current()
    if world is None:
        raise RuntimeError(
            'collab: there is no collab world here; call init_process_group("collab") first [ddp.no-world]'
        )
    return world


def enter(world: World) -> None:
    global _world
    if _world is not None:
        _world.installed.close()  # of the parent, in a forked child
    _world = world


def leave() -> None:
    global _world
    _world = None
