"""The coordinator inside an agent, and how long the agent stays for it when its own workers are done."""

from __future__ import annotations

import time
from collections.abc import Callable

from torch_collab import native
from torch_collab.environment import collab_variables
from torch_collab.network import links
from torch_collab.network.addresses import join_host_port
from torch_collab.network.linger import linger
from torch_collab.rendezvous.settings import RendezvousSettings

# Whether every site's first agent serves a candidate, or the first site's alone. A candidate takes office only with a
# majority of the members. --rdzv-conf standby=0: rounds stop with the first site's agent.
STANDBY = True


class Candidate:
    """Threads: the agent's one; the coordinator has its own in the native module."""

    def __init__(self, settings: RendezvousSettings) -> None:
        self._settings = settings
        self._server: object | None = None
        self.address = ""

    def serve(self, host: str, port: int) -> str:
        """Gives the address others dial. Raises OSError or RuntimeError in words."""
        # How many sites round 0 waits for is said by those who join.
        # The run is what this agent has found at its start: by now its environment names a coordinator, its own.
        found = {"advertise": host, "min_sites": "1", "run": self._settings.config.run}
        config = native.load_config(collab_variables(), found)
        listen = join_host_port(config.listen.rpartition(":")[0].strip("[]"), port)
        server = native.serve_coordinator(config.raw, links.make(config, host), listen)
        self._server, self.address = server, server.address
        return self.address

    @property
    def serving(self) -> bool:
        return self._server is not None

    def linger(self, others: Callable[[], list[str]]) -> None:
        """Stays while sites are members or agents live that may bring theirs back, at most COLLAB_LINGER."""
        if self._server is not None:
            linger(self._server, self._settings.config.linger, time.monotonic(), others)
        self.close()

    def close(self) -> None:
        self._server = None
