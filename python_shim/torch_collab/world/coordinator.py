"""Where the coordinator is: the configured one, or the one that a world's first site serves."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch_collab import log, native
from torch_collab.environment import collab_variables
from torch_collab.network import addresses, links
from torch_collab.network.linger import linger
from torch_collab.world.gloo_nodes import GlooNodes

if TYPE_CHECKING:
    from torch_collab import _C
    from torch_collab.world.hub import Hub
    from torch_collab.world.topology import WorldInfo

_KEY = "collab/coordinator"
_FAILED = "failed: "


def resolved(info: WorldInfo) -> native.Settings:
    """The knobs, with values that this start found out: the address others dial, and the sites' number and count."""
    found = {"site": info.site.name}
    if info.ranks_tell_sites_apart:
        found["min_sites"] = str(len(info.sites.sites))
        found["site_index"] = str(info.site_number)
    if info.is_leader:
        config = info.config
        found["advertise"] = addresses.dial_address(config.advertise, config.listen, list(config.coordinator))
    return native.load_config(collab_variables(), {**info.options, **found})


class Coordinators:
    """The coordinators that this rank knows, and the one that its process serves."""

    def __init__(self, info: WorldInfo, hub: Hub) -> None:
        self._info = info
        self._hub = hub
        self.addresses: list[str] = []  # HOST:PORT; at leaders once they were needed, with several sites at each rank
        self.server: _C.CoordinatorServer | None = None

    def meet(self) -> None:
        """With several sites: finds or serves the coordinator, and links this rank to its hub. Collective."""
        config = resolved(self._info)
        self._serve_or_find(config, None)
        self._hub.enter(config, self.addresses)
        if self._info.one_world and self.server is not None:
            # If this process died earlier, a rank without the address would look for it for COLLAB_JOIN_TIMEOUT.
            self._hub.wait_until_all_have_come(timedelta(seconds=config.join_timeout))

    def reach(self, config: native.Settings) -> dict[str, Any]:
        """At leaders: the transport for links between sites. Finds or serves the coordinator if not done yet."""
        choice = links.choose(config, self._info.one_world)
        (log.warning if choice.key_unused else log.info)(str(choice))
        gloo = GlooNodes(self._info) if choice.kind == "gloo" else None
        transport = {"kind": "gloo", "backend": gloo.mine} if gloo else links.make(config, config.advertise)
        if not self.addresses:  # otherwise known since this rank was linked to the hub
            self._serve_or_find(config, gloo)
        return transport

    def linger(self) -> None:
        """The coordinator stays until the other sites have left, at most COLLAB_LINGER."""
        if self.server is not None:
            config, began = self._info.config, time.monotonic()
            self._hub.wait_until_all_have_come(timedelta(seconds=min(config.linger, config.join_timeout)))
            linger(self.server, config.linger, began)

    def stop(self) -> None:
        self.server = None

    def _serve_or_find(self, config: native.Settings, gloo: GlooNodes | None) -> None:
        """Takes the addresses from the knob; in one world the first leader serves a coordinator."""
        if not self._info.one_world:
            self.addresses = list(config.coordinator)
        elif self._info.rank == self._info.sites.sites[0].leader:
            try:
                self.addresses = [self._serve(config, gloo)]
            except Exception as error:
                self._info.told.set(_KEY, _FAILED + str(error))  # the others need not wait for the address
                raise
            self._info.told.set(_KEY, self.addresses[0])
        else:
            self.addresses = [_find(self._info)]

    def _serve(self, config: native.Settings, gloo: GlooNodes | None) -> str:
        if gloo is not None:
            transport = {"kind": "gloo", "backend": gloo.coordinator}
            self.server = native.serve_coordinator(config.raw, transport, "0.0.0.0:0")
            return self.server.address
        if config.advertise == addresses.NOT_DIALABLE and self._info.several_sites:
            raise RuntimeError(
                "collab: COLLAB_ADVERTISE=none at the first site of the world, whose coordinator the others dial. Let "
                "another site be the first (--node-rank=0), or leave COLLAB_ADVERTISE unset here "
                "[coordinator.undialable]"
            )
        host = config.listen.rpartition(":")[0]
        self.server = native.serve_coordinator(config.raw, links.make(config, config.advertise), f"{host}:0")
        _, port = addresses.split_host_port(self.server.address)
        reached = config.advertise
        if reached == addresses.NOT_DIALABLE:  # only this site's own ranks dial it
            reached = "127.0.0.1" if addresses.is_wildcard(host) else host.strip("[]")
        return addresses.join_host_port(reached, port)


def _find(info: WorldInfo) -> str:
    first = info.sites.sites[0]
    limit = timedelta(seconds=info.config.join_timeout)
    try:
        info.told.wait([_KEY], limit)
    except Exception as error:
        raise RuntimeError(
            f"collab: no coordinator after {limit.total_seconds():.0f} s (COLLAB_JOIN_TIMEOUT): rank {first.leader} of "
            f"site {first.name} must serve it, but has not started ({error}) [coordinator.leader-late]"
        ) from None
    address = info.told.get(_KEY).decode()
    if address.startswith(_FAILED):
        raise RuntimeError(
            f"collab: rank {first.leader} of {first.name}: {address.removeprefix(_FAILED)} [coordinator.leader-failed]"
        )
    return address
