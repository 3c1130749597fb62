"""The world of a site that comes late or comes back: its own ranks, its own store.

A single node is a world at once, and needs no other node. Several nodes of one site meet first: in the store that their
site had, else at the endpoint.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch_collab.network.addresses import split_host_port
from torch_collab.network.signed_store import SignedStore
from torch_collab.rendezvous.dial import dial_store
from torch_collab.rendezvous.first_members import Node, nodes_of
from torch_collab.rendezvous.gathering import Gathering, GatheringError, Terms


@dataclass(frozen=True)
class LoneWorld:
    rank: int  # of this node
    nodes: int
    store: Any  # of this world: served here, or at its first node
    host: str  # where the workers here dial it
    port: int
    owner: str  # the id of the node that serves the store


def alone(served: Any, mine: str) -> LoneWorld:
    return LoneWorld(0, 1, served, "127.0.0.1", served.port, mine)


def meet(
    shared: SignedStore, site: str, mine: Node, served: Any, terms: Terms, waiting: Callable[[int], None]
) -> LoneWorld:
    """Gathers the nodes of a site; the first to come closes the list. Raises GatheringError if that fails."""
    deadline = time.monotonic() + terms.limit
    for generation in itertools.count():
        if time.monotonic() >= deadline:  # a stranger may have closed any number of lists
            raise GatheringError(
                f"the nodes of site {site} have closed {generation} lists, and this one was in none within "
                f"{terms.limit:.0f} s [rendezvous.in-no-list]"
            )
        gathering = Gathering(shared.part(f"late/{site}/{generation}"))
        if gathering.closed():
            continue
        gathered = gathering.come(mine.tell(), None, terms, waiting)
        deadline = time.monotonic() + terms.limit  # the limit begins anew after each list that was still open
        nodes = nodes_of(gathered)
        if any(node.id == mine.id for node in nodes):
            break
    if len(nodes) == 1:
        return alone(served, mine.id)
    rank = [node.id for node in nodes].index(mine.id)
    if rank == 0:
        return LoneWorld(0, len(nodes), served, "127.0.0.1", served.port, mine.id)
    host, port = split_host_port(nodes[0].store)
    store = dial_store(host, port)
    if store is None:
        raise GatheringError(
            f"the store of {nodes[0].hostname} at {nodes[0].store} does not answer [rendezvous.store-silent]"
        )
    return LoneWorld(rank, len(nodes), store, host, port, nodes[0].id)
