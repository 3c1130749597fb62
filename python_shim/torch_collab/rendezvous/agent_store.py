"""What torchrun's agent is given as the rendezvous' store.

Working out the ranks needs the other nodes of the world, and uses the store they met in. The barrier at the end is
kept among the nodes of one site, whose workers end together; a site does not wait for another one's agents, and does
not complain when they or their store are gone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch_collab import log

_EXIT_BARRIER = "torchelastic/agent/terminal_state"
_EVERYBODY = "/last_member"


class AgentStore:
    """The part of torch's Store interface that the agent uses. Threads: the agent's one."""

    def __init__(self, meeting: Any, site: Any, site_nodes: int) -> None:
        self._meeting = meeting  # where the nodes of the world met
        self._site = site  # of the nodes of this site
        self._site_nodes = site_nodes
        self._at_barrier = False
        self._timeout: timedelta = meeting.timeout

    @property
    def timeout(self) -> timedelta:
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        self._meeting.set(key, value)

    def get(self, key: str) -> bytes:
        value: bytes = self._meeting.get(key)
        return value

    def multi_set(self, keys: list[str], values: list[str]) -> None:
        for key, value in zip(keys, values, strict=True):
            self._meeting.set(key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self._meeting.wait(keys, self._timeout)
        return [self._meeting.get(key) for key in keys]

    def add(self, key: str, amount: int) -> int:
        if key.startswith(_EXIT_BARRIER):
            return self.arrive()
        return int(self._meeting.add(key, amount))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        if not any(key.startswith(_EXIT_BARRIER) for key in keys):
            return self._meeting.wait(keys, timeout or self._timeout)  # type: ignore[no-any-return]
        if self._site_nodes == 1:
            return
        try:
            self._site.wait([_EXIT_BARRIER + _EVERYBODY], timeout or self._timeout)
        except (RuntimeError, ValueError) as error:
            log.info(f"not waiting for the other nodes of this site any longer: {str(error).splitlines()[0]}")

    def arrive(self) -> int:
        """This node's workers have ended, well or not. 0: nobody counts."""
        if self._site_nodes == 1 or self._at_barrier:
            return 0
        self._at_barrier = True
        try:
            if int(self._site.add(_EXIT_BARRIER, 1)) == self._site_nodes:
                self._site.set(_EXIT_BARRIER + _EVERYBODY, "1")
        except (RuntimeError, ValueError) as error:
            log.debug(f"the site's store is gone: {error}")
        return 0
