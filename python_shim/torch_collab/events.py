"""What a line of COLLAB_EVENTS_FILE holds, for all that read such files."""

from __future__ import annotations

import json
from typing import Any

COORDINATOR = "coordinator"  # the site's name in its events


def event_of(line: str) -> dict[str, Any] | None:
    """Its event; None for a line that a killed site has cut, or that is none."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    fine = isinstance(event, dict) and is_number(event.get("t")) and event["t"] >= 0
    return event if fine and isinstance(event.get("site"), str) and isinstance(event.get("event"), str) else None


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12
