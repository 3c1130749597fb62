"""What a script is told when it waits for the line between sites in every step, or lets one rank read for all."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from ranks import expect_success, run_ranks
from torch_collab import log
from torch_collab.capture import traffic
from torch_collab.model.traffic import WINDOW, CollectiveTraffic
from torch_collab.world import state

CODE = "[capture.collectives-every-step]"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def steps(
    watched: CollectiveTraffic, clock: Clock, count: int, calls: int, seconds: float, of: float = 1.0
) -> list[Any]:
    """So many steps of `of` seconds each; what was told."""
    told = []
    for _ in range(count):
        for _ in range(calls):
            watched.called("all_reduce", seconds)
        clock.now += of
        told.append(watched.stepped())
    return [each for each in told if each is not None]


def test_the_rate_and_seconds_are_reported_and_then_seldom() -> None:
    clock = Clock()
    watched = CollectiveTraffic(clock)
    assert steps(watched, clock, 1 + WINDOW - 1, calls=2, seconds=0.25) == []
    (told,) = steps(watched, clock, 1, calls=2, seconds=0.25)
    assert told.calls == 2 and told.seconds == pytest.approx(0.5) and told.share == pytest.approx(0.5)
    assert told.names == ("all_reduce",)
    assert steps(watched, clock, 1000 + WINDOW - 1, calls=2, seconds=0.25) == []
    assert len(steps(watched, clock, 1, calls=2, seconds=0.25)) == 1
    assert steps(watched, clock, 10_000 + WINDOW - 1, calls=2, seconds=0.25) == []
    assert len(steps(watched, clock, 1, calls=2, seconds=0.25)) == 1


def test_rare_or_free_traffic_is_not_warned_of() -> None:
    clock = Clock()
    watched = CollectiveTraffic(clock)
    for _ in range(50):
        assert steps(watched, clock, 1, calls=9, seconds=0.1) + steps(watched, clock, 1, calls=0, seconds=0) == []
    watched = CollectiveTraffic(clock)
    assert steps(watched, clock, 5 * WINDOW, calls=1, seconds=0.019) == []
    assert len(steps(watched, clock, 2 * WINDOW, calls=1, seconds=0.03)) == 1


def test_collectives_in_every_step_are_reported_once_at_each_of_two_sites() -> None:
    for rank in expect_success(run_ranks("every_step.py", ["paris", "tokyo"])):
        seldom, _, often = rank.output.partition("in every step\n")
        assert CODE not in seldom, "seldom, and in backward's hook, which stays in the site"
        (line,) = [line for line in often.splitlines() if CODE in line]
        found = re.search(r"2 a step \(all_gather_object, all_reduce\), which take (\S+) s a step, (\d+)%", line)
        assert found and 0 < float(found[1]) < 5 and 2 <= int(found[2]) <= 100, line


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(log, "_say", lambda level, message: lines.append(f"{level} {message}"))
    monkeypatch.setattr(log, "_said", set())
    return lines


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[CollectiveTraffic]:
    """What this world has counted of collectives that do nothing."""
    info = SimpleNamespace(
        several_sites=True, ranks_tell_sites_apart=True, size=2, rank=0, site=SimpleNamespace(ranks=[0])
    )
    world: Any = SimpleNamespace(info=info, installed=state.Installed(), traffic=CollectiveTraffic(), is_leader=True)
    monkeypatch.setattr(state, "current", lambda: world)
    for name in REDUCTIONS:
        original = getattr(dist, name)
        monkeypatch.setattr(dist, name, functools.wraps(original)(lambda *args, **kwargs: None))
    traffic.install(world)
    yield world.traffic
    world.installed.close()


REDUCTIONS = {
    "all_reduce": lambda a, b: dist.all_reduce(a),
    "all_reduce_coalesced": lambda a, b: dist.all_reduce_coalesced([a[:3], b[:3]]),
    "reduce": lambda a, b: dist.reduce(tensor=a, dst=0),
    "reduce_scatter": lambda a, b: dist.reduce_scatter(b, [a[:3], a[3:]]),
    "reduce_scatter_tensor": lambda a, b: dist.reduce_scatter_tensor(output=b, input=a),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_counts_once_for_the_line(counted: CollectiveTraffic, name: str) -> None:
    REDUCTIONS[name](torch.ones(6), torch.ones(3))
    assert counted.reduced == 6 and counted.in_backward == 0


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch has another for it since 2.13
def test_a_reduction_that_autograd_knows_counts_both_ways(counted: CollectiveTraffic) -> None:
    reduced = dist_nn.all_reduce(torch.ones(6, requires_grad=True), group=None)
    assert (counted.reduced, counted.in_backward) == (6, 0)
    reduced.sum().backward()
    assert (counted.reduced, counted.in_backward) == (12, 6)


@pytest.mark.parametrize("sites", [1, 2])
def test_a_rank_that_reads_for_all_sites_is_reported(
    monkeypatch: pytest.MonkeyPatch, said: list[str], sites: int
) -> None:
    class DataLoaderDispatcher:
        def __iter__(self) -> Iterator[int]:
            yield from (1, 2)

    accelerate: Any = ModuleType("accelerate.data_loader")
    accelerate.DataLoaderDispatcher = DataLoaderDispatcher
    monkeypatch.setitem(sys.modules, "accelerate.data_loader", accelerate)
    info = SimpleNamespace(several_sites=sites > 1, ranks_tell_sites_apart=True)
    world: Any = SimpleNamespace(info=info, installed=state.Installed(), is_leader=True)
    monkeypatch.setattr(state, "current", lambda: world)
    before = DataLoaderDispatcher.__iter__
    traffic.watch_frameworks(world)
    traffic.watch_frameworks(world)
    assert [list(DataLoaderDispatcher()) for _ in range(3)] == [[1, 2]] * 3
    assert len(said) == (sites > 1) and all("[capture.dispatch-batches]" in line for line in said)
    world.installed.close()
    assert DataLoaderDispatcher.__iter__ is before


def test_the_leader_of_the_site_tells_its_ranks_when_lightning_is_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class SIGTERMException(Exception):
        pass

    class _TrainingEpochLoop:
        trainer = SimpleNamespace(received_sigterm=False)

        def _broadcast_sigterm_tensor(self) -> None:
            raise AssertionError("over the world")

    source: Any = ModuleType("training_epoch_loop")
    source._TrainingEpochLoop, source.SIGTERMException = _TrainingEpochLoop, SIGTERMException
    monkeypatch.setitem(sys.modules, "pytorch_lightning.loops.training_epoch_loop", source)
    info = SimpleNamespace(
        several_sites=True, ranks_tell_sites_apart=True, site=SimpleNamespace(ranks=[2, 3], leader=2)
    )
    groups = SimpleNamespace(site=lambda: "of the site")
    world: Any = SimpleNamespace(info=info, installed=state.Installed(), groups=groups)
    monkeypatch.setattr(state, "current", lambda: world)
    sent: list[Any] = []
    told = 0

    def broadcast(tensor: Any, src: int, group: Any) -> None:
        sent.append((src, group))
        tensor.fill_(told)

    monkeypatch.setattr(traffic.dist, "broadcast", broadcast)
    traffic.watch_frameworks(world)
    _TrainingEpochLoop()._broadcast_sigterm_tensor()
    told = 1
    with pytest.raises(SIGTERMException):
        _TrainingEpochLoop()._broadcast_sigterm_tensor()
    assert sent == [(2, "of the site")] * 2
