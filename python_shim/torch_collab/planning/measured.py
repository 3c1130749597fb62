"""What a run's round events show, for comparison with a plan."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_collab.planning import timeline

_NEEDED = ("seconds", "exchange_seconds", "stall_seconds", "bytes_sent", "bytes_received", "codec")
COLD = 2  # first rounds, in which connections find out the line's rate


@dataclass(frozen=True)
class Measured:
    """Medians over the warm rounds; with several sites those of the slower one."""

    rounds: int
    sites: int
    codec: str
    exchange: float
    round: float
    stall: float
    bytes_sent: float  # by the site that sends most
    bytes_received: float
    between: float | None  # seconds from one round to the next
    overlap: bool  # rounds ran behind the training
    fragments: int  # how many fragments took turns


def read(files: Sequence[Path]) -> Measured:
    """Reads files of COLLAB_EVENTS_FILE, which hold one site or several. Raises ValueError or OSError with one line."""
    by_site: dict[str, list[dict[str, Any]]] = {}
    for event in timeline.read(files)[0]:
        # Rounds in a coordinator's events have no bytes; round 0 only brings the sites together.
        if event["event"] == "round" and all(name in event for name in _NEEDED):
            by_site.setdefault(event["site"], []).append(event)
    warm = {site: events[COLD:] if len(events) > COLD else events[-1:] for site, events in by_site.items()}
    if not warm:
        names = ", ".join(map(str, files))
        raise ValueError(
            f"--measure {names}: no rounds of a site in it; COLLAB_EVENTS_FILE=FILE makes sites write them "
            "[cli.plan-measure]"
        )

    def slowest(field: str) -> float:
        return max(statistics.median(float(event[field]) for event in events) for events in warm.values())

    gaps = [
        statistics.median(b["t"] - a["t"] for a, b in itertools.pairwise(events))
        for events in warm.values()
        if len(events) > 1
    ]
    return Measured(
        rounds=min(len(events) for events in warm.values()),
        sites=len(warm),
        codec=str(next(iter(warm.values()))[-1]["codec"]),
        exchange=slowest("exchange_seconds"),
        round=slowest("seconds"),
        stall=slowest("stall_seconds"),
        bytes_sent=slowest("bytes_sent"),
        bytes_received=slowest("bytes_received"),
        between=max(gaps) if gaps else None,
        overlap=any(float(event.get("overlap_seconds", 0)) > 0 for events in warm.values() for event in events),
        fragments=1 + max(int(event.get("fragment", 0)) for events in by_site.values() for event in events),
    )
