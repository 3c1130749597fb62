"""The meeting of a world's ranks: what collectives between sites run on, unless COLLAB_TRANSPORT=gloo.

Each rank has one link, which it dials itself, to the coordinator: in one world the first site's leader serves it from
init_process_group on, in a cohort the agents do. A group that spans sites is a numbered group of the meeting.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from torch_collab import links, native
from torch_collab.groups import Inner
from torch_collab.places import Site, Sites

if TYPE_CHECKING:
    from torch_collab import _C
    from torch_collab.native import Settings
    from torch_collab.state import World

_KEY = "collab/meeting"


@dataclass(frozen=True)
class Part:
    """What one process group is in the meeting."""

    seat: _C.MeetingSeat
    group_id: int
    ranks: tuple[int, ...]  # of the world
    site_names: tuple[str, ...]  # by rank of the group


def wanted(world: World) -> bool:
    return len(world.sites.sites) > 1 and world.config.transport != "gloo"


def enter(world: World, config: Settings) -> None:
    """Takes this rank's seat; `world.coordinators` are known. Collective over the ranks of the world."""
    if world.rank == 0:
        world.told.set(_KEY, json.dumps({"world": secrets.randbits(64)}))
    world.meeting_id = json.loads(world.told.get(_KEY))["world"]
    site_of = [0] * world.size
    for index, site in enumerate(world.sites.sites):
        for rank in site.ranks:
            site_of[rank] = index
    world.seat = native.enter_meeting(
        config,
        links.make(config, config.advertise),
        world.meeting_id,
        world.rank,
        [site.name for site in world.sites.sites],
        site_of,
        world.coordinators,
    )
    world.told.set(f"{_KEY}/seated/{world.rank}", "1")


def wait_until_all_have_come(world: World, limit: timedelta) -> None:
    """Who serves the coordinator must not end before the last rank has found it; a rank that never comes, or a store
    that is gone, ends the wait."""
    with contextlib.suppress(RuntimeError):
        world.told.wait([f"{_KEY}/seated/{rank}" for rank in range(world.size)], limit)


def part(world: World, opts: Any) -> Part:
    """Of the process group that torch asks for. The same at all its ranks, and of no other group, before or after."""
    ranks = tuple(opts.global_ranks_in_group) or tuple(range(opts.group_size))
    # A group that is destroyed and made again has the same name; all its ranks count alike.
    time = opts.store.add(f"{_KEY}/{opts.group_rank}", 1)
    text = f"{world.meeting_id}/{opts.group_id}/{list(ranks)}/{time}"
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    names = tuple(world.sites.of(rank).name for rank in ranks)
    assert world.seat is not None
    return Part(world.seat, number & ~1, ranks, names)  # the leaders' group is the next number


def gather(world: World, what: str, mine: bytes, limit: timedelta) -> list[bytes]:
    """What every rank of the world brings, by rank, all as many bytes. Collective, once for each `what`.

    In a group of its own, so that a script's collectives, which may be in another order at another site, do not count.
    Raises RuntimeError with rank and site once one is known to be gone, after COLLAB_LINK_GRACE, or does not come.
    """
    assert world.seat is not None
    digest = hashlib.blake2b(f"{world.meeting_id}/{what}".encode(), digest_size=8).digest()
    names = tuple(world.sites.of(rank).name for rank in range(world.size))
    inner = Inner(
        None, None, None, Part(world.seat, int.from_bytes(digest, "big") & ~1, tuple(range(world.size)), names)
    )
    opts = SimpleNamespace(group_rank=world.rank, group_size=world.size, timeout=limit)
    # Each rank for itself: nothing here is summed over a site first.
    apart = Sites(tuple(Site(name, (rank,)) for rank, name in enumerate(names)))
    backend = native.make_backend(opts, apart, inner, is_world=False)
    parts = [torch.empty(len(mine), dtype=torch.uint8) for _ in range(world.size)]
    backend.allgather([parts], [torch.frombuffer(bytearray(mine), dtype=torch.uint8)]).wait()
    return [bytes(part.tolist()) for part in parts]


def leave(world: World) -> None:
    seat, world.seat = world.seat, None
    if seat is not None:
        seat.leave("its process group was destroyed")
