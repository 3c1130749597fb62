"""What collab reads from the process's environment."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping

# Set by the agent of `torchrun --rdzv-backend=collab` for its workers; not for people.
START = "COLLAB_START"  # one of the two:
FIRST_MEMBERS, LONE = "first-members", "lone"
SITE_STORE = "COLLAB_SITE_STORE"  # HOST:PORT of the store of this site's agent, among the first members
WORLD = "COLLAB_WORLD"  # a random number for this one world
ENDPOINT = "COLLAB_ENDPOINT"  # HOST:PORT of --rdzv-endpoint
RENDEZVOUS_RUN = "COLLAB_RENDEZVOUS_RUN"  # result of rendezvous_run() at this agent
FROM_AGENT = (START, SITE_STORE, WORLD, ENDPOINT, RENDEZVOUS_RUN)

# How to start a world of its own at a machine that the rendezvous cannot take in; `collab run` has another text.
LATE_WORLD = "torchrun --standalone"

NO_RUN_ID = ("", "none")  # torchrun's default, which several of its jobs may share
_MOST_CHARACTERS = 64


def collab_variables() -> dict[str, str]:
    """Every variable that could be meant for collab; the core separates knobs from misspellings and other names."""
    return {name: value for name, value in os.environ.items() if name.startswith("COLLAB_")}


def from_agent(name: str) -> str:
    """A variable that the agent has set, or ""."""
    return os.environ.get(name, "")


def run_of_agent() -> str | None:
    """torchrun's --rdzv-id, in a process that torchrun has started."""
    return os.environ.get("TORCHELASTIC_RUN_ID")


def rendezvous_run(variables: Mapping[str, str], options: Mapping[str, str]) -> str:
    """The run's name if COLLAB_RUN does not give it: torchrun's --rdzv-id; "": nothing says one.

    This keeps two jobs with different ids on one host apart. Separate worlds of one swarm have different ids, too
    (drawn at random with --standalone) and find each other by COLLAB_COORDINATOR: there the id says nothing.
    """
    if from_agent(START):  # the agent has told its workers a coordinator in any case
        return from_agent(RENDEZVOUS_RUN)
    if options.get("coordinator") or variables.get("COLLAB_COORDINATOR"):
        return ""
    return as_run(run_of_agent() or "")


def as_run(run_id: str) -> str:
    """A rendezvous id as a name that COLLAB_RUN accepts: the id itself if it is one."""
    if run_id in NO_RUN_ID:
        return ""
    if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", run_id) and len(run_id) <= _MOST_CHARACTERS:
        return run_id
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:12]
    readable = re.sub(r"[^A-Za-z0-9_-]", "-", run_id)[: _MOST_CHARACTERS - len(digest) - 1]
    return f"{readable}-{digest}"
