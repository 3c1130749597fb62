"""Makes the backend of a process group: the world for the first group, else a subgroup."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from torch_collab import environment, log, native, options, torch_compat
from torch_collab.backend import shutdown
from torch_collab.capture import hooks, running, sampler
from torch_collab.environment import collab_variables
from torch_collab.formatting import counted
from torch_collab.network import links
from torch_collab.network.addresses import as_name, split_host_port
from torch_collab.network.keys import NO_KEY, SwarmKey, read_key
from torch_collab.network.signed_store import SignedStore
from torch_collab.world import state, topology
from torch_collab.world.coordinator import Coordinators
from torch_collab.world.generations import Generations
from torch_collab.world.groups import GroupOptions, SiteGroups, again, make_backend
from torch_collab.world.hub import Hub
from torch_collab.world.topology import Sites, Start, WorldInfo


def create_backend(opts: Any, backend_options: Any) -> Any:
    asked = GroupOptions.of(opts)
    world = state.current()
    if world is None:
        return _create_world(asked, backend_options)
    return _create_subgroup(world, asked)


def _create_world(opts: GroupOptions, backend_options: Any) -> Any:
    rank, size, store, timeout = opts.group_rank, opts.group_size, opts.store, opts.timeout
    variables, key = collab_variables(), NO_KEY
    try:
        given = options.pairs_of(backend_options)
        key = read_key(variables, given)
        torch_compat.check()
        torch_compat.check_build(native.build_info()["torch"])
        config = native.load_config(variables, given)
    except (ValueError, torch_compat.UnfitTorch) as error:
        # The other ranks learn why this one will not come.
        topology.give_up(_told(store, key), rank, str(error))
        raise type(error)(_prefixed(error)) from None
    native.start_log()
    log.set_source(config.site or as_name(socket.gethostname()), rank)  # until the map of sites is drawn
    log.set_level(config.log_level, config.given("log_level"))
    settings = _settings_of_world(config)
    start = _start(config)
    told = _told(store, key)
    mine = topology.my_place(config.site, settings, _transport(config, start))
    limit = min(timeout, timedelta(seconds=config.join_timeout)) if config.given("join_timeout") else timeout
    everyone = topology.exchange(told, rank, size, mine, limit)
    sites = topology.draw_lone_site(everyone) if start is Start.LONE else topology.draw_map(everyone)
    site = sites.of(rank)
    log.set_source(site.name, rank)
    _check_init_from(config, start, sites)
    if rank == site.leader:
        for warning in (*native.environment_warnings(variables), torch_compat.untested()):
            if warning:
                log.warn_once(warning)
    info = WorldInfo(
        start=start,
        rank=rank,
        size=size,
        store=store,
        told=told,
        site_store=_site_store(start, opts),
        timeout=timeout,
        config=config,
        options=given,
        sites=sites,
        one_host=len({everyone[other].host for other in site.ranks}) == 1,
    )
    hub = Hub(info)
    coordinators = Coordinators(info, hub)
    try:
        if hub.wanted:
            coordinators.meet()
        part = hub.group(opts) if info.several_sites else None
        backend = make_backend(opts, sites, part, info.one_host, is_world=True)
    except Exception:
        hub.leave()
        raise
    world = state.World(info, SiteGroups(info), hub, coordinators, backend, Generations(info))
    state.enter(world)
    hooks.install(world)
    shutdown.install(world)
    running.watch(backend)
    if rank == 0:
        log.info(_describe(info))
        if start is Start.LONE:
            log.info(sampler.own_seeds())
    return backend


def _settings_of_world(config: native.Settings) -> dict[str, str]:
    """The knobs that all ranks of a world must share."""
    own = {row["name"] for row in native.knob_table() if row["scope"] == "rank"}
    return {name: value for name, value, _ in config.values if name not in own}


def _told(store: Any, key: SwarmKey) -> SignedStore:
    """The world's store, for messages between collab's ranks."""
    run = environment.run_of_agent() or ""
    where = f"the world's store at {os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
    return SignedStore(store, key, ("ranks", run, environment.from_agent(environment.WORLD)), where)


def _transport(config: native.Settings, start: Start) -> str:
    """The transport of this world's links between sites. "" if there are none, or none can be made (reported later)."""
    if start is Start.LONE:
        return ""
    try:
        return links.choose(config, start is Start.ONE_WORLD).kind
    except RuntimeError:
        return ""


def _start(config: native.Settings) -> Start:
    if not config.coordinator:
        return Start.ONE_WORLD
    first = environment.from_agent(environment.START) == environment.FIRST_MEMBERS
    return Start.FIRST_MEMBERS if first else Start.LONE


def _check_init_from(config: native.Settings, start: Start, sites: Sites) -> None:
    """In one world no other site will come, so there is no need to wait for a name that no site has."""
    names = [site.name for site in sites.sites]
    if start is Start.ONE_WORLD and config.init_from and config.init_from not in names:
        raise ValueError(
            f"collab: COLLAB_INIT_FROM: expected a site of this world ({', '.join(names)}), got {config.init_from!r}; "
            "sites are named by COLLAB_SITE [knob.init-from]"
        )


def _site_store(start: Start, opts: GroupOptions) -> Any:
    """Among the first members each site has its own store, which its agent serves; else it is the world's."""
    address = environment.from_agent(environment.SITE_STORE)
    if start is not Start.FIRST_MEMBERS or not address:
        return opts.store
    host, port = split_host_port(address)
    store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=opts.timeout)
    return again(store, opts.time)


def _create_subgroup(world: state.World, opts: GroupOptions) -> Any:
    sites = world.info.sites.restricted(list(opts.ranks))
    part = world.hub.group(opts) if len(sites.sites) > 1 else None
    backend = make_backend(opts, sites, part, world.info.one_host, is_world=False)
    running.watch(backend)
    return backend


def _describe(info: WorldInfo) -> str:
    sites = "; ".join(f"{site.name} (ranks {_ranges(site.ranks)})" for site in info.sites.sites)
    if info.ranks_tell_sites_apart:
        where = "" if info.one_world else f"; the coordinator is at {', '.join(info.config.coordinator)}"
        return f"{counted(len(info.sites.sites), 'site')} in one world: {sites}{where}"
    return f"site {sites} of the swarm at {', '.join(info.config.coordinator)}"


def _ranges(ranks: tuple[int, ...]) -> str:
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ", ".join(str(rank) for rank in ranks)


def _prefixed(error: Exception) -> str:
    text = str(error)
    return text if text.startswith("collab:") else f"collab: {text}"
