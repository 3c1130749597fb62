"""The settings of one torchrun, read once: its flags, --rdzv-conf and the COLLAB_ variables."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from torch_collab import log, native
from torch_collab.environment import as_run, collab_variables
from torch_collab.network import links, page
from torch_collab.network.addresses import (
    ANYWHERE,
    NOT_DIALABLE,
    as_name,
    chosen_address,
    host_and_port,
    is_loopback,
    join_host_port,
    local_address_towards,
)  # fmt: skip
from torch_collab.network.keys import SwarmKey, read_key

BACKEND = "collab"

# Options of torch's c10d rendezvous that mean nothing here. A command that was adapted by one word may still have them.
_WITHOUT_MEANING = frozenset(
    {"read_timeout", "close_timeout", "heartbeat", "keep_alive_interval", "keep_alive_max_attempt", "store_type",
     "timeout"}
)  # fmt: skip
_LOCAL_NAMES = ("localhost", "127.", "::1")
_OPTIONS = ("join_timeout", "last_call_timeout", "is_host", "site_nodes", "standby", "coordinator_port", *page.OPTIONS)


@dataclass(frozen=True)
class RendezvousSettings:
    """Times are seconds."""

    run_id: str
    own_run: str  # COLLAB_RUN here and for the workers, if nobody gives it; "": its default
    host: str  # of the endpoint
    port: int
    min_nodes: int
    max_nodes: int
    local_addr: str
    is_host: bool | None  # whether this agent serves the endpoint; None: found out
    join_timeout: float
    last_call: float
    site_nodes: int | None  # nodes of this site, if it comes late
    standby: bool | None  # whether every site serves a candidate coordinator; None: as candidate.py says
    coordinator_port: int
    page: Mapping[str, str]  # of the coordinator that this agent serves; empty: none
    site: str  # COLLAB_SITE, or ""
    hostname: str
    config: native.Settings
    key: SwarmKey
    transport: str  # of the links between sites

    @property
    def nnodes(self) -> str:
        """In the form of --nnodes."""
        return ":".join(map(str, sorted({self.min_nodes, self.max_nodes})))

    @property
    def endpoint(self) -> str:
        return join_host_port(self.host, self.port)


def read_settings(parameters: Any) -> RendezvousSettings:
    """Reads torchrun's RendezvousParameters. From here on the log names the site. Raises ValueError with a message, and
    RuntimeError as links.choose does."""
    variables = collab_variables()
    own_run = "" if variables.get("COLLAB_COORDINATOR") else as_run(parameters.run_id)
    config = native.load_config(variables, {}, own_run)
    hostname = as_name(socket.gethostname())
    log.set_source(config.site or hostname, None)
    for name in sorted(set(parameters.config) - _WITHOUT_MEANING - set(_OPTIONS)):
        log.warning(f"--rdzv-conf {name}={parameters.config[name]} is not known to the rendezvous {BACKEND!r}; it "
                    f"knows {', '.join(_OPTIONS)} [rendezvous.unknown-setting]")  # fmt: skip
    host, port = _endpoint(parameters.endpoint)
    if config.transport not in ("auto", "ucx", "tcp"):
        raise ValueError(
            f"collab: COLLAB_TRANSPORT={config.transport}: sites under --rdzv-backend={BACKEND} use tcp or ucx "
            "[rendezvous.transport]"
        )
    site_nodes = parameters.get_as_int("site_nodes")
    if site_nodes is not None and not 1 <= site_nodes <= parameters.max_nodes:
        raise ValueError(
            f"collab: --rdzv-conf site_nodes={site_nodes}: expected 1 to {parameters.max_nodes} (--nnodes) "
            "[rendezvous.site-nodes]"
        )
    return RendezvousSettings(
        run_id=parameters.run_id,
        own_run=own_run,
        host=host,
        port=port,
        min_nodes=parameters.min_nodes,
        max_nodes=parameters.max_nodes,
        local_addr=parameters.local_addr or "",
        is_host=parameters.get_as_bool("is_host"),
        join_timeout=_seconds(parameters, "join_timeout", 600),
        last_call=_seconds(parameters, "last_call_timeout", 5),
        site_nodes=site_nodes,
        standby=parameters.get_as_bool("standby"),
        coordinator_port=parameters.get_as_int("coordinator_port", 0),
        # As in a URL: an objective may contain a comma, which would end a word of --rdzv-conf.
        page={word: unquote(text) for word in page.OPTIONS if (text := parameters.get(word, ""))},
        site=config.site,
        hostname=hostname,
        config=config,
        key=read_key(variables, {}),
        transport=links.choose(config).kind,
    )


def _endpoint(text: str) -> tuple[str, int]:
    text = text.strip()
    if not text:
        raise ValueError(
            f"collab: --rdzv-backend={BACKEND} needs --rdzv-endpoint=HOST:PORT, where HOST is the address of the "
            "first machine, as the others reach it [rendezvous.no-endpoint]"
        )
    try:
        return host_and_port(text)
    except ValueError as error:
        raise ValueError(f"collab: --rdzv-endpoint: {error} [rendezvous.bad-endpoint]") from None


def _seconds(parameters: Any, name: str, default: float) -> float:
    value = parameters.get(name, default)
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds <= 7 * 24 * 3600:
        raise ValueError(f"collab: --rdzv-conf {name}={value}: expected seconds, more than 0 [rendezvous.seconds]")
    return seconds


def own_address(settings: RendezvousSettings) -> str:
    """--local-addr, else COLLAB_ADVERTISE if it is an address, else a definite COLLAB_LISTEN, else the local address
    towards the endpoint.

    If the endpoint's name leads back only to this machine (an /etc/hosts with 127.0.1.1), it says nothing about the
    address that others dial: then the local address of the default route is taken. Raises ValueError.
    """
    advertise = "" if settings.config.advertise == NOT_DIALABLE else settings.config.advertise
    if chosen := settings.local_addr or chosen_address(advertise, settings.config.listen):
        return chosen
    if settings.host.startswith(_LOCAL_NAMES):
        return "127.0.0.1"
    problem = ""
    for host in (settings.host, ANYWHERE):
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
        f"collab: this machine has no address to tell the other sites: {problem}. Give torchrun "
        "--local-addr=ADDRESS, with the address that they dial [rendezvous.no-address]"
    )
