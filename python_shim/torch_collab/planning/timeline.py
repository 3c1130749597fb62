"""Which sites were there, and what each did when, from files of COLLAB_EVENTS_FILE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_collab.events import COORDINATOR, event_of, is_number
from torch_collab.formatting import listed, plural

_SECONDS = ("seconds", "stall_seconds", "overlap_seconds")


@dataclass(frozen=True)
class Span:
    kind: str  # "compute", "waiting", "exchange" or "behind": an exchange behind the training
    start: float  # Unix seconds
    end: float


@dataclass
class Row:
    site: str
    present: list[tuple[float, float]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)  # of a site whose own events were read
    rounds: int = 0


@dataclass(frozen=True)
class Timeline:
    rows: list[Row]  # by name
    start: float
    end: float


def read(files: Sequence[Path]) -> tuple[list[dict[str, Any]], list[str]]:
    """The events of all files ordered by time, and messages about lines that are no events.

    A killed site cuts its last line, and a site that comes back writes on behind it. Raises ValueError, OSError.
    """
    events: list[dict[str, Any]] = []
    odd = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise OSError(f"{file} cannot be read: {error.strerror} [cli.events-unreadable]") from None
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        found = [(number, event_of(line)) for number, line in lines]
        events += [event for _, event in found if event is not None]
        passed = [str(number) for number, event in found if event is None]
        if lines and len(passed) == len(lines):
            raise ValueError(
                f"{file} holds no event: expected a file that COLLAB_EVENTS_FILE has made [cli.events-none]"
            )
        if passed:
            which = f"{plural('line', len(passed))} {listed(passed, most=8)}"
            odd.append(f"{file}: {which} skipped: cut off, or not an event")
    return sorted(events, key=lambda event: float(event["t"])), odd


def make(events: Sequence[dict[str, Any]]) -> Timeline:
    """`events` are ordered by time. Raises ValueError if no site is among them."""
    rows: dict[str, Row] = {}
    for event in events:
        if event["site"] != COORDINATOR:
            rows.setdefault(event["site"], Row(event["site"]))
    for site, row in rows.items():
        _fill(row, [event for event in events if event["site"] == site], _joins(events, site))
    for site, present in _seen_by_others(events).items():
        if site not in rows:
            rows[site] = Row(site, present)
    if not rows:
        raise ValueError(
            "no site is in these events: name the files of sites, or of a coordinator that sites joined "
            "[cli.plot-no-site]"
        )
    ends = [moment for row in rows.values() for span in row.present for moment in span]
    return Timeline([rows[site] for site in sorted(rows)], min(ends), max(ends))


def _joins(events: Sequence[dict[str, Any]], site: str) -> list[float]:
    """The times at which the coordinator let the site in."""
    told = (event for event in events if event["event"] == "join" and event["site"] == COORDINATOR)
    return [float(event["t"]) for event in told if event.get("who") == site]


def _fill(row: Row, events: Sequence[dict[str, Any]], joins: Sequence[float]) -> None:
    rounds = [event for event in events if event["event"] == "round" and all(map(is_number, _seconds(event)))]
    first = float(events[0]["t"])
    if rounds:
        first = min(first, float(rounds[0]["t"]) - max(0.0, *_seconds(rounds[0])))
    # A site that already had the model writes no event of its own when it joins.
    first = max((moment for moment in joins if moment < first), default=first)
    row.present = [(first, float(events[-1]["t"]))]
    row.rounds = len(rounds)
    before = first
    for event in rounds:
        row.spans += _of_round(event, before)
        before = float(event["t"])
    row.spans.append(Span("compute", before, row.present[0][1]))
    row.spans = [span for span in row.spans if span.end > span.start]


def _seconds(event: dict[str, Any]) -> list[Any]:
    return [event.get(name, 0) for name in _SECONDS]


def _of_round(event: dict[str, Any], before: float) -> Iterator[Span]:
    """The spans that led to a round, which ended at the event's time; `before`: the end of the previous round."""
    end = float(event["t"])
    seconds, stall, overlap = (max(0.0, float(value)) for value in _seconds(event))
    if overlap > 0:  # the script trained on, and waited only for the merge
        yield Span("compute", before, max(before, end - stall))
        yield Span("waiting", max(before, end - stall), end)
        trigger = max(before, end - max(overlap, stall))
        yield Span("behind", trigger, min(end, trigger + max(seconds, stall)))
        return
    exchange = max(before, end - seconds)
    trigger = max(before, min(exchange, end - stall))
    yield Span("compute", before, trigger)
    yield Span("waiting", trigger, exchange)
    yield Span("exchange", exchange, end)


def _seen_by_others(events: Iterable[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """When a site was there, from the coordinator's joins and leaves and from the members of rounds."""
    open_since: dict[str, float] = {}
    last: dict[str, float] = {}
    present: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        moment, who = float(event["t"]), event.get("who")
        members = event.get("members") if event["event"] == "round" else []
        came = [who] if event["event"] == "join" and event["site"] == COORDINATOR else members
        for site in came if isinstance(came, list) else []:
            if isinstance(site, str):
                open_since.setdefault(site, moment)
                last[site] = moment
        if event["event"] == "leave" and event["site"] == COORDINATOR and isinstance(who, str) and who in open_since:
            present.setdefault(who, []).append((open_since.pop(who), moment))
    for site, since in open_since.items():
        present.setdefault(site, []).append((since, last[site]))
    return present
