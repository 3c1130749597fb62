"""Which transport the links between sites use, and why.

Sites and coordinator must come to the same answer on their own, so it rests on what all of them are given alike (the
knob, the swarm's key) and on whether UCX loads. The choice itself is made in the core, for its programs make it too.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import Any

from torch_collab import addresses, native

_KEYS = ("token", "token_file", "tls_cert")


@dataclass(frozen=True)
class Choice:
    kind: str  # "ucx", "tcp" or "gloo"
    reason: str
    key_unused: bool  # worth a warning

    def __str__(self) -> str:
        return f"links between sites use {self.kind}: {self.reason}"


def choose(config: native.Settings, one_world: bool = False) -> Choice:
    """Raises RuntimeError when what COLLAB_TRANSPORT asks for cannot be had here."""
    if config.transport == "gloo" and not one_world:
        raise RuntimeError(
            "collab: COLLAB_TRANSPORT=gloo joins the sites of one world only; with a coordinator outside use ucx or tcp"
        )
    choice = Choice(*native.choose_links(config, native.ucx_problem))
    _refuse_public(config, choice)
    return choice


def make(config: native.Settings, advertise: str) -> dict[str, Any]:
    """Of the transports that are dialled by address, the chosen one."""
    if choose(config).kind == "tcp":
        return native.tcp_transport(config, advertise)
    return native.ucx_transport(config, advertise)


def _refuse_public(config: native.Settings, choice: Choice) -> None:
    """Transports refuse addresses that are not near, unless asked to take them; this says so before the first dial."""
    given = {name: value for name, value, _ in config.values}
    if given.get("insecure") == "1" or (choice.kind == "tcp" and any(given.get(key) for key in _KEYS)):
        return
    hosts = [addresses.split_host_port(address)[0] for address in config.coordinator]
    for host in [*hosts, config.advertise]:
        if host and _is_public(host):
            raise RuntimeError(
                f"collab: {host} is neither this machine nor a private address, and links are not encrypted: make "
                "a swarm key with `collab token` and give it to all sites and the coordinator (COLLAB_TOKEN), or set "
                "COLLAB_INSECURE=1 to send the model in the clear"
            )


def _is_public(host: str) -> bool:
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False  # whoever dials it says so
    return not all(native.is_near(ipaddress.ip_address(str(address).partition("%")[0]).packed) for address in found)
