"""Which transport the links between sites use, and why.

Sites and coordinator must come to the same answer on their own, so it rests on what all of them are given alike (the
knob, the swarm's key) and on whether UCX loads.
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

    def __str__(self) -> str:
        return f"links between sites use {self.kind}: {self.reason}"


def choose(config: native.Settings, one_world: bool = False) -> Choice:
    """Raises RuntimeError when what COLLAB_TRANSPORT asks for cannot be had here."""
    wanted = config.transport
    if wanted == "loopback":
        raise RuntimeError(
            "collab: COLLAB_TRANSPORT=loopback joins sites inside one process, for tests; use ucx, tcp or gloo"
        )
    if wanted == "gloo" and not one_world:
        raise RuntimeError(
            "collab: COLLAB_TRANSPORT=gloo joins the sites of one world only; with a coordinator outside use ucx or tcp"
        )
    if wanted in ("gloo", "tcp"):
        return Choice(wanted, f"COLLAB_TRANSPORT={wanted}")
    key = next((name for name, value, _ in config.values if name in _KEYS and value), None)
    if wanted == "auto" and key is not None:
        return Choice("tcp", f"COLLAB_{key.upper()} is given, and of the transports only tcp encrypts")
    problem = native.ucx_problem()
    if wanted == "auto" and problem is not None:
        return Choice("tcp", f"UCX does not load here ({problem})")
    if problem is not None:
        raise RuntimeError(
            f"collab: COLLAB_TRANSPORT=ucx, and UCX does not load: {problem}; pip install libucx-cu12, then look at "
            "`collab doctor`, or set COLLAB_TRANSPORT=tcp at all sites and the coordinator"
        )
    _refuse_public(config)
    return Choice("ucx", "COLLAB_TRANSPORT=ucx" if wanted == "ucx" else "no key is given, and UCX loads")


def make(config: native.Settings, advertise: str) -> dict[str, Any]:
    """Of the transports that are dialled by address, the chosen one."""
    if choose(config).kind == "tcp":
        return native.tcp_transport(config, advertise)
    return native.ucx_transport(config, advertise)


def _refuse_public(config: native.Settings) -> None:
    """UCX carries no encryption: over addresses of the open internet only where that is asked for."""
    if {name: value for name, value, _ in config.values}.get("insecure") == "1":
        return
    hosts = [addresses.split_host_port(address)[0] for address in config.coordinator]
    for host in [*hosts, config.advertise]:
        if host and _is_public(host):
            raise RuntimeError(
                f"collab: {host} is an address of the open internet, and links over UCX are not encrypted: make a "
                "swarm key with `collab token` and give it to all sites and the coordinator (COLLAB_TOKEN), or set "
                "COLLAB_INSECURE=1 to send the model in the clear"
            )


def _is_public(host: str) -> bool:
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False  # whoever dials it says so
    return any(ipaddress.ip_address(str(address).partition("%")[0]).is_global for address in found)
