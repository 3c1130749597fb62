"""The link of a world's ranks to the collective hub, which runs collectives between sites unless COLLAB_TRANSPORT=gloo.

Each rank dials one link to the coordinator. In one world the first site's leader serves the coordinator from
init_process_group on; under torchrun the agents do. A group that spans sites is a numbered group of the hub.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import torch

from torch_collab import native
from torch_collab.network import links
from torch_collab.world.groups import GroupOptions, HubGroup, make_backend
from torch_collab.world.topology import Site, Sites

if TYPE_CHECKING:
    from torch_collab import _C
    from torch_collab.native import Settings
    from torch_collab.world.topology import WorldInfo

_KEY = "collab/hub"


class Hub:
    """This rank's link to the hub, if its world has one."""

    def __init__(self, info: WorldInfo) -> None:
        self._info = info
        self.link: _C.HubLink | None = None
        self.number = 0  # its world's number at the hub; 0: none

    @property
    def wanted(self) -> bool:
        return self._info.several_sites and self._info.config.transport != "gloo"

    def enter(self, config: Settings, coordinators: Sequence[str]) -> None:
        """Links this rank to the hub. Collective over the ranks of the world."""
        info = self._info
        if info.rank == 0:
            info.told.set(_KEY, json.dumps({"world": secrets.randbits(64)}))
        self.number = json.loads(info.told.get(_KEY))["world"]
        site_of = [0] * info.size
        for index, site in enumerate(info.sites.sites):
            for rank in site.ranks:
                site_of[rank] = index
        self.link = native.connect_hub(
            config=config.raw,
            transport=links.make(config, config.advertise),
            world=self.number,
            rank=info.rank,
            sites=[site.name for site in info.sites.sites],
            site_of=site_of,
            hubs=list(coordinators),
        )
        info.told.set(f"{_KEY}/entered/{info.rank}", "1")

    def wait_until_all_have_come(self, limit: timedelta) -> None:
        """Keeps the process that serves the coordinator from ending before the last rank has found it. The wait ends
        early when the store is gone, and at `limit` if a rank never comes."""
        if self.number:
            with contextlib.suppress(RuntimeError):
                self._info.told.wait([f"{_KEY}/entered/{rank}" for rank in range(self._info.size)], limit)

    def group(self, opts: GroupOptions) -> HubGroup | None:
        """The hub's group for the process group that torch asks for. All its ranks get the same one, which no other
        group has, earlier or later."""
        if self.link is None:
            return None
        ranks = opts.ranks or tuple(range(opts.group_size))
        return self._numbered(self.link, f"{opts.group_id}/{list(ranks)}/{opts.time}", ranks)

    def gather(self, what: str, mine: bytes, limit: timedelta) -> list[bytes]:
        """Gathers equally many bytes from every rank of the world, by rank. Collective, once for each `what`.

        Uses a group of its own, so the order of a script's collectives, which may differ between sites, does not
        matter. Raises RuntimeError with rank and site once a rank is known to be gone, after COLLAB_LINK_GRACE, or does
        not come.
        """
        assert self.link is not None
        size = self._info.size
        group = self._numbered(self.link, what, tuple(range(size)))
        opts = GroupOptions(self._info.rank, size, limit)
        # Each rank is a site of its own here, so that nothing is summed within a site first.
        apart = Sites(tuple(Site(name, (rank,)) for rank, name in enumerate(group.site_names)))
        backend = make_backend(opts, apart, group, one_host=False, is_world=False)
        parts = [torch.empty(len(mine), dtype=torch.uint8, device="cpu") for _ in range(size)]
        backend.allgather([parts], [torch.frombuffer(bytearray(mine), dtype=torch.uint8)]).wait()
        return [bytes(part.tolist()) for part in parts]

    def leave(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.leave("its process group was destroyed")

    def _numbered(self, link: _C.HubLink, text: str, ranks: tuple[int, ...]) -> HubGroup:
        digest = hashlib.blake2b(f"{self.number}/{text}".encode(), digest_size=8).digest()
        names = tuple(self._info.sites.of(rank).name for rank in ranks)
        # The next number is the leaders' group.
        return HubGroup(link, int.from_bytes(digest, "big") & ~1, ranks, names)
