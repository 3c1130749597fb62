"""The coordinator inside an agent, and how long the agent stays for it once its own workers are done."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch_collab import log, native
from torch_collab.environment import collab_variables
from torch_collab.network import links, page
from torch_collab.network.addresses import join_host_port
from torch_collab.network.linger import linger
from torch_collab.rendezvous.settings import RendezvousSettings

if TYPE_CHECKING:
    from torch_collab import _C

# Whether the first agent of every site serves a candidate, or only that of the first site. A candidate leads only with
# a majority of the members. With --rdzv-conf standby=0 rounds stop with the first site's agent.
STANDBY = True


def join_command(settings: RendezvousSettings) -> str:
    """The command for another site, with the settings that all sites must share."""
    shared = {row["name"] for row in native.knob_table() if row["scope"] == "sites"}
    words = [
        f"COLLAB_{name.upper()}={shlex.quote(value)}"
        for name, value, source in settings.config.values
        if name in shared and source != "default"
    ]
    words += ["collab run --site NAME --join", settings.endpoint]
    if settings.key.kind == "token":
        words += ["--token-file swarm.key"]
    if settings.config.run != "default":
        words += ["--run", shlex.quote(settings.config.run)]
    return " ".join([*words, "train.py"])


class Candidate:
    """Threads: the agent's thread; the coordinator has its own threads in the native module."""

    def __init__(self, settings: RendezvousSettings) -> None:
        self._settings = settings
        self._server: _C.CoordinatorServer | None = None
        self._page: _C.Page | None = None
        self.address = ""

    def serve(self, host: str, port: int) -> str:
        """Returns the address that others dial. Raises OSError or RuntimeError with a message."""
        # Joining sites say how many sites round 0 waits for. The run is the one found at this agent's start: by now the
        # environment names a coordinator, which is its own.
        found = {"advertise": host, "min_sites": "1", "run": self._settings.config.run}
        config = native.load_config(collab_variables(), found)
        listen = join_host_port(config.listen.rpartition(":")[0].strip("[]"), port)
        server = native.serve_coordinator(config.raw, links.make(config, host), listen)
        self._server, self.address = server, server.address
        self._serve_page(server)
        return self.address

    def _serve_page(self, server: _C.CoordinatorServer) -> None:
        """A problem with the page keeps nobody from training."""
        settings = self._settings
        try:
            self._page = page.serve(settings.config, server, self.address, settings.page, join_command(settings))
        except (OSError, RuntimeError, ValueError) as problem:
            log.warning(f"there is no page: {str(problem).removeprefix('collab: ')}")
        if self._page is not None:
            log.info(self._page.announcement)

    def tell_of_no_page(self) -> None:
        """Warns if a page was requested, and this agent serves no coordinator whose page it could be."""
        if self._settings.page.get("http") and self._server is None:
            log.warning("there is no page: this machine serves no coordinator. Request the page at a machine that the "
                        "training begins with [page.no-coordinator]")  # fmt: skip

    @property
    def serving(self) -> bool:
        return self._server is not None

    def linger(self, others: Callable[[], list[str]]) -> None:
        """Stays while sites are members, or live agents may bring theirs back, for at most COLLAB_LINGER."""
        if self._server is not None:
            linger(self._server, self._settings.config.linger, time.monotonic(), others)
        self.close()

    def close(self) -> None:
        if self._page is not None:
            self._page.close()
        self._page = self._server = None
