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
from torch_collab.swarm import records
from torch_collab.world.coordinator import resolved
from torch_collab.world.groups import gloo_listens_here_only, make_gloo

if TYPE_CHECKING:
    from torch_collab import _C
    from torch_collab.model.entry import Entry
    from torch_collab.world.state import World

_HEARD = "collab/heard"
_HEARING_SECONDS = 30
_LEAVE_SECONDS = 20


def make(world: World, entries: Sequence[Entry], resumed: bool) -> _C.Session:
    """Finds or serves the coordinator and makes this rank's session of the generation. Collective over the site's
    ranks; for the first generation over the world's."""
    info = world.info
    config = resolved(info)
    transport = _leader_only(world, lambda: world.coordinators.reach(config))
    size = len(info.site.ranks)
    site_gloo = None
    if size > 1:
        with gloo_listens_here_only(info.one_host):
            name = f"session/{world.generations.number}/{info.site.leader}"
            site_gloo = make_gloo(info.site_store, name, info.site_rank, size, info.timeout)
    if info.is_leader and world.generations.number == 1:
        records.tell_what_stays(info)
    record_dir, record_scope = records.place(info) if info.is_leader else ("", "")
    trained = [entry for entry in entries if entry.trained]
    return native.make_session(
        config,
        site=info.site.name,
        job=_job(),
        record_dir=record_dir,
        record_scope=record_scope,
        generation=world.generations.number,
        egress_spent=world.generations.egress_spent,
        site_rank=info.site_rank,
        site_size=size,
        one_host=info.one_host,
        coordinators=world.coordinators.addresses,
        model=[_row(entry) for entry in entries],
        # The tensors themselves: detached ones would keep the present storage.
        parameters=[entry.tensor for entry in trained],
        compared_elements=sum(entry.tensor.numel() for entry in trained if not entry.buffer),
        site_group=site_gloo,
        transport=transport,
        resumed=resumed,
        world=world.hub.number,
    )


def _row(entry: Entry) -> tuple[str, str, list[int], str, str]:
    """The fields of a tensor that sites compare."""
    tensor = entry.tensor.detach()
    digest = "" if entry.trained else native.digest(tensor)
    return entry.name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), entry.kind, digest


def _job() -> str:
    """Names torchrun's agent, which restarts this process after a crash: its run and process. Empty without one."""
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
    """Runs round 0. If it fails, the coordinator stays until the other leaders have been told why."""
    try:
        session.begin()
    except Exception:
        _tell_heard(world)
        if world.coordinators.server is not None and world.generations.number == 1:
            keys = [f"{_HEARD}/{index}" for index in range(len(world.info.sites.sites))]
            with contextlib.suppress(Exception):
                world.info.told.wait(keys, timedelta(seconds=min(world.info.config.join_timeout, _HEARING_SECONDS)))
        raise
    _tell_heard(world)
    world.installed.once("SIGTERM", _watch_for_termination)


def _watch_for_termination() -> Callable[[], None] | None:
    # torchrun kills 30 s after its request.
    return _act_at_once if native.watch_for_termination(timedelta(seconds=_LEAVE_SECONDS)) else None


def _act_at_once() -> None:
    if not native.termination_requested():
        native.watch_for_termination(timedelta(0))


def _tell_heard(world: World) -> None:
    if world.info.one_world and world.is_leader and world.generations.number == 1:
        world.info.told.set(f"{_HEARD}/{world.info.site_number}", "1")


def _leader_only(world: World, body: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Runs `body` at the site's leader. If it fails there, the site's other ranks fail with the same message."""
    failure: Exception | None = None
    result = None
    if world.is_leader:
        try:
            result = body()
        except Exception as error:
            failure = error
    if len(world.info.site.ranks) > 1:
        words = [None if failure is None else str(failure)]
        dist.broadcast_object_list(words, src=world.info.site.leader, group=world.groups.site())
        if failure is None and words[0] is not None:
            raise RuntimeError(words[0])
    if failure is not None:
        raise failure
    return result
