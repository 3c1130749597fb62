"""Unsigned notices at the endpoint, for nodes that cannot verify each other: which node was refused, and why.

A notice has only two effects: the user is told, and a gathering ends if it has too few nodes without the refused one,
for which it would wait in vain. It names a node and that node's settings, never a token.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from torch_collab.escape import from_json
from torch_collab.network.addresses import as_name
from torch_collab.network.keys import KINDS
from torch_collab.rendezvous.settings import RendezvousSettings

_KEY = "collab/rendezvous/refused"
_HEARD = "collab/rendezvous/heard"
_HEARD_SECONDS = 5.0
_POLL_SECONDS = 0.05
_TRANSPORTS = ("ucx", "tcp")
# The version of the endpoint store's keys and entries. Raise it with each change: otherwise nodes of two releases wait
# for each other at different keys. docs/protocol/beside.md lists them.
_LAYOUT = "1"
_LAYOUT_DIGITS = 6


class Notices:
    """Threads: the agent's thread. `store` is the endpoint's, as a torch Store."""

    def __init__(self, store: Any, settings: RendezvousSettings) -> None:
        self._store = store
        self._settings = settings

    def leave(self, problem: str = "") -> None:
        """Called if this node refuses or is refused. `problem`: an entry that does not belong to the swarm."""
        mine = {**describe(self._settings), "entry": problem}
        with contextlib.suppress(RuntimeError, ValueError):
            self._store.compare_set(_KEY, "", json.dumps(mine))

    def look(self) -> str | None:
        """The notice that some node has left here, as a message."""
        if not self._store.check([_KEY]):
            return None
        try:
            told = from_json(self._store.get(_KEY))
            node = as_name(str(told["node"]))
            if told["entry"]:
                return f"node {node} has found an entry that was not signed with its swarm's token"
            return difference(self._settings, {**told, "node": node})
        except (ValueError, KeyError, TypeError):
            return "there is an entry that no node writes"

    def hear(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.add(_HEARD, 1)

    def wait_until_heard(self, others: Callable[[], int]) -> None:
        """The agent that serves the store ends last."""
        deadline = time.monotonic() + _HEARD_SECONDS
        with contextlib.suppress(RuntimeError):
            while time.monotonic() < deadline and int(self._store.add(_HEARD, 0)) < others():
                time.sleep(_POLL_SECONDS)


def describe(settings: RendezvousSettings) -> dict[str, str]:
    """The settings that all nodes must share, and which node has them."""
    name = settings.site or settings.hostname
    return {"node": name, "layout": _LAYOUT, "key": settings.key.kind, "transport": settings.transport}


def differs(settings: RendezvousSettings, theirs: Mapping[str, Any]) -> bool:
    mine = describe(settings)
    return any(_told(theirs)[name] != mine[name] for name in ("layout", "key", "transport"))


def _told(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes from before layouts were numbered have none."""
    return {"layout": "0", **theirs}


def difference(settings: RendezvousSettings, theirs: Mapping[str, Any]) -> str:
    """What differs between this node and another, and what to do."""
    mine = describe(settings)
    theirs = _told(theirs)
    here, there = f"this node ({mine['node']})", f"node {theirs['node']}"
    layout = str(theirs["layout"])
    if not (layout.isdecimal() and layout.isascii() and len(layout) <= _LAYOUT_DIGITS):
        raise ValueError("no node describes itself like that")
    if layout != mine["layout"]:
        return (
            f"{there} uses layout {layout} of this store, and {here} uses layout {mine['layout']}: install the same "
            "release of collab at all nodes"
        )
    if theirs["key"] not in KINDS or theirs["transport"] not in _TRANSPORTS:
        raise ValueError("no node describes itself like that")
    if theirs["key"] != mine["key"]:
        return (
            f"{there} {KINDS[theirs['key']]}, and {here} {KINDS[mine['key']]}: give all nodes the same COLLAB_TOKEN "
            "(or COLLAB_TOKEN_FILE), or all of them certificates, or none"
        )
    if theirs["transport"] != mine["transport"]:
        return (
            f"{there} uses {theirs['transport']}, and {here} uses {mine['transport']} for links between sites: set "
            "COLLAB_TRANSPORT to the same value"
        )
    if mine["key"] == "token":
        return (
            f"{there} has another token than {here}: copy the token file of the first machine to all others "
            "(COLLAB_TOKEN_FILE), or give all the same COLLAB_TOKEN"
        )
    return f"{there} was refused there"
