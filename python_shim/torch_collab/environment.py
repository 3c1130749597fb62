"""What collab reads from the process's environment."""

from __future__ import annotations

import os

# Set by the agent of `torchrun --rdzv-backend=collab` for its workers; not for people.
START = "COLLAB_START"  # "cohort" or "lone"
SITE_STORE = "COLLAB_SITE_STORE"  # HOST:PORT of the store of this site's agent, in a cohort
WORLD = "COLLAB_WORLD"  # drawn at random for this very world
ENDPOINT = "COLLAB_ENDPOINT"  # HOST:PORT of --rdzv-endpoint
FROM_AGENT = (START, SITE_STORE, WORLD, ENDPOINT)


def collab_variables() -> dict[str, str]:
    """Every variable that could be meant for collab; the core tells knobs, misspellings and others' apart."""
    return {name: value for name, value in os.environ.items() if name.startswith("COLLAB_")}


def from_agent(name: str) -> str:
    """What the agent has set, or ""."""
    return os.environ.get(name, "")
