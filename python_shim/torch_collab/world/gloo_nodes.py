"""COLLAB_TRANSPORT=gloo: torch's Gloo among the sites' leaders and their coordinator."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from torch_collab.world.groups import make_gloo

if TYPE_CHECKING:
    from torch_collab.world.topology import WorldInfo


class GlooNodes:
    """Gloo among the leaders and, as the last rank, the coordinator, which lives in the first leader's process."""

    def __init__(self, info: WorldInfo) -> None:
        leaders = [site.leader for site in info.sites.sites]
        size = len(leaders) + 1
        self.mine: Any = None
        self.coordinator: Any = None
        serving = info.rank == leaders[0]
        # Making a group waits for all ranks, so the first leader makes its two at the same time. They use two
        # connections to the store, because a wait blocks its connection.
        second = threading.Thread(target=self._make_coordinator, args=(info, size), daemon=True)
        if serving:
            second.start()
        self.mine = make_gloo(info.store, "links", leaders.index(info.rank), size, info.timeout)
        if serving:
            second.join()
            if self.coordinator is None:
                raise RuntimeError(
                    "collab: the coordinator's Gloo could not be made; the log above says why [coordinator.no-gloo]"
                )

    def _make_coordinator(self, info: WorldInfo, size: int) -> None:
        self.coordinator = make_gloo(info.store.clone(), "links", size - 1, size, info.timeout)
