"""Whose model a swarm begins with: who loaded a checkpoint, whom COLLAB_INIT_FROM names, who is told what it lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import Coordinator
from ranks import Finished, Ranks, expect_success
from torch import nn
from torch_collab.capture import resumed
from torch_collab.model.entry import Entry
from torch_collab.model.modules import Loads
from torch_collab.world import state

# ---- what can be seen of a load ----------------------------------------------------------------------


class Worldlike(SimpleNamespace):
    """As much of a World as `resumed` looks at."""

    def __init__(self) -> None:
        super().__init__(loads=Loads(), is_leader=True, training=SimpleNamespace(vector=None))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    here = Worldlike()
    monkeypatch.setattr(state, "_world", here)
    monkeypatch.setattr(state, "_pid", os.getpid())
    monkeypatch.setattr(nn.Module, "load_state_dict", resumed.watch_loads(nn.Module.load_state_dict))
    yield here


class Picky(nn.Linear):
    """Equal by value, so without a hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Picky)

    __hash__ = None  # type: ignore[assignment]


def parts() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def entries_of(model: nn.Module) -> list[Entry]:
    parameters = [Entry(name, p, p.requires_grad) for name, p in model.named_parameters()]
    return parameters + [Entry(name, b, True, True) for name, b in model.named_buffers() if b.is_floating_point()]


def load(module: nn.Module, **ways: Any) -> None:
    module.load_state_dict({name: value + 1 for name, value in module.state_dict().items()}, **ways)


def nothing(model: nn.Sequential) -> None:
    pass


def another(model: nn.Sequential) -> None:
    load(parts())


def whole(model: nn.Sequential) -> None:
    load(model)


def assigned(model: nn.Sequential) -> None:
    load(model, assign=True)


def part(model: nn.Sequential) -> None:
    load(model[2])


def batch_statistics(model: nn.Sequential) -> None:
    for parameter in model[1].parameters():
        parameter.requires_grad_(False)
    load(model[1])


def parent(model: nn.Sequential) -> None:
    load(nn.ModuleDict({"student": model, "teacher": parts()}))


def frozen_part(model: nn.Sequential) -> None:
    model[0].requires_grad_(False)
    load(model[0])


def failing(model: nn.Sequential) -> None:
    with pytest.raises(RuntimeError, match="size mismatch"):
        model.load_state_dict({name: torch.zeros(7) for name in model.state_dict()})


@pytest.mark.parametrize(
    ("how", "counts"),
    [
        (nothing, False),
        (another, False),
        (whole, True),
        (assigned, True),
        (part, True),
        (batch_statistics, True),
        (parent, True),
        (frozen_part, False),
        (failing, False),
    ],
)
def test_a_load_of_trained_values_is_noticed(world: Any, how: Callable[[nn.Sequential], None], counts: bool) -> None:
    model = parts()
    how(model)
    assert resumed.seen(world, entries_of(model)) == counts
    assert not world.loads.take(), "nothing is kept beyond the first forward"


def test_loads_are_noticed_for_unhashable_modules_and_forgotten_after_the_check(world: Any) -> None:
    model = Picky(2, 2)
    entries = [Entry("weight", model.weight, True)]
    load(model)
    load(parts())
    assert resumed.seen(world, entries)
    load(parts())
    assert not resumed.seen(world, entries)


def test_loads_of_a_forked_child_are_not_noted(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = parts()
    monkeypatch.setattr(state, "_pid", os.getpid() + 1)
    load(model)
    assert not world.loads.take()
    monkeypatch.setattr(state, "_pid", os.getpid())
    load(model)
    assert world.loads.take()


def stepped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return optimizer


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "Adagrad", "RMSprop"])
def test_an_optimizer_that_has_state_is_seen(world: Any, kind: str) -> None:
    ways = {"lr": 0.1, **({"momentum": 0.9} if kind == "SGD" else {})}
    make = getattr(torch.optim, kind)
    model, other = parts(), parts()
    fresh, elsewhere = make(model.parameters(), **ways), stepped(make(other.parameters(), **ways))
    assert not resumed.seen(world, entries_of(model)), "a fresh one, and one of another model"
    fresh.load_state_dict(elsewhere.state_dict())
    assert resumed.seen(world, entries_of(model))


def test_compilers_see_the_call_they_saw_before(world: Any) -> None:
    model = parts().eval()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    x = torch.randn(4, 2)
    before = compiled(x)
    load(compiled)
    assert not torch.equal(compiled(x), before)
    assert resumed.seen(world, entries_of(model))
    traced = torch.fx.symbolic_trace(model)
    load(traced)
    assert torch.equal(traced(x), model(x))

    def reloads(y: torch.Tensor) -> torch.Tensor:
        model.load_state_dict(held)
        return torch.as_tensor(model(y))

    held = {name: value.clone() for name, value in model.state_dict().items()}
    assert torch.equal(torch.compile(reloads, backend="eager")(x), model(x))


# ---- real processes ----------------------------------------------------------------------------------


def site(name: str, seed: int, loads: str = "", **more: str) -> dict[str, str]:
    return {"COLLAB_SITE": name, "FIRST_SEED": str(seed), "FIRST_LOADS": loads, "COLLAB_SYNC_EVERY": "4", **more}


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def saved(folder: Path, *names: str) -> list[dict[str, list[torch.Tensor]]]:
    found = [torch.load(folder / f"{name}.pt") for name in names]
    assert all(same(one["began"], found[0]["began"]) for one in found), "round 0 gives all one model"
    return found


class Worlds:
    """Sites that are worlds of their own, of one rank each."""

    def __init__(self, folder: Path, coordinator: str, steps: int) -> None:
        self.folder, self.coordinator, self.steps = folder, coordinator, steps
        self.ranks: dict[str, Ranks] = {}

    def start(self, environment: dict[str, str]) -> Ranks:
        environment = {"COLLAB_COORDINATOR": self.coordinator, **environment}
        ranks = Ranks("first.py", [str(self.folder), str(self.steps)], [environment])
        self.ranks[environment["COLLAB_SITE"]] = ranks
        return ranks

    def join(self) -> dict[str, Finished]:
        return {name: expect_success(ranks.join())[0] for name, ranks in self.ranks.items()}

    def __enter__(self) -> Worlds:
        return self

    def __exit__(self, *_: object) -> None:
        for ranks in self.ranks.values():
            ranks.kill()


@pytest.mark.slow
@pytest.mark.parametrize("loads", ["model", "optimizer"])
def test_a_site_that_resumed_goes_before_one_that_joined_first(tmp_path: Path, loads: str) -> None:
    with Coordinator() as coordinator, Worlds(tmp_path, coordinator.address, 10) as worlds:
        paris = worlds.start(site("paris", 1, COLLAB_MIN_SITES="2"))
        paris.wait_for_line(0, "waiting for the swarm to begin")
        worlds.start(site("tokyo", 2, loads, COLLAB_MIN_SITES="2"))
        finished = worlds.join()
    paris_had, tokyo_had = saved(tmp_path, "paris-0", "tokyo-0")
    assert not same(paris_had["brought"], tokyo_had["brought"])
    assert same(paris_had["began"], tokyo_had["brought"])
    assert all("state-not-used" not in one.output for one in finished.values())


@pytest.mark.slow
def test_init_from_goes_before_a_site_that_resumed(tmp_path: Path) -> None:
    events = tmp_path / "coordinator.jsonl"
    with (
        Coordinator(COLLAB_EVENTS_FILE=str(events)) as coordinator,
        Worlds(tmp_path, coordinator.address, 10) as worlds,
    ):
        paris = worlds.start(site("paris", 1, "model", COLLAB_INIT_FROM="tokyo"))
        paris.wait_for_line(0, "waiting for tokyo (COLLAB_INIT_FROM, from paris)")
        worlds.start(site("tokyo", 2))
        finished = worlds.join()
    paris_had, tokyo_had = saved(tmp_path, "paris-0", "tokyo-0")
    assert same(paris_had["began"], tokyo_had["brought"]) and not same(paris_had["brought"], tokyo_had["brought"])
    told = "tokyo, named by COLLAB_INIT_FROM, has the parameters of round 0. To begin from the model of paris, start"
    assert told in finished["paris"].output and told not in finished["tokyo"].output
    entries = [json.loads(line) for line in events.read_text().splitlines()]
    assert [entry["who"] for entry in entries if entry["event"] == "state-not-used"] == ["paris"]
    why = "named by COLLAB_INIT_FROM, because the sites' parameters differ"
    assert any(why in entry.get("reason", "") for entry in entries)


@pytest.mark.slow
def test_a_site_that_resumed_and_comes_late_is_told_the_remedy(tmp_path: Path) -> None:
    with Coordinator() as coordinator, Worlds(tmp_path, coordinator.address, 0) as worlds:
        paris = worlds.start(site("paris", 1))
        paris.wait_for_line(0, "training starts")
        worlds.start(site("tokyo", 2, "model", FIRST_ENDS="1"))
        finished = worlds.join()
    (tokyo_had,) = saved(tmp_path, "tokyo-0")
    assert not same(tokyo_had["began"], tokyo_had["brought"])
    output = finished["tokyo"].output
    why = "the swarm already had an anchor"
    assert f"the swarm does not start from the state that tokyo had loaded: {why}" in output
    assert "[join.state-not-used]" in output
    assert "start all sites with COLLAB_INIT_FROM=tokyo; or let the first agreement wait" in output
    assert "COLLAB_MIN_SITES=N" in output
    assert "had loaded" not in finished["paris"].output


@pytest.mark.slow
def test_in_one_world_the_site_that_loaded_a_checkpoint_gives_the_model(tmp_path: Path) -> None:
    environments = [site("a", 1), site("a", 1), site("b", 2, "model")]
    with Ranks("first.py", [str(tmp_path), "10"], environments) as ranks:
        first, *_ = expect_success(ranks.join())
    a, _, b = saved(tmp_path, "a-0", "a-1", "b-2")
    assert same(a["began"], b["brought"]) and not same(a["brought"], b["brought"])
    why = "the lowest of the sites that had loaded a state, because the sites' parameters differ"
    assert f"is taken from b, {why}" in first.output


@pytest.mark.slow
def test_an_unknown_init_from_in_one_world_is_refused_at_once(tmp_path: Path) -> None:
    environments = [site(name, 1, COLLAB_INIT_FROM="rome") for name in ("a", "b")]
    with Ranks("first.py", [str(tmp_path), "10"], environments) as ranks:
        finished = ranks.join()
    for one in finished:
        assert one.status != 0
        assert "COLLAB_INIT_FROM: expected a site of this world (a, b), got 'rome'" in one.output
