"""The collective hub of a world's ranks: what collectives between sites run on, unless COLLAB_TRANSPORT=gloo.

Each rank has one link, which it dials itself, to the coordinator: in one world the first site's leader serves it from
init_process_group on, under torchrun the agents do. A group that spans sites is a numbered group of the hub.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from torch_collab import native
from torch_collab.network import links
from torch_collab.world.groups import HubGroup, Inner, make_backend
from torch_collab.world.topology import Site, Sites

if TYPE_CHECKING:
    from torch_collab.native import Settings
    from torch_collab.world.state import World

_KEY = "collab/hub"


def wanted(world: World) -> bool:
    return len(world.sites.sites) > 1 and world.config.transport != "gloo"


def enter(world: World, config: Settings) -> None:
    """Links this rank to the hub; `world.coordinators` are known. Collective over the ranks of the world."""
    if world.rank == 0:
        world.told.set(_KEY, json.dumps({"world": secrets.randbits(64)}))
    world.hub_world = json.loads(world.told.get(_KEY))["world"]
    site_of = [0] * world.size
    for index, site in enumerate(world.sites.sites):
        for rank in site.ranks:
            site_of[rank] = index
    world.hub_link = native.connect_hub(
        config=config.raw,
        transport=links.make(config, config.advertise),
        world=world.hub_world,
        rank=world.rank,
        sites=[site.name for site in world.sites.sites],
        site_of=site_of,
        hubs=list(world.coordinators),
    )
    world.told.set(f"{_KEY}/entered/{world.rank}", "1")


def wait_until_all_have_come(world: World, limit: timedelta) -> None:
    """Who serves the coordinator must not end before the last rank has found it; a rank that never comes, or a store
    that is gone, ends the wait."""
    with contextlib.suppress(RuntimeError):
        world.told.wait([f"{_KEY}/entered/{rank}" for rank in range(world.size)], limit)


def group(world: World, opts: Any) -> HubGroup:
    """Of the process group that torch asks for. The same at all its ranks, and of no other group, before or after."""
    ranks = tuple(opts.global_ranks_in_group) or tuple(range(opts.group_size))
    # A group that is destroyed and made again has the same name; all its ranks count alike.
    time = opts.store.add(f"{_KEY}/{opts.group_rank}", 1)
    text = f"{world.hub_world}/{opts.group_id}/{list(ranks)}/{time}"
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    names = tuple(world.sites.of(rank).name for rank in ranks)
    assert world.hub_link is not None
    return HubGroup(world.hub_link, number & ~1, ranks, names)  # the leaders' group is the next number


def gather(world: World, what: str, mine: bytes, limit: timedelta) -> list[bytes]:
    """What every rank of the world brings, by rank, all as many bytes. Collective, once for each `what`.

    In a group of its own, so that a script's collectives, which may be in another order at another site, do not count.
    Raises RuntimeError with rank and site once one is known to be gone, after COLLAB_LINK_GRACE, or does not come.
    """
    assert world.hub_link is not None
    digest = hashlib.blake2b(f"{world.hub_world}/{what}".encode(), digest_size=8).digest()
    names = tuple(world.sites.of(rank).name for rank in range(world.size))
    inner = Inner(
        None, None, None, HubGroup(world.hub_link, int.from_bytes(digest, "big") & ~1, tuple(range(world.size)), names)
    )
    opts = SimpleNamespace(group_rank=world.rank, group_size=world.size, timeout=limit)
    # Each rank for itself: nothing here is summed over a site first.
    apart = Sites(tuple(Site(name, (rank,)) for rank, name in enumerate(names)))
    backend = make_backend(opts, apart, inner, is_world=False)
    parts = [torch.empty(len(mine), dtype=torch.uint8) for _ in range(world.size)]
    backend.allgather([parts], [torch.frombuffer(bytearray(mine), dtype=torch.uint8)]).wait()
    return [bytes(part.tolist()) for part in parts]


def leave(world: World) -> None:
    link, world.hub_link = world.hub_link, None
    if link is not None:
        link.leave("its process group was destroyed")
