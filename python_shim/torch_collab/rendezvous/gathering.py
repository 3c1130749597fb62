"""Nodes come together in a store. One of them, the closer, decides when the list is closed; the others wait for it.

    arriving ──► waiting ──► the list is out ──► in it: go          (every node shows that it lives by counting up
                    │                     └───► not in it: late      a key of its own; who does not is left off)
                    └─ the closer is silent ──► an empty list

Keys under the gathering's prefix: `arrivals` (a count), `node/I` (JSON), `beat/I` (a count), `list` (JSON).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch_collab.escape import escaped, from_json

POLL_SECONDS = 0.1
MOST_NODES = 65536  # including nodes that came again
SILENT_SECONDS = 5.0  # a node that has not counted up for so long is gone


class GatheringError(RuntimeError):
    """The gathering failed. The message says which nodes were there, and may quote any of them."""

    def __init__(self, text: str) -> None:
        super().__init__(escaped(text))


def count_of(store: Any, name: str) -> int:
    """How many nodes have counted up. Raises GatheringError for more than MOST_NODES, because each is looked at."""
    count = int(store.add(name, 0))
    if count > MOST_NODES:
        raise GatheringError(
            f"the counter {name!r} in the endpoint's store says {count}; at most {MOST_NODES} were expected. Something "
            "other than a node of this run writes there: let a firewall admit only the sites' machines "
            "[rendezvous.bad-counter]"
        )
    return count


@dataclass(frozen=True)
class Gathered:
    """The closed list."""

    text: str  # as it is in the store
    id: str
    closer: str  # the id of the node that closed it
    nodes: tuple[dict[str, Any], ...]  # what each node wrote, in order of arrival; "id" is unique

    @staticmethod
    def read(text: bytes | str) -> Gathered:
        """Raises GatheringError for text that is not a list."""
        told = text if isinstance(text, str) else text.decode(errors="replace")
        try:
            fields = from_json(told)
            return Gathered(told, fields["id"], fields["closer"], tuple(fields["nodes"]))
        except (ValueError, KeyError, TypeError):
            raise GatheringError(
                f"the list of nodes there is not one that a node would write: {told[:200]!r} [rendezvous.bad-list]"
            ) from None

    def includes(self, node_id: str) -> bool:
        return any(node["id"] == node_id for node in self.nodes)


@dataclass(frozen=True)
class Terms:
    """When the closer closes: at `most` nodes, or at `least` nodes once `last_call` seconds have passed."""

    least: int
    most: int
    last_call: float
    limit: float
    content_with_fewer: bool = False  # at the limit, go on with the nodes that are there


class Pulse:
    """Which nodes still count up, by this machine's clock."""

    def __init__(self, store: Any, silent_seconds: float = SILENT_SECONDS, presumed: bool = True) -> None:
        """`presumed`: whether a node counts as alive before it was first seen to count up."""
        self._store = store
        self._silent_seconds = silent_seconds
        self._presumed = presumed
        self._seen: dict[int, tuple[int, float, bool]] = {}  # count, since when, whether it was seen to change

    def alive(self, index: int) -> bool:
        beats = int(self._store.add(f"beat/{index}", 0))
        now = time.monotonic()
        if index not in self._seen:
            self._seen[index] = (beats, now, False)
        count, since, moved = self._seen[index]
        if beats != count:
            self._seen[index] = (beats, now, True)
            return True
        return (moved or self._presumed) and now - since < self._silent_seconds


class Gathering:
    def __init__(self, store: Any) -> None:
        """`store` is a part of the store for this gathering alone; its errors reach the caller."""
        self._store = store

    def closed(self) -> bool:
        return bool(self._store.check(["list"]))

    def read(self) -> Gathered:
        return Gathered.read(self._store.get("list"))

    def come(
        self, mine: Mapping[str, Any], closes: bool | None, terms: Terms, waiting: Callable[[int], None]
    ) -> Gathered:
        """`closes`: whether this node is the closer; None: the first node to arrive is. Raises GatheringError."""
        index = int(self._store.add("arrivals", 1)) - 1
        self._store.set(f"node/{index}", json.dumps(dict(mine)))
        self._store.add(f"beat/{index}", 1)
        if closes or (closes is None and index == 0):
            return self._close(index, mine["id"], terms, waiting)
        return self._wait(index, 0 if closes is None else None, terms.limit, waiting)

    def _close(self, index: int, mine: str, terms: Terms, waiting: Callable[[int], None]) -> Gathered:
        pulse = Pulse(self._store, presumed=False)  # a list with a dead node would hold up all the others
        deadline = time.monotonic() + terms.limit
        enough_since: float | None = None
        while not self.closed():  # a node that knows of an older list may write it
            now = time.monotonic()
            self._store.add(f"beat/{index}", 1)
            there = [i for i in range(count_of(self._store, "arrivals")) if i == index or self._present(i, pulse)]
            enough_since = None if len(there) < terms.least else enough_since or now
            over = now >= deadline
            called = enough_since is not None and now - enough_since >= terms.last_call
            if len(there) >= terms.most or called or (over and terms.content_with_fewer):
                self._publish(index, mine, there, terms.most)
                break
            if over:
                raise GatheringError(
                    f"{len(there)} of {terms.least} nodes came within {terms.limit:.0f} s [rendezvous.few-nodes]"
                )
            waiting(len(there))
            time.sleep(POLL_SECONDS)
        return self.read()

    def _present(self, index: int, pulse: Pulse) -> bool:
        return bool(self._store.check([f"node/{index}"])) and pulse.alive(index)

    def _told(self, index: int) -> dict[str, Any]:
        text = self._store.get(f"node/{index}")
        try:
            told = from_json(text)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise GatheringError(
                f"node {index} of those that came there does not say who it is: "
                f"{text[:200].decode(errors='replace')!r} [rendezvous.bad-arrival]"
            )
        return told

    def _publish(self, index: int, mine: str, there: list[int], most: int) -> None:
        others = [i for i in there if i != index][: most - 1]
        nodes = [self._told(i) for i in sorted([index, *others])]
        self._store.compare_set("list", "", json.dumps({"id": uuid.uuid4().hex, "closer": mine, "nodes": nodes}))

    def _give_up(self) -> None:
        """Writes an empty list: nodes that still wait here are on none, and begin another gathering."""
        self._store.compare_set("list", "", json.dumps({"id": uuid.uuid4().hex, "closer": "", "nodes": []}))

    def _wait(self, index: int, closer: int | None, limit: float, waiting: Callable[[int], None]) -> Gathered:
        pulse = Pulse(self._store)
        # The closer has the same limit, perhaps begun later than ours; while it is alive it decides first.
        deadline = time.monotonic() + limit + 2 * SILENT_SECONDS
        while not self.closed():
            self._store.add(f"beat/{index}", 1)
            if closer is not None and not pulse.alive(closer):
                self._give_up()
                break
            if time.monotonic() >= deadline:
                raise GatheringError(f"no node closed the list within {limit:.0f} s [rendezvous.not-closed]")
            waiting(count_of(self._store, "arrivals"))
            time.sleep(POLL_SECONDS)
        return self.read()
