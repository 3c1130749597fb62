"""The rounds of a site as numbers: from its events (COLLAB_EVENTS_FILE), or, without them, from status()."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from torch_collab import api, log
from torch_collab.events import COORDINATOR, event_of
from torch_collab.world import state

_PREFIX = "collab/"
_COUNTED = ("members", "contributors")
_NUMBERS = (
    "samples", "seconds", "exchange_seconds", "stall_seconds", "overlap_seconds", "bytes_sent", "bytes_received",
    "period", "egress_gb", "rounds_left",
)  # fmt: skip


@dataclass(frozen=True)
class Round:
    """One round, or the metrics that the script logged after it."""

    number: int
    metrics: dict[str, float] = field(default_factory=dict)  # names begin with "collab/", or are the script's own


class RoundReader:
    """Gives each round of one site once.

    `events` is a file written by COLLAB_EVENTS_FILE; all its rounds are given. `site` chooses one site if the file has
    several. Without `events`, the rounds are those of this process's world from now on: from its COLLAB_EVENTS_FILE,
    or, if that is not set, from status(), which knows neither the contributors nor how long the site waited.
    """

    def __init__(self, events: str | PathLike[str] | None = None, site: str | None = None) -> None:
        self._file = None if events is None else Path(events)
        self._site = site
        self._found: str | None = None  # the site whose rounds the file holds, if none was chosen
        self._since = 0.0 if self._file is not None else time.time()
        self._read_to = 0
        self._last: float | None = None  # the end of the previous round
        self._newest = 0

    def read(self) -> list[Round]:
        """The new rounds. Raises RuntimeError without a world and a file, ValueError for a file of several sites."""
        if self._file is not None:
            return list(self._of_events(self._file, self._site))
        world = state.require()
        if world.info.config.events_file:
            return list(self._of_events(Path(world.info.config.events_file), world.info.site.name))
        log.warn_once(
            "COLLAB_EVENTS_FILE is not set, so the log does not say which sites contributed to a round, or how "
            "long this site waited [integrations.no-events]"
        )
        return list(self._of_status())

    def _of_status(self) -> Iterator[Round]:
        now = api.status()
        if now["round"] > self._newest:
            self._newest = now["round"]
            numbers = {name: float(now[name]) for name in ("round", "steps", "bytes_sent", "bytes_received")}
            yield Round(self._newest, {_PREFIX + name: value for name, value in numbers.items()})

    def _of_events(self, file: Path, site: str | None) -> Iterator[Round]:
        for event in self._new_events(file):
            if event["event"] not in ("round", "metrics") or event["site"] == COORDINATOR:
                continue
            self._found = site or self._found or event["site"]
            if event["site"] != self._found:
                if site is None:
                    raise ValueError(
                        f"collab: {file} holds rounds of {self._found} and of {event['site']}: name the site that you "
                        "want (site=) [integrations.several-sites]"
                    )
                continue
            yield self._round(event) if event["event"] == "round" else self._metrics(event)

    def _new_events(self, file: Path) -> Iterator[dict[str, Any]]:
        try:
            with file.open("rb") as source:
                source.seek(self._read_to)
                text = source.read()
        except FileNotFoundError:
            return  # no event yet
        whole = text[: text.rfind(b"\n") + 1]  # the last line may still be being written
        self._read_to += len(whole)
        for event in map(event_of, whole.decode(errors="replace").split("\n")):
            if event is not None and event["t"] >= self._since:
                yield event

    def _round(self, event: dict[str, Any]) -> Round:
        numbers: dict[str, float] = {"round": event["round"]}
        numbers |= {name: len(event[name]) for name in _COUNTED if name in event}
        numbers |= {name: event[name] for name in _NUMBERS if isinstance(event.get(name), int | float)}
        if self._last is not None and event["t"] > self._last:
            numbers["waiting_share"] = min(1.0, event.get("stall_seconds", 0.0) / (event["t"] - self._last))
        self._last = event["t"]
        return Round(int(event["round"]), {_PREFIX + name: float(value) for name, value in numbers.items()})

    def _metrics(self, event: dict[str, Any]) -> Round:
        told = {name: float(value) for name, value in event.get("metrics", {}).items() if value is not None}
        return Round(int(event["round"]), {_PREFIX + "step": float(event.get("step", 0)), **told})
