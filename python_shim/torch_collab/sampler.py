"""Sites that are worlds of their own have the same ranks, so default DistributedSamplers would deal the same data.

With COLLAB_SITE_INDEX and COLLAB_SITE_COUNT both given, a default sampler takes an exact shard. Otherwise the site's
index (COLLAB_SITE_INDEX, or a number made from the site's name) is added to its seed. COLLAB_RESEED=0 turns both off.
Batches that a script draws by a seed of its own are not seen here: it is told at the start what to do.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.utils.data.distributed import DistributedSampler

from torch_collab import log, state

if TYPE_CHECKING:
    from torch_collab.state import World


# For sites that are worlds of their own.
OWN_SEEDS = (
    "ranks do not tell sites apart here: a script that draws batches by a seed of its own (torch.manual_seed, a "
    "generator, numpy) draws the same at every site. Add torch_collab.site_index() to the seed (times the number of "
    "ranks where the rank is added too), or, with COLLAB_SITE_INDEX and COLLAB_SITE_COUNT set, take every "
    "site_count()-th part of the data from site_index() on; a DistributedSampler with default ranks needs neither"
)


def index_from_name(name: str) -> int:
    """A stable number below 2^31 for a site whose index nobody gave."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little") & 0x7FFFFFFF


def site_index(world: World) -> int:
    if world.ranks_tell_sites_apart:
        return world.sites.sites.index(world.site)
    if world.config.site_index is not None:
        return int(world.config.site_index)
    return index_from_name(world.site.name)


def site_count(world: World) -> int:
    return len(world.sites.sites) if world.ranks_tell_sites_apart else int(world.config.site_count)


def install(world: World) -> Callable[[], None]:
    original = DistributedSampler.__init__
    told = warned = False

    @functools.wraps(original)
    def init(
        self: Any, dataset: Any, num_replicas: int | None = None, rank: int | None = None, *args: Any, **kw: Any
    ) -> None:
        nonlocal told, warned
        now = state.current()
        default = num_replicas is None and rank is None
        if now is None or not default:
            original(self, dataset, num_replicas, rank, *args, **kw)
            if now is not None and now.is_leader and not warned and (num_replicas, rank) == (now.size, now.rank):
                warned = True
                log.warning(
                    f"a DistributedSampler was told num_replicas={num_replicas} and rank={rank}, which are the same at "
                    "every site: with the same dataset all sites train on the same samples. Leave the two out, and "
                    "collab gives each site its own, or add torch_collab.site_index() to the seed"
                )
            return
        index, count = site_index(now), site_count(now)
        if now.config.site_index is not None and count > 1:
            if index >= count:
                raise ValueError(
                    f"collab: COLLAB_SITE_INDEX={index} names no shard of COLLAB_SITE_COUNT={count}: sites count from "
                    "0; give a larger count, or leave COLLAB_SITE_INDEX out and the seed is changed instead"
                )
            original(self, dataset, now.size * count, now.size * index + now.rank, *args, **kw)
            what = f"takes shard {index} of {count}"
        else:
            original(self, dataset, None, None, *args, **kw)
            self.seed += index
            what = f"has {index} added to its seed"
        if now.is_leader and not told:
            told = True
            log.info(
                f"site {now.site.name}: a DistributedSampler with default ranks {what} (COLLAB_RESEED=0 turns it off)"
            )

    DistributedSampler.__init__ = init

    def undo() -> None:
        DistributedSampler.__init__ = original

    return undo
