"""The address at which other machines dial this one."""

from __future__ import annotations

from torch_collab.addresses import is_loopback, local_address_towards
from torch_collab.rendezvous.settings import RendezvousSettings

_LOCAL_NAMES = ("localhost", "127.", "::1")
_ANYWHERE = "192.0.2.1"  # TEST-NET-1: asks the kernel for its default route, nothing is sent


def own_address(settings: RendezvousSettings) -> str:
    """--local-addr, else COLLAB_ADVERTISE, else a definite COLLAB_LISTEN, else the local end towards the endpoint.

    An endpoint whose name leads back to this machine only (an /etc/hosts with 127.0.1.1) says nothing about the
    address others dial: then the local end of the default route. Raises ValueError.
    """
    if settings.local_addr:
        return settings.local_addr
    if settings.config.advertise:
        return settings.config.advertise
    listen_host = settings.config.listen.rpartition(":")[0].strip("[]")
    if listen_host not in ("", "0.0.0.0", "::", "*"):
        return listen_host
    if settings.host.startswith(_LOCAL_NAMES):
        return "127.0.0.1"
    problem = ""
    for host in (settings.host, _ANYWHERE):
        if is_loopback(host):
            problem = f"{host} is this machine's loopback address here"
            continue
        try:
            found = local_address_towards(host)
        except OSError as error:
            problem = f"no route to {host} ({error})"
            continue
        if not is_loopback(found):
            return found
    raise ValueError(
        f"collab: no address to tell the other sites: {problem}; give torchrun --local-addr=ADDRESS, the address "
        "of this machine that they dial"
    )
