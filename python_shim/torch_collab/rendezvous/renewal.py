"""When the swarm's token is replaced, the agent that serves the endpoint signs anew the entries for late nodes.

It writes what it knows, not what it finds there: so a holder of the old token cannot change it.
"""

from __future__ import annotations

import contextlib

from torch_collab.rendezvous.endpoint import Endpoint
from torch_collab.rendezvous.first_members import PART
from torch_collab.rendezvous.heartbeat import Known, PeriodicThread


class Renewal(PeriodicThread):
    def __init__(self, endpoint: Endpoint, known: Known) -> None:
        super().__init__("collab-renewal")
        self._endpoint = endpoint
        self._known = known
        self._secret = b""  # the secret that the entries are signed with; unknown at first, as sites wrote some of them

    def start(self) -> None:
        if self._endpoint.store.key.file is not None:
            super().start()

    def _turn(self) -> None:
        secret = self._endpoint.store.key.now().secret
        if secret != self._secret:
            with contextlib.suppress(RuntimeError):  # the store is ending or busy; the next turn tries again
                self._sign()
                self._secret = secret

    def _sign(self) -> None:
        self._endpoint.write_run()
        store = self._endpoint.part(PART)
        for name, text in {"list": self._known.list_text, **self._known.sites}.items():
            store.set(name, text)
