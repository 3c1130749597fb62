"""The addresses at which others dial this process."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket

RENDEZVOUS_PORT = 29400  # torchrun's default port
ANYWHERE = "192.0.2.1"  # TEST-NET-1: asks the kernel for its default route; nothing is sent


def split_host_port(address: str) -> tuple[str, int]:
    """`host:port`, also `[::1]:port`. Raises ValueError with the text that was given."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit():
        raise ValueError(f"expected HOST:PORT, got {address!r} [knob.host-port]")
    if int(port) > 65535:
        raise ValueError(f"expected a port of 0..65535, got {address!r} [knob.host-port]")
    return host, int(port)


def join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(text: str, port: int = RENDEZVOUS_PORT) -> tuple[str, int]:
    """HOST or HOST:PORT, as in torchrun's endpoint. Raises ValueError."""
    if text.count(":") == 1 or (text.startswith("[") and not text.endswith("]")):
        return split_host_port(text)
    host = text.strip("[]")
    if not host:
        raise ValueError(f"expected HOST or HOST:PORT, got {text!r} [knob.host-port]")
    return host, port


def as_name(hostname: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", hostname)[:48].lstrip(".") or "host"


def is_loopback(host: str) -> bool:
    """True when the name or address leads back to this machine only."""
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(infos) and all(ipaddress.ip_address(info[4][0]).is_loopback for info in infos)


def is_this_machine(host: str) -> bool:
    """True when one of the host's addresses can be bound here."""
    try:
        infos = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, proto, _, address in infos:
        with contextlib.suppress(OSError), socket.socket(family, kind, proto) as probe:
            probe.bind(address)
            return True
    return False


def local_address_towards(host: str) -> str:
    """The local address the kernel would use to reach `host`; nothing is sent.

    Raises OSError when the name is unknown or no route leads there.
    """
    family, kind, proto, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, proto) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


NOT_DIALABLE = "none"  # in place of a host in COLLAB_ADVERTISE


def is_wildcard(host: str) -> bool:
    """Whether a listening host means every address of this machine."""
    return host.strip("[]") in ("", "0.0.0.0", "::", "*")


def chosen_address(advertise: str, listen: str) -> str:
    """COLLAB_ADVERTISE, else the host of COLLAB_LISTEN if it is not a wildcard, else ""."""
    host = listen.rpartition(":")[0].strip("[]")
    return advertise or ("" if is_wildcard(host) else host)


def dial_address(advertise: str, listen: str, coordinators: list[str]) -> str:
    """The host that others dial: COLLAB_ADVERTISE, else a definite COLLAB_LISTEN, else the local end to the swarm."""
    if chosen := chosen_address(advertise, listen):
        return chosen
    towards = split_host_port(coordinators[0])[0] if coordinators else os.environ.get("MASTER_ADDR", "127.0.0.1")
    if is_loopback(towards):
        return "127.0.0.1"
    try:
        return local_address_towards(towards)
    except OSError as error:
        raise ValueError(
            f"collab: no address to tell the other sites: there is no route to {towards} ({error}). Set "
            "COLLAB_ADVERTISE to the address that other sites dial [rendezvous.no-route]"
        ) from None
