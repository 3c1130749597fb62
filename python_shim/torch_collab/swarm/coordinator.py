"""Where the coordinator is, which transport the sites' links use, and the session that uses them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from torch_collab import environment, log, native
from torch_collab.environment import collab_variables
from torch_collab.network import addresses, links
from torch_collab.swarm import records
from torch_collab.world import hub
from torch_collab.world.groups import gloo_listens_here_only, make_gloo, site_group

if TYPE_CHECKING:
    from torch_collab import _C
    from torch_collab.model.vector import Entry
    from torch_collab.world.state import World

_KEY = "collab/coordinator"
_FAILED = "failed: "
_HEARD = "collab/heard"
_HEARING_SECONDS = 30
_LEAVE_SECONDS = 20


def make_session(world: World, entries: Sequence[Entry], resumed: bool) -> _C.Session:
    """Finds or serves the coordinator and makes this rank's session of the generation. Collective over the ranks of the
    site, for the first generation over those of the world."""
    config = _resolved(world)
    transport = _leader_only(world, lambda: _reach_coordinator(world, config))
    size = len(world.site.ranks)
    site_gloo = None
    if size > 1:
        with gloo_listens_here_only(world.one_host):
            name = f"session/{world.generation}/{world.site.leader}"
            site_gloo = make_gloo(world.site_store, name, world.site_rank, size, world.timeout)
    record_dir, record_scope = records.place(world) if world.is_leader else ("", "")
    trained = [entry for entry in entries if entry.trained]
    return native.make_session(
        config,
        site=world.site.name,
        job=_job(),
        record_dir=record_dir,
        record_scope=record_scope,
        generation=world.generation,
        egress_spent=world.egress_spent,
        site_rank=world.site_rank,
        site_size=size,
        one_host=world.one_host,
        coordinators=list(world.coordinators),
        model=[_row(entry) for entry in entries],
        # The tensors themselves, not detached ones, which would keep the storage of today.
        parameters=[entry.tensor for entry in trained],
        compared_elements=sum(entry.tensor.numel() for entry in trained if not entry.buffer),
        site_group=site_gloo,
        transport=transport,
        resumed=resumed,
    )


def _row(entry: Entry) -> tuple[str, str, list[int], str, str]:
    """What sites compare of a tensor."""
    tensor = entry.tensor.detach()
    digest = "" if entry.trained else native.digest(tensor)
    return entry.name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), entry.kind, digest


def _job() -> str:
    """What restarts this process after a crash, torchrun's agent: its run and the very process. Empty without one."""
    run = environment.run_of_agent()
    if run is None:
        return ""
    agent = os.getppid()
    try:
        started = Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{run}/{agent}/{started}"


def meet(world: World) -> None:
    """Several sites: finds or serves the coordinator, and links this rank to the hub there. Collective."""
    config = _resolved(world)
    _serve_or_find(world, config, None)
    hub.enter(world, config)
    if world.one_world and world.server is not None:
        # A rank that had not found it would look for it for COLLAB_JOIN_TIMEOUT, should this process die before.
        hub.wait_until_all_have_come(world, timedelta(seconds=world.config.join_timeout))


def _reach_coordinator(world: World, config: native.Settings) -> dict[str, Any]:
    """Leaders: the transport for links between sites, with `world.coordinators` known and one of them served here."""
    choice = links.choose(config, world.one_world)
    (log.warning if choice.key_unused else log.info)(str(choice))
    gloo = _LinkNodes(world) if choice.kind == "gloo" else None
    transport = {"kind": "gloo", "backend": gloo.mine} if gloo else links.make(config, config.advertise)
    if not world.coordinators:  # else known since the ranks' hub
        _serve_or_find(world, config, gloo)
    return transport


def _serve_or_find(world: World, config: native.Settings, gloo: _LinkNodes | None) -> None:
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


def _leader_only(world: World, body: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Runs `body` at the site's leader; when it fails there, the site's other ranks fail with the same words."""
    failure: Exception | None = None
    result = None
    if world.is_leader:
        try:
            result = body()
        except Exception as error:
            failure = error
    if len(world.site.ranks) > 1:
        words = [None if failure is None else str(failure)]
        dist.broadcast_object_list(words, src=world.site.leader, group=site_group(world))
        if failure is None and words[0] is not None:
            raise RuntimeError(words[0])
    if failure is not None:
        raise failure
    return result


def begin(world: World, session: _C.Session) -> None:
    """Round 0. When it fails, the coordinator stays until the other leaders have heard why."""
    try:
        session.begin()
    except Exception:
        _tell_heard(world)
        if world.server is not None and world.generation == 1:
            keys = [f"{_HEARD}/{index}" for index in range(len(world.sites.sites))]
            with contextlib.suppress(Exception):
                world.told.wait(keys, timedelta(seconds=min(world.config.join_timeout, _HEARING_SECONDS)))
        raise
    _tell_heard(world)
    if not world.watches_for_termination and (len(world.site.ranks) == 1 or world.one_host):
        # torchrun kills 30 s after it has asked.
        world.watches_for_termination = native.watch_for_termination(timedelta(seconds=_LEAVE_SECONDS))


def _tell_heard(world: World) -> None:
    if world.one_world and world.is_leader and world.generation == 1:
        world.told.set(f"{_HEARD}/{world.sites.sites.index(world.site)}", "1")


def _resolved(world: World) -> native.Settings:
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


class _LinkNodes:
    """Gloo over the leaders and, as its last rank, the coordinator, which lives in the first leader's process."""

    def __init__(self, world: World) -> None:
        leaders = [site.leader for site in world.sites.sites]
        size = len(leaders) + 1
        self.mine: Any = None
        self.coordinator: Any = None
        serving = world.rank == leaders[0]
        # Making one waits for all, so the first leader makes its two at the same time, and over two connections to the
        # store: a wait holds its connection.
        second = threading.Thread(target=self._make_coordinator, args=(world, size), daemon=True)
        if serving:
            second.start()
        self.mine = make_gloo(world.store, "links", leaders.index(world.rank), size, world.timeout)
        if serving:
            second.join()
            if self.coordinator is None:
                raise RuntimeError(
                    "collab: the coordinator's Gloo could not be made; the log above says why [coordinator.no-gloo]"
                )

    def _make_coordinator(self, world: World, size: int) -> None:
        self.coordinator = make_gloo(world.store.clone(), "links", size - 1, size, world.timeout)


def _serve(world: World, config: native.Settings, gloo: _LinkNodes | None) -> None:
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
