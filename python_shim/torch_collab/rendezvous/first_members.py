"""The first world: its nodes and their order, and the stores and coordinators of its sites."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from torch_collab.escape import from_json
from torch_collab.network.addresses import split_host_port
from torch_collab.rendezvous.gathering import POLL_SECONDS, Gathered, GatheringError

PART = "first"  # of the endpoint's store


@dataclass(frozen=True)
class Node:
    id: str  # of one run of an agent
    site: str  # COLLAB_SITE, or ""
    hostname: str
    store: str  # host:port of the store that its agent serves

    @staticmethod
    def read(told: dict[str, Any]) -> Node:
        words = [told[name] for name in ("id", "site", "hostname", "store")]
        if not all(isinstance(word, str) for word in words):
            raise TypeError("a field is not a text")
        return Node(*words)

    def tell(self) -> dict[str, str]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class FirstSite:
    name: str
    nodes: tuple[Node, ...]

    @property
    def first(self) -> Node:
        """The node whose agent serves the site's store and its candidate coordinator."""
        return self.nodes[0]

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(f"{node.hostname} ({split_host_port(node.store)[0]})" for node in self.nodes))


@dataclass(frozen=True)
class FirstMembers:
    gathered: Gathered
    sites: tuple[FirstSite, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """In order of their ranks: a site's nodes follow each other."""
        return tuple(node for site in self.sites for node in site.nodes)

    def rank_of(self, node_id: str) -> int:
        return [node.id for node in self.nodes].index(node_id)

    def site_index_of(self, node_id: str) -> int:
        return next(i for i, site in enumerate(self.sites) if any(node.id == node_id for node in site.nodes))

    def nodes_of_site(self, name: str) -> int | None:
        return next((len(site.nodes) for site in self.sites if site.name == name), None)


def draw(gathered: Gathered) -> FirstMembers:
    """Draws the same world at every node. The closer, which serves the endpoint, comes first; then by arrival.

    Raises GatheringError for a list that no world can be drawn from.
    """
    if not gathered.nodes:
        raise GatheringError(
            "the list of nodes there is empty: an empty world was closed, or a stranger wrote it "
            "[rendezvous.empty-list]"
        )
    nodes = nodes_of(gathered)
    nodes.sort(key=lambda node: node.id != gathered.closer)
    taken = {node.site for node in nodes if node.site}
    sites: dict[str, list[Node]] = {}
    for node in nodes:
        name = node.site or _free_name(node.hostname, taken)
        taken.add(name)
        sites.setdefault(name, []).append(node)
    return FirstMembers(gathered, tuple(FirstSite(name, tuple(members)) for name, members in sites.items()))


def nodes_of(gathered: Gathered) -> list[Node]:
    """The nodes in order of arrival. Raises GatheringError if a node's entry does not describe it."""
    try:
        return [Node.read(told) for told in gathered.nodes]
    except (KeyError, TypeError) as problem:
        raise GatheringError(
            f"a node in the list there does not say who it is: {problem!r} [rendezvous.bad-node]"
        ) from None


def _free_name(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name


def tell_coordinator(store: Any, site_index: int, address: str, error: str = "") -> None:
    """Called by a site's first agent: writes its candidate's address ("" for none), or why it gives up."""
    store.compare_set(f"site/{site_index}", "", json.dumps({"coordinator": address, "error": error}))


def _word(told: bytes, site: FirstSite) -> tuple[str, str]:
    """Reads what a site's first agent wrote: why it gives up, and its candidate's address."""
    try:
        word = from_json(told)
        error, address = str(word["error"]), str(word["coordinator"])
        if address:
            split_host_port(address)
    except (ValueError, KeyError, TypeError) as problem:
        raise GatheringError(
            f"the data of site {site.name} about its coordinator cannot be read: {problem} [rendezvous.bad-word]"
        ) from None
    return error, address


def coordinators_of(store: Any, members: FirstMembers, seconds: float) -> list[str]:
    """The sites' addresses in order; "" where no candidate is served. Raises GatheringError with a message."""
    deadline = time.monotonic() + seconds
    found = []
    for index, site in enumerate(members.sites):
        key = f"site/{index}"
        while not store.check([key]):
            if time.monotonic() >= deadline:
                raise GatheringError(
                    f"site {site.name} (first node {site.first.hostname}) has not announced its coordinator within "
                    f"{seconds:.0f} s [rendezvous.site-silent]"
                )
            time.sleep(POLL_SECONDS)
        error, address = _word(store.get(key), site)
        if error:
            raise GatheringError(
                f"site {site.name} ({site.first.hostname}) could not start: {error} [rendezvous.site-failed]"
            )
        found.append(address)
    return found
