"""Sites that are worlds of their own draw other samples each, unless COLLAB_RESEED says no."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler
from torch_collab import log
from torch_collab.capture import hooks, sampler
from torch_collab.world import state


def a_sampler(
    monkeypatch: pytest.MonkeyPatch,
    reseed: bool,
    told: tuple[int, int] | None = None,
    is_leader: bool = False,
    **shards: int,
) -> Any:
    store = object()
    config = SimpleNamespace(**{"reseed": reseed, "site_index": None, "num_shards": 1, **shards})
    info = SimpleNamespace(
        config=config, store=store, site_store=store, ranks_tell_sites_apart=False, several_sites=False, size=1, rank=0,
        is_leader=is_leader, site=SimpleNamespace(name="tokyo"),
    )  # fmt: skip
    world: Any = SimpleNamespace(info=info, installed=state.Installed())
    monkeypatch.setattr(state, "current", lambda: world)
    monkeypatch.setattr(dist, "get_world_size", lambda: 1)
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    hooks.install(world)
    try:
        return DistributedSampler(list(range(4)), *(told or ()), shuffle=False)
    finally:
        world.installed.close()


def test_a_site_that_came_late_is_not_told_of_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "COLLAB_NUM_SHARDS" in sampler.own_seeds()
    monkeypatch.setenv("COLLAB_START", "lone")
    assert "COLLAB_NUM_SHARDS" not in sampler.own_seeds()


def test_the_sites_number_is_in_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert a_sampler(monkeypatch, reseed=True).seed != 0


def test_the_seed_is_left_alone_if_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert a_sampler(monkeypatch, reseed=False).seed == 0


def test_a_site_with_an_index_takes_its_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = a_sampler(monkeypatch, reseed=True, site_index=1, num_shards=2)
    assert shard.seed == 0 and list(shard) == [1, 3]
    with pytest.raises(ValueError, match="COLLAB_SITE_INDEX=2 is not a shard of COLLAB_NUM_SHARDS=2"):
        a_sampler(monkeypatch, reseed=True, site_index=2, num_shards=2)


@pytest.mark.parametrize(("start", "code"), [("", "capture.sampler-same"), ("lone", "capture.sampler-late")])
def test_a_sampler_over_the_sites_own_ranks_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, start: str, code: str
) -> None:
    said: list[str] = []
    monkeypatch.setattr(log, "_say", lambda level, message: said.append(message))
    monkeypatch.setattr(log, "_said", set())
    monkeypatch.setenv("COLLAB_START", start)  # what torchrun's agent says of a site that came late
    a_sampler(monkeypatch, reseed=True, told=(1, 0), is_leader=True)
    assert len(said) == 1 and said[0].endswith(f"[{code}]")
    a_sampler(monkeypatch, reseed=True, told=(4, 3), is_leader=True)  # it has counted the sites
    assert len(said) == 1
