"""Parses the lines of COLLAB_EVENTS_FILE, for all readers of such files."""

from __future__ import annotations

import json
from typing import Any

COORDINATOR = "coordinator"  # stands in the place of a site's name in the coordinator's events


def event_of(line: str) -> dict[str, Any] | None:
    """The event of a line; None if a killed site has cut the line, or if it is no event."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    fine = isinstance(event, dict) and is_number(event.get("t")) and event["t"] >= 0
    return event if fine and isinstance(event.get("site"), str) and isinstance(event.get("event"), str) else None


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12
