"""Rendezvous handlers in the test's own process, without torchrun."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

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

    def run(one: CollabRendezvous) -> RendezvousInfo | RendezvousError:
        try:
            return one.next_rendezvous()
        except RendezvousError as error:
            return error

    with ThreadPoolExecutor(len(handlers)) as pool:
        return list(pool.map(run, handlers))


def ranks(infos: list[RendezvousInfo | RendezvousError]) -> list[tuple[int, int]]:
    assert all(isinstance(info, RendezvousInfo) for info in infos), infos
    return sorted((info.rank, info.world_size) for info in infos)
