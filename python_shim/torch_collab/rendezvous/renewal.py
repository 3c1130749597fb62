"""When the swarm's token is replaced: the agent that serves the endpoint signs anew what those who come have to read.

It writes what it knows, not what it finds: a holder of the token before has no part in it.
"""

from __future__ import annotations

import contextlib
import threading

from torch_collab.rendezvous.endpoint import Endpoint
from torch_collab.rendezvous.heartbeat import Known

_EVERY_SECONDS = 1.0


class Renewal:
    """Threads: one of its own; start() and stop() belong to the agent's."""

    def __init__(self, endpoint: Endpoint, known: Known) -> None:
        self._endpoint = endpoint
        self._known = known
        self._secret = b""  # that the entries are signed with; at first unknown, as sites wrote some of them
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="collab-renewal", daemon=True)

    def start(self) -> None:
        if self._endpoint.store.key.file is not None:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stop.is_set():
            secret = self._endpoint.store.key.now().secret
            if secret != self._secret:
                with contextlib.suppress(RuntimeError):  # the store is ending, or busy: tried again
                    self._sign()
                    self._secret = secret
            self._stop.wait(_EVERY_SECONDS)

    def _sign(self) -> None:
        self._endpoint.write_run()
        store = self._endpoint.part("cohort")
        for name, text in {"list": self._known.list_text, **self._known.sites}.items():
            store.set(name, text)
