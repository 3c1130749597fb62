"""`torchrun --rdzv-backend=collab`: one world whose healthy workers outlive every other site, the endpoint's host too.

What an agent (the torchrun process of one node) does here:

    handler.py    the rendezvous handler: first start, restart, end
    endpoint.py   the store at --rdzv-endpoint: served by its host's agent, dialled by the others
    dial.py       a store at an address, or word in time that none answers there
    notices.py    who was refused there, for the others to tell
    gathering.py  nodes come together in a store until one of them closes the list
    first_members.py  the first world: who is in it, its sites, where their stores and coordinators are
    late.py       the world of a site that comes late or comes back
    candidate.py  the coordinator inside the agent, and how long it stays at the end
    heartbeat.py  tells the endpoint that this agent lives, and a new endpoint that the world is closed
    renewal.py    signs anew what stands at the endpoint, when the swarm's token is replaced
    agent_store.py  what torchrun's own bookkeeping is given as its store
    settings.py   what was asked for; the address others dial

This file stays free of everything heavy: torchrun reads it at every start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def make_creator() -> Callable[[Any], Any]:
    """Entry point of the group `torchrun.handlers`: gives what torchrun calls with its RendezvousParameters."""
    return _create


def _create(parameters: Any) -> Any:
    from torch_collab.rendezvous.handler import create_handler

    return create_handler(parameters)
