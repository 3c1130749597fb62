"""Sites that are worlds of their own have the same ranks, so default DistributedSamplers would use the same data.

With COLLAB_SITE_INDEX and COLLAB_NUM_SHARDS both given, a default sampler takes an exact shard. Otherwise the site's
index (COLLAB_SITE_INDEX, or a number made from the site's name) is added to its seed. COLLAB_RESEED=0 turns both off. A
script that draws batches by its own seed is not noticed here; a message at the start says what to do.
"""

from __future__ import annotations

import functools
import hashlib
import mmap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch_collab import environment, log
from torch_collab.formatting import counted
from torch_collab.world import state

if TYPE_CHECKING:
    from torch_collab.world.topology import WorldInfo


_OWN_SEEDS = (
    "ranks do not tell sites apart here. A script that draws batches by its own seed (torch.manual_seed, a generator, "
    "numpy) draws the same at every site. Add torch_collab.site_index() to the seed (times the number of ranks, if the "
    "rank is added too)."
)
_OWN_SHARDS = (
    " Or set COLLAB_SITE_INDEX and COLLAB_NUM_SHARDS, and take every site_count()-th part of the data from "
    "site_index() on."
)


_told_alone = mmap.mmap(-1, 1)  # shared with forked workers, which are new in every epoch


def own_seeds() -> str:
    """Advice for sites that are worlds of their own. A site that came late through an agent is in a swarm with the
    first members, which have no shards."""
    return f"{_OWN_SEEDS}{'' if _came_late() else _OWN_SHARDS} A DistributedSampler with default ranks does not need it"


def _came_late() -> bool:
    return environment.from_agent(environment.START) == environment.LONE


def index_from_name(name: str) -> int:
    """A stable number below 2^31 for a site without a configured index."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little") & 0x7FFFFFFF


def site_index(info: WorldInfo) -> int:
    if info.ranks_tell_sites_apart:
        return info.site_number
    if info.config.site_index is not None:
        return int(info.config.site_index)
    return index_from_name(info.site.name)


def site_count(info: WorldInfo) -> int:
    return len(info.sites.sites) if info.ranks_tell_sites_apart else int(info.config.num_shards)


def share(info: WorldInfo) -> tuple[int, int]:
    """(rank, number of ranks) by which a default DistributedSampler divides data here."""
    index, count = site_index(info), site_count(info)
    if info.ranks_tell_sites_apart or info.config.site_index is None or count == 1:
        return info.rank, info.size
    if index >= count:
        raise ValueError(
            f"collab: COLLAB_SITE_INDEX={index} is not a shard of COLLAB_NUM_SHARDS={count}: sites count from 0. Give "
            "a larger count; or leave COLLAB_SITE_INDEX out, and the seed is changed instead [knob.site-index]"
        )
    return info.size * index + info.rank, info.size * count


def told_share() -> tuple[int, int]:
    """`share` for a script that divides its data itself. A forked child (such as a DataLoader worker) may ask, too."""
    world = state.inherited()
    if world is None:
        raise RuntimeError(
            'collab: data_rank() and data_world_size() are known after init_process_group("collab"), and in workers '
            "that a DataLoader forks since then. Hand them to a worker that is started otherwise (spawn), with the "
            "data set [capture.data-rank-early]"
        )
    info = world.info
    rank, size = share(info)
    if size == info.size and not info.ranks_tell_sites_apart and info.is_leader and not _told_alone[0]:
        _told_alone[0] = 1
        shards = "" if _came_late() else ", or set COLLAB_SITE_INDEX and COLLAB_NUM_SHARDS"
        log.warning(
            f"data_rank() divides the data among the {counted(size, 'rank')} of site {info.site.name} alone, because "
            "no knob says how many sites there are. So every site reads all of it. Add torch_collab.site_index() to "
            f"the seed that shuffles the data{shards} [capture.data-rank-alone]"
        )
    return rank, size


def deal_by_site(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces DistributedSampler.__init__."""
    told = False

    @functools.wraps(original)
    def init(
        self: Any, dataset: Any, num_replicas: int | None = None, rank: int | None = None, *args: Any, **kw: Any
    ) -> None:
        nonlocal told
        world = state.current()
        if world is None or num_replicas is not None or rank is not None:
            original(self, dataset, num_replicas, rank, *args, **kw)
            if world is not None and world.info.is_leader:
                _look_at_explicit(world.info, num_replicas, rank)
            return
        info = world.info
        rank, num_replicas = share(info)
        index, count = site_index(info), num_replicas // info.size
        if count > 1:
            original(self, dataset, num_replicas, rank, *args, **kw)
            what = f"takes shard {index} of {count}"
        else:
            original(self, dataset, None, None, *args, **kw)
            self.seed += index
            what = f"has {index} added to its seed"
        if info.is_leader and not told:
            told = True
            log.info(
                f"site {info.site.name}: a DistributedSampler with default ranks {what} (COLLAB_RESEED=0 turns it off)"
            )

    return init


def _look_at_explicit(info: WorldInfo, num_replicas: int | None, rank: int | None) -> None:
    if (num_replicas, rank) != (info.size, info.rank):
        return
    why = "which are the same at every site: with the same dataset, all sites train on the same samples"
    code = "[capture.sampler-same]"
    if _came_late():
        why = "but this site came late, as a world of its own: it deals out the whole data, with a seed that others use"
        code = "[capture.sampler-late]"
    log.warn_once(
        f"a DistributedSampler was told num_replicas={num_replicas} and rank={rank}, {why}. Leave the two out, and "
        f"collab gives each site its own; or add torch_collab.site_index() to the seed {code}"
    )
