"""The store at --rdzv-endpoint. The agent on its host serves it; the others dial it until the join's deadline.

The serving agent first writes the entry `run`: the run's id, a number drawn for this store, and the settings that all
nodes must share. If the swarm has a token, every other entry's signature binds it to the id and the number.

It is also the world's store until `init_process_group` has returned at all ranks. After that its host may be lost.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousConnectionError

from torch_collab import log
from torch_collab.environment import LATE_WORLD
from torch_collab.escape import first_line
from torch_collab.network.addresses import as_name, is_loopback, is_this_machine, join_host_port
from torch_collab.network.keys import SwarmKey
from torch_collab.network.signed_store import SignatureError, SignedStore
from torch_collab.rendezvous.dial import DIAL_SECONDS, OPERATION, dial_store, store_at
from torch_collab.rendezvous.gathering import POLL_SECONDS
from torch_collab.rendezvous.notices import Notices, describe, difference, differs
from torch_collab.rendezvous.settings import RendezvousSettings

_PREFIX = "collab/rendezvous"
_RUN_KEY = "run"
_FILE = "[site] of collab.toml"
_IF_NOT_FIRST = (
    "On a machine that is not the first, give the site a name of its own: --site NAME of `collab run` (or COLLAB_SITE, "
    "and no is_host=1)"
)
_WRITTEN_SECONDS = 15.0
SAY_EVERY = 15.0  # seconds between messages of a node that waits


@dataclass
class Endpoint:
    server: Any  # the TCPStore; keeps the server alive if this agent serves it
    store: SignedStore  # our part of it
    notices: Notices
    serving: bool
    host: str
    port: int
    run: Mapping[str, str]  # its entry `run`

    def part(self, name: str) -> SignedStore:
        return self.store.part(name)

    def write_run(self) -> None:
        """Replaces what a stranger may have written since the port was opened, and what an older token has signed."""
        _unbound(self.server, self.store.key, self.store.where).set(_RUN_KEY, json.dumps(self.run))


def open_endpoint(settings: RendezvousSettings) -> Endpoint:
    """Raises RendezvousConnectionError with a message."""
    may_serve = settings.is_host if settings.is_host is not None else is_this_machine(settings.host)
    problem = ""
    if settings.is_host and not is_this_machine(settings.host):
        _look_for_another_first(settings)
    if may_serve:
        try:
            server = serve_store(settings.port)
        except (RuntimeError, ValueError) as error:
            problem = first_line(error)
            if settings.is_host:
                raise RendezvousConnectionError(
                    f"collab: --rdzv-endpoint={settings.endpoint} cannot be served here (is_host=1): "
                    f"{_why_not_served(settings.port, problem)} [rendezvous.not-served]"
                ) from None
        else:
            return _enter(settings, server, serving=True)
    server = _dial(settings, problem)
    return _enter(settings, server, serving=False)


def _why_not_served(port: int, problem: str) -> str:
    """Replaces torch's text for a port in use, which is that of a socket error."""
    if "EADDRINUSE" not in problem and "address already in use" not in problem.lower():
        return problem
    return (
        f"port {port} of this machine is in use, by another program that listens there or by a connection. If it is an "
        f"earlier start of this swarm, or `collab doctor --answer`, end it; else choose another port. {_IF_NOT_FIRST}"
    )


def _look_for_another_first(settings: RendezvousSettings) -> None:
    """A copied collab.toml makes its machine a first one, too, which would wait for others in vain."""
    store = dial_store(settings.host, settings.port)
    if store is None:
        log.warning(
            f"{settings.host} is not an address of this machine, but this machine serves "
            f"--rdzv-endpoint={settings.endpoint} (is_host=1, or `first` in {_FILE}). That is right if a router "
            f"forwards this address to this machine. {_IF_NOT_FIRST} [rendezvous.endpoint-elsewhere]"
        )
        return
    name = ""
    with contextlib.suppress(RuntimeError, ValueError):
        run = _read_run(store, settings.key, _where(settings.endpoint))
        name = f" by {as_name(run['node'])}" if run else ""
    raise RendezvousConnectionError(
        f"collab: --rdzv-endpoint={settings.endpoint} is already served{name}, but this machine, "
        f"{describe(settings)['node']}, was told to serve it too (is_host=1, or `first` in {_FILE}). If an earlier "
        f"start on this machine still serves it, end that one or wait until it ends (COLLAB_LINGER). {_IF_NOT_FIRST} "
        "[rendezvous.two-first]"
    )


def reconnect(host: str, port: int, run_id: str, key: SwarmKey) -> SignedStore | None:
    """Our part of the store at the endpoint, if a store of this run answers there; else None.

    Raises SignatureError if an agent with another token serves it.
    """
    server = dial_store(host, port)
    if server is None:
        return None
    where = _where(join_host_port(host, port))
    try:
        run = _read_run(server, key, where)
    except SignatureError:
        raise
    except (RuntimeError, ValueError):
        return None
    return None if run is None or run["run"] != run_id else _bound(server, key, run, where)


def serve_store(port: int = 0) -> Any:
    """A TCPStore served by this agent. It listens on all addresses; the host is only for its own client."""
    return dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=OPERATION)


def _dial(settings: RendezvousSettings, not_served: str) -> Any:
    started = time.monotonic()
    said = started
    while True:
        try:
            server = store_at(settings.host, settings.port, DIAL_SECONDS)
            problem = f"it accepts connections, but has not answered as a store within {DIAL_SECONDS:.0f} s"
            break
        except OSError as error:  # nobody accepts
            problem = _why_not_reached(settings.host, error)
        except (RuntimeError, ValueError) as error:
            server, problem = None, first_line(error)
            break
        now = time.monotonic()
        if now - started >= settings.join_timeout:
            raise RendezvousConnectionError(
                f"{_unreachable(settings, not_served or problem)} [rendezvous.unreachable]"
            ) from None
        if now - said >= SAY_EVERY:
            said = now
            log.info(f"no answer at --rdzv-endpoint={settings.endpoint} yet ({problem}); trying for "
                     f"{settings.join_timeout - (now - started):.0f} s more")  # fmt: skip
        time.sleep(0.3)
    if server is None:
        raise RendezvousConnectionError(
            f"collab: something else listens at --rdzv-endpoint={settings.endpoint}: {problem}; choose a port that "
            "is free on that machine (a torchrun there also answers late if its name server is silent) "
            "[rendezvous.port-taken]"
        )
    return server


def _why_not_reached(host: str, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"{host} is not known as a name of a machine: is it spelt right?"
    return error.strerror or str(error)


def _unreachable(settings: RendezvousSettings, problem: str) -> str:
    host = settings.host
    words = (
        f"collab: cannot reach --rdzv-endpoint={settings.endpoint}, tried for {settings.join_timeout:.0f} s "
        f"(--rdzv-conf join_timeout): {problem}. Is torchrun running on {host}, and is port {settings.port} open from "
        "here? If that machine does not have this address itself (a router forwards it), it needs --rdzv-conf is_host=1"
    )
    if is_loopback(host):
        words += f". Note that {host} is this machine's own loopback address here"
    return words + (
        ". If that machine is gone and the others are still training, join them: COLLAB_COORDINATOR=HOST:PORT "
        f"{LATE_WORLD}. Their logs name the address"
    )


def _enter(settings: RendezvousSettings, server: Any, serving: bool) -> Endpoint:
    where = _where(settings.endpoint)
    notices = Notices(server, settings)
    try:
        run = _new_run(settings) if serving else _wait_for_run(settings, server, where)
        store = _bound(server, settings.key, run, where)
        endpoint = Endpoint(server, store, notices, serving, settings.host, server.port, run)
        if serving:
            endpoint.write_run()
            return endpoint
        if run["run"] != settings.run_id:
            raise RendezvousConnectionError(
                f"collab: --rdzv-endpoint={settings.endpoint} belongs to the run --rdzv-id={run['run']}, but this is "
                f"--rdzv-id={settings.run_id}. Give both the same id, or give this one its own port "
                "[rendezvous.other-run]"
            )
        if differs(settings, run):
            notices.leave()
            raise RendezvousConnectionError(
                f"collab: {where}: {difference(settings, run)} [rendezvous.settings-differ]"
            )
    except SignatureError as error:
        notices.leave()
        raise RendezvousConnectionError(str(error)) from None
    except ValueError as error:
        raise RendezvousConnectionError(
            f"collab: {where} does not belong to this program: {error} [rendezvous.foreign]"
        ) from None
    except RuntimeError as error:
        raise RendezvousConnectionError(
            f"collab: the store at --rdzv-endpoint={settings.endpoint} was lost: {first_line(error)} [rendezvous.lost]"
        ) from None
    return endpoint


def _where(endpoint: str) -> str:
    return f"the rendezvous at {endpoint}"


def _bound(server: Any, key: SwarmKey, run: Mapping[str, str], where: str) -> SignedStore:
    return SignedStore(server, key, (run["run"], run["nonce"]), where, _PREFIX)


def _unbound(server: Any, key: SwarmKey, where: str) -> SignedStore:
    """For the entry that all other entries are bound to."""
    return SignedStore(server, key, (), where, _PREFIX)


def _new_run(settings: RendezvousSettings) -> Mapping[str, str]:
    return {"run": settings.run_id, "nonce": secrets.token_hex(16), **describe(settings)}


def _read_run(server: Any, key: SwarmKey, where: str) -> Mapping[str, str] | None:
    """None: nothing is written yet. Raises SignatureError, or ValueError for an entry that is not one of ours."""
    store = _unbound(server, key, where)
    if not store.check([_RUN_KEY]):
        return None
    run = json.loads(store.get(_RUN_KEY))
    names = ("run", "nonce", "node", "key", "transport")
    if not isinstance(run, dict) or not all(isinstance(run.get(name), str) for name in names):
        raise ValueError(f"the entry {_PREFIX}/{_RUN_KEY} is not what an agent writes")
    return run


def _wait_for_run(settings: RendezvousSettings, server: Any, where: str) -> Mapping[str, str]:
    deadline = time.monotonic() + _WRITTEN_SECONDS
    while (run := _read_run(server, settings.key, where)) is None:
        if time.monotonic() >= deadline:
            raise RendezvousConnectionError(
                f"collab: something else listens at --rdzv-endpoint={settings.endpoint}: a store, but no torchrun "
                f"--rdzv-backend=collab has written to it within {_WRITTEN_SECONDS:.0f} s. Choose a port that is "
                "free on that machine [rendezvous.no-torchrun]"
            )
        time.sleep(POLL_SECONDS)
    return run
