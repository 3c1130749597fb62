"""Where the coordinator is: the one that is set, or the one that the first site of a world serves."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch_collab import log, native
from torch_collab.environment import collab_variables
from torch_collab.network import addresses, links
from torch_collab.swarm.gloo_nodes import GlooNodes
from torch_collab.world import hub

if TYPE_CHECKING:
    from torch_collab.world.state import World

_KEY = "collab/coordinator"
_FAILED = "failed: "


def meet(world: World) -> None:
    """Several sites: finds or serves the coordinator, and links this rank to the hub there. Collective."""
    config = resolved(world)
    _serve_or_find(world, config, None)
    hub.enter(world, config)
    if world.one_world and world.server is not None:
        # A rank that had not found it would look for it for COLLAB_JOIN_TIMEOUT, should this process die before.
        hub.wait_until_all_have_come(world, timedelta(seconds=world.config.join_timeout))


def reach(world: World, config: native.Settings) -> dict[str, Any]:
    """Leaders: the transport for links between sites, with `world.coordinators` known and one of them served here."""
    choice = links.choose(config, world.one_world)
    (log.warning if choice.key_unused else log.info)(str(choice))
    gloo = GlooNodes(world) if choice.kind == "gloo" else None
    transport = {"kind": "gloo", "backend": gloo.mine} if gloo else links.make(config, config.advertise)
    if not world.coordinators:  # else known since the ranks' hub
        _serve_or_find(world, config, gloo)
    return transport


def _serve_or_find(world: World, config: native.Settings, gloo: GlooNodes | None) -> None:
    """Sets `world.coordinators`: the knob's, or of one world what its first leader serves."""
    if not world.one_world:
        world.coordinators = list(config.coordinator)
    elif world.rank == world.sites.sites[0].leader:
        try:
            _serve(world, config, gloo)
        except Exception as error:
            world.told.set(_KEY, _FAILED + str(error))  # the others need not wait for it
            raise
    else:
        _find(world)


def resolved(world: World) -> native.Settings:
    """The knobs with what this start has found out: the address others dial, which and how many sites one world has."""
    found = {"site": world.site.name}
    if world.ranks_tell_sites_apart:
        found["min_sites"] = str(len(world.sites.sites))
        found["site_index"] = str(world.sites.sites.index(world.site))
    if world.is_leader:
        found["advertise"] = addresses.dial_address(
            world.config.advertise, world.config.listen, list(world.config.coordinator)
        )
    return native.load_config(collab_variables(), {**world.options, **found})


def _serve(world: World, config: native.Settings, gloo: GlooNodes | None) -> None:
    """The first site's leader serves the coordinator and tells its address by the store."""
    if gloo is not None:
        world.server = native.serve_coordinator(config.raw, {"kind": "gloo", "backend": gloo.coordinator}, "0.0.0.0:0")
        address = world.server.address
    else:
        if config.advertise == addresses.NOT_DIALABLE and len(world.sites.sites) > 1:
            raise RuntimeError(
                "collab: COLLAB_ADVERTISE=none at the first site of the world, whose coordinator the others dial: let "
                "another site be the first (--node-rank=0), or leave COLLAB_ADVERTISE unset here "
                "[coordinator.undialable]"
            )
        host = config.listen.rpartition(":")[0]
        world.server = native.serve_coordinator(config.raw, links.make(config, config.advertise), f"{host}:0")
        _, port = addresses.split_host_port(world.server.address)
        reached = config.advertise
        if reached == addresses.NOT_DIALABLE:  # by this site's own ranks alone
            reached = "127.0.0.1" if addresses.is_wildcard(host) else host.strip("[]")
        address = addresses.join_host_port(reached, port)
    world.coordinators = [address]
    world.told.set(_KEY, address)


def _find(world: World) -> None:
    first = world.sites.sites[0]
    limit = timedelta(seconds=world.config.join_timeout)
    try:
        world.told.wait([_KEY], limit)
    except Exception as error:
        raise RuntimeError(
            f"collab: no coordinator after {limit.total_seconds():.0f} s (COLLAB_JOIN_TIMEOUT): the leader of site "
            f"{first.name}, rank {first.leader}, has not come to where it serves it ({error}) [coordinator.leader-late]"
        ) from None
    address = world.told.get(_KEY).decode()
    if address.startswith(_FAILED):
        raise RuntimeError(
            f"collab: rank {first.leader} of {first.name}: {address.removeprefix(_FAILED)} [coordinator.leader-failed]"
        )
    world.coordinators = [address]


def linger(world: World) -> None:
    """The coordinator stays until the other sites have left, at most COLLAB_LINGER."""
    server = world.server
    if server is None:
        return
    limit = world.config.linger
    deadline = time.monotonic() + limit
    if world.hub_world:
        hub.wait_until_all_have_come(world, timedelta(seconds=min(limit, world.config.join_timeout)))
    waiting_for = ""
    while True:
        left = deadline - time.monotonic()
        problem = native.wait_until_empty(server, max(0.0, min(2.0, left)))
        if problem is None:
            return
        if left <= 0:
            log.warning(
                f"after {limit:.0f} s (COLLAB_LINGER) the coordinator stops although sites are there: {problem} "
                "[coordinator.stops-early]"
            )
            return
        if problem != waiting_for:
            waiting_for = problem
            log.info(f"training is done here; the coordinator waits up to {limit:.0f} s (COLLAB_LINGER): {problem}")
