"""`torchrun --rdzv-backend=collab`: one world whose workers outlive every other site, even the endpoint's host.

What an agent (the torchrun process of one node) does here:

    handler.py    the rendezvous handler: first start, restart, end
    endpoint.py   the store at --rdzv-endpoint: its host's agent serves it, the others dial it
    dial.py       dials a store at an address, and gives up in time if none answers
    notices.py    which nodes were refused there, for the others to report
    gathering.py  nodes gather in a store until one of them closes the list
    first_members.py  the first world: its nodes and sites, and their stores and coordinators
    late.py       the world of a site that comes late or comes back
    candidate.py  the coordinator inside the agent, and how long it stays at the end
    heartbeat.py  tells the endpoint that this agent lives, and a new endpoint that the world is closed
    renewal.py    signs the endpoint's entries anew when the swarm's token is replaced
    agent_store.py  the store that torchrun's own bookkeeping gets
    settings.py   the settings of this torchrun; the address others dial

This file imports nothing heavy, because torchrun reads it at every start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def make_creator() -> Callable[[Any], Any]:
    """Entry point of the group `torchrun.handlers`. torchrun calls the result with its RendezvousParameters."""
    return _create


def _create(parameters: Any) -> Any:
    from torch_collab.rendezvous.handler import create_handler

    return create_handler(parameters)
