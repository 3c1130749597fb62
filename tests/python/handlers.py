"""Rendezvous handlers in the test's own process, without torchrun."""

from __future__ import annotations

import threading

from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch_collab.rendezvous.handler import CollabRendezvous


def handler(port: int, nnodes: tuple[int, int] = (2, 2), run_id: str = "a", **conf: str) -> CollabRendezvous:
    conf = {"last_call_timeout": "0.3", "join_timeout": "20", **conf}
    made = get_rendezvous_handler(RendezvousParameters("collab", f"127.0.0.1:{port}", run_id, *nnodes, **conf))
    assert isinstance(made, CollabRendezvous)
    return made


def rendezvous(*handlers: CollabRendezvous) -> list[RendezvousInfo | RendezvousError]:
    """All at once."""
    found: dict[int, RendezvousInfo | RendezvousError] = {}

    def run(index: int) -> None:
        try:
            found[index] = handlers[index].next_rendezvous()
        except RendezvousError as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(handlers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [found[index] for index in range(len(handlers))]


def ranks(infos: list[RendezvousInfo | RendezvousError]) -> list[tuple[int, int]]:
    assert all(isinstance(info, RendezvousInfo) for info in infos), infos
    return sorted((info.rank, info.world_size) for info in infos)
