"""Tells the endpoint that this agent lives, and tells an endpoint that was started anew that the world is closed.

The endpoint's store is soft state. Nothing happens here when its host dies. When a torchrun is started there again, the
agents that are left put the list of the closed world back, so that the new torchrun joins the swarm as a late site.
"""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import dataclass, field

from torch_collab import log
from torch_collab.escape import from_json
from torch_collab.network.keys import SwarmKey
from torch_collab.network.signed_store import SignatureError, SignedStore
from torch_collab.rendezvous.endpoint import reconnect
from torch_collab.rendezvous.first_members import PART
from torch_collab.rendezvous.gathering import Gathered, GatheringError, Pulse, count_of

_EVERY_SECONDS = 1.0
_ERRORS = (RuntimeError, ValueError, OSError)


@dataclass
class Known:
    """What a new endpoint must be told: keys of the first members' part of the store."""

    list_text: str
    sites: dict[str, str] = field(default_factory=dict)


class _Line:
    """A connection without data, which tells that the other end is gone.

    Asking a lost TCPStore would print a stack trace into the user's log.
    """

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=2.0)
        self._socket.setblocking(False)

    def cut(self) -> bool:
        try:
            return self._socket.recv(1) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


class PeriodicThread:
    """Calls `_turn` periodically until it is stopped.

    Threads: one of its own; the agent's thread calls start() and stop().
    """

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._turn()
            self._stop.wait(_EVERY_SECONDS)

    def _turn(self) -> None:
        raise NotImplementedError


class Heartbeat(PeriodicThread):
    """Only its own thread uses its connection."""

    def __init__(self, host: str, port: int, run_id: str, key: SwarmKey, who: str, known: Known) -> None:
        super().__init__("collab-heartbeat")
        self._where = (host, port, run_id, key)
        self._who = who
        self._known = known
        self._lost_told = False

    def _turn(self) -> None:
        """Runs until the agent stops it, or the endpoint is lost."""
        try:
            store = reconnect(*self._where)
            if store is None:
                raise ConnectionError("no answer")
            if not self._put_back(store.part(PART)):
                self._stop.set()
                return
            self._lost_told = False
            with _Line(*self._where[:2]) as line:
                self._beat(store, line)
        except SignatureError as error:
            self._tell_lost(f"{str(error).removeprefix('collab: ')}; training goes on without it")
        except _ERRORS:
            self._tell_lost()

    def _tell_lost(self, words: str = "") -> None:
        if self._lost_told or self._stop.is_set():
            return
        self._lost_told = True
        host, port = self._where[:2]
        if words:
            log.warning(words)
        else:
            log.info(f"the agent at {host}:{port} (--rdzv-endpoint) does not answer; training goes on without it")

    def _put_back(self, store: SignedStore) -> bool:
        """False: the endpoint now gathers another world, in which this agent has no part."""
        found = Gathered.read(store.compare_set("list", "", self._known.list_text))
        if found.id != Gathered.read(self._known.list_text).id:
            host, port = self._where[:2]
            log.warning(f"{host}:{port} (--rdzv-endpoint) was started again, and closed another world before this "
                        "agent could tell it of the one that trains here. Sites that come now join that other world "
                        "[rendezvous.another-world]")  # fmt: skip
            return False
        for key, value in self._known.sites.items():
            store.compare_set(key, "", value)
        return True

    def _beat(self, store: SignedStore, line: _Line) -> None:
        number = int(store.add("agents/count", 1)) - 1
        signed_with: bytes | None = None
        while True:
            secret = store.key.now().secret
            if secret != signed_with:  # written anew when the token is replaced
                store.set(f"agents/who/{number}", json.dumps(self._who))
                signed_with = secret
            if self._stop.wait(_EVERY_SECONDS):
                break
            if line.cut():
                raise ConnectionError("the endpoint's agent has ended")
            store.add(f"agents/beat/{number}", 1)
        store.set(f"agents/done/{number}", "1")


class LivenessView:
    """At the endpoint: which other agents live."""

    def __init__(self, store: SignedStore, silent_seconds: float) -> None:
        self._store = store
        self._pulse = Pulse(store, silent_seconds)
        self._spoilt = False  # a stranger has spoilt the count

    def living(self) -> list[str]:
        try:
            count = count_of(self._store, "count")
        except GatheringError as error:
            if not self._spoilt:
                log.warning(f"this agent does not wait for other agents: {error} [rendezvous.count-spoilt]")
            self._spoilt = True
            return []
        found = []
        for number in range(count):
            who = self._name(number)
            if who is not None and self._pulse.alive(number) and self._told(f"done/{number}") is None:
                found.append(who)
        return found

    def _name(self, number: int) -> str | None:
        """None if nothing is there that an agent would write."""
        try:
            name = from_json(self._told(f"who/{number}") or b"null")
        except ValueError:
            return None
        return name if isinstance(name, str) else None

    def _told(self, name: str) -> bytes | None:
        """What an agent of the swarm wrote; None for a stranger's entry."""
        try:
            return self._store.get(name) if self._store.check([name]) else None
        except SignatureError:
            return None
