"""A rank's session of a generation, and its first round."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from torch_collab import environment, native
from torch_collab.swarm import coordinator, records
from torch_collab.world.groups import gloo_listens_here_only, make_gloo, site_group

if TYPE_CHECKING:
    from torch_collab import _C
    from torch_collab.model.vector import Entry
    from torch_collab.world.state import World

_HEARD = "collab/heard"
_HEARING_SECONDS = 30
_LEAVE_SECONDS = 20


def make(world: World, entries: Sequence[Entry], resumed: bool) -> _C.Session:
    """Finds or serves the coordinator and makes this rank's session of the generation. Collective over the ranks of the
    site, for the first generation over those of the world."""
    config = coordinator.resolved(world)
    transport = _leader_only(world, lambda: coordinator.reach(world, config))
    size = len(world.site.ranks)
    site_gloo = None
    if size > 1:
        with gloo_listens_here_only(world.one_host):
            name = f"session/{world.generation}/{world.site.leader}"
            site_gloo = make_gloo(world.site_store, name, world.site_rank, size, world.timeout)
    record_dir, record_scope = records.place(world) if world.is_leader else ("", "")
    trained = [entry for entry in entries if entry.trained]
    return native.make_session(
        config,
        site=world.site.name,
        job=_job(),
        record_dir=record_dir,
        record_scope=record_scope,
        generation=world.generation,
        egress_spent=world.egress_spent,
        site_rank=world.site_rank,
        site_size=size,
        one_host=world.one_host,
        coordinators=list(world.coordinators),
        model=[_row(entry) for entry in entries],
        # The tensors themselves, not detached ones, which would keep the storage of today.
        parameters=[entry.tensor for entry in trained],
        compared_elements=sum(entry.tensor.numel() for entry in trained if not entry.buffer),
        site_group=site_gloo,
        transport=transport,
        resumed=resumed,
    )


def _row(entry: Entry) -> tuple[str, str, list[int], str, str]:
    """What sites compare of a tensor."""
    tensor = entry.tensor.detach()
    digest = "" if entry.trained else native.digest(tensor)
    return entry.name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), entry.kind, digest


def _job() -> str:
    """What restarts this process after a crash, torchrun's agent: its run and the very process. Empty without one."""
    run = environment.run_of_agent()
    if run is None:
        return ""
    agent = os.getppid()
    try:
        started = Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{run}/{agent}/{started}"


def begin(world: World, session: _C.Session) -> None:
    """Round 0. When it fails, the coordinator stays until the other leaders have heard why."""
    try:
        session.begin()
    except Exception:
        _tell_heard(world)
        if world.server is not None and world.generation == 1:
            keys = [f"{_HEARD}/{index}" for index in range(len(world.sites.sites))]
            with contextlib.suppress(Exception):
                world.told.wait(keys, timedelta(seconds=min(world.config.join_timeout, _HEARING_SECONDS)))
        raise
    _tell_heard(world)
    if not world.watches_for_termination and (len(world.site.ranks) == 1 or world.one_host):
        # torchrun kills 30 s after it has asked.
        world.watches_for_termination = native.watch_for_termination(timedelta(seconds=_LEAVE_SECONDS))


def _tell_heard(world: World) -> None:
    if world.one_world and world.is_leader and world.generation == 1:
        world.told.set(f"{_HEARD}/{world.sites.sites.index(world.site)}", "1")


def _leader_only(world: World, body: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Runs `body` at the site's leader; when it fails there, the site's other ranks fail with the same words."""
    failure: Exception | None = None
    result = None
    if world.is_leader:
        try:
            result = body()
        except Exception as error:
            failure = error
    if len(world.site.ranks) > 1:
        words = [None if failure is None else str(failure)]
        dist.broadcast_object_list(words, src=world.site.leader, group=site_group(world))
        if failure is None and words[0] is not None:
            raise RuntimeError(words[0])
    if failure is not None:
        raise failure
    return result
