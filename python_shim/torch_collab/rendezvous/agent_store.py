"""The store that torchrun's agent gets from the rendezvous.

Working out the ranks needs the world's other nodes, and uses the store in which they met. The barrier at the end is
kept among the nodes of one site, whose workers end together. A site does not wait for another site's agents, and does
not complain when they or their store are gone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch

from torch_collab import log
from torch_collab.escape import first_line
from torch_collab.torch_compat import EVERYBODY_CAME, EXIT_BARRIER


class AgentStore:
    """The part of torch's Store interface that the agent uses. Threads: only the agent's thread."""

    def __init__(self, shared: Any, site: Any, site_nodes: int) -> None:
        self._shared = shared  # where the world's nodes met
        self._site = site  # for the nodes of this site
        self._site_nodes = site_nodes
        self._at_barrier = False
        self._timeout: timedelta = shared.timeout

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"collab: torchrun of torch {torch.__version__} asks the rendezvous' store for {name!r}, which collab does "
            "not know: use a torch that collab was tested with, or a newer torch-collab [rendezvous.agent-store]"
        )

    @property
    def timeout(self) -> timedelta:
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        self._shared.set(key, value)

    def get(self, key: str) -> bytes:
        value: bytes = self._shared.get(key)
        return value

    def multi_set(self, keys: list[str], values: list[str]) -> None:
        for key, value in zip(keys, values, strict=True):
            self._shared.set(key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self._shared.wait(keys, self._timeout)
        return [self._shared.get(key) for key in keys]

    def add(self, key: str, amount: int) -> int:
        if key.startswith(EXIT_BARRIER):
            return self.arrive()
        return int(self._shared.add(key, amount))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        if not any(key.startswith(EXIT_BARRIER) for key in keys):
            return self._shared.wait(keys, timeout or self._timeout)  # type: ignore[no-any-return]
        if self._site_nodes == 1:
            return
        try:
            self._site.wait([EVERYBODY_CAME], timeout or self._timeout)
        except (RuntimeError, ValueError) as error:
            log.info(f"no longer waiting for the other nodes of this site: {first_line(error)}")

    def arrive(self) -> int:
        """This node's workers have ended, with or without an error. Returns 0 if nodes are not counted."""
        if self._site_nodes == 1 or self._at_barrier:
            return 0
        self._at_barrier = True
        try:
            if int(self._site.add(EXIT_BARRIER, 1)) == self._site_nodes:
                self._site.set(EVERYBODY_CAME, "1")
        except (RuntimeError, ValueError) as error:
            log.debug(f"the site's store is gone: {error}")
        return 0
