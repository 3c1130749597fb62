"""Which transport a process's links to others use, and why.

The core chooses, because its programs choose as well: from the knobs, the swarm's token and whether UCX loads.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass
from typing import Any

from torch_collab import native
from torch_collab.network import addresses, keys


@dataclass(frozen=True)
class Choice:
    kind: str  # "tcp", "ucx" or "gloo"
    reason: str
    key_unused: bool  # worth a warning

    def __str__(self) -> str:
        return f"links between sites use {self.kind}: {self.reason}"


def choose(config: native.Settings, one_world: bool = False) -> Choice:
    """Raises RuntimeError if the transport that COLLAB_TRANSPORT asks for is not available here."""
    if config.transport == "gloo" and not one_world:
        raise RuntimeError(
            "collab: COLLAB_TRANSPORT=gloo joins the sites of one world only; with a coordinator outside it, use ucx "
            "or tcp [link.gloo-outside]"
        )
    choice = Choice(*native.choose_links(config.raw, native.ucx_problem))
    _refuse_public(config, choice)
    return choice


def make(config: native.Settings, advertise: str) -> dict[str, Any]:
    """Makes the chosen transport, if it dials by address."""
    return native.addressed_transport(choose(config).kind, config, advertise)


def _refuse_public(config: native.Settings, choice: Choice) -> None:
    """Transports refuse public addresses unless told to accept them; this says so before the first dial."""
    given = {name: value for name, value, _ in config.values}
    if given.get("insecure") == "1" or (choice.kind == "tcp" and any(given.get(name) for name in keys.KNOBS)):
        return
    hosts = [addresses.split_host_port(address)[0] for address in config.coordinator]
    if choice.kind == "gloo":
        hosts.append(os.environ.get("MASTER_ADDR", ""))
    if config.advertise != addresses.NOT_DIALABLE:
        hosts.append(config.advertise)
    for host in hosts:
        if host and is_public(host):
            raise RuntimeError(
                f"collab: {host} is neither this machine nor a private address, and links are not encrypted. Make "
                "a token with `collab token`, and give it to all sites and the coordinator (COLLAB_TOKEN). Or set "
                "COLLAB_INSECURE=1 to send the model unencrypted [link.in-the-clear]"
            )


def is_public(host: str) -> bool:
    """Whether any of its addresses is neither this machine's nor private. The dialler judges unknown names."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    return not all(native.is_near(ipaddress.ip_address(str(address).partition("%")[0]).packed) for address in found)
