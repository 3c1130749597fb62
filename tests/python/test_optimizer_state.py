"""The optimizer's state of a member for a site that joins: what is served, what is taken, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import Coordinator
from ranks import Finished, Ranks, expect_success, start_site
from torch_collab.model import optimizer_copy
from torch_collab.model.optimizer_copy import Fetch, Unsuitable, parts_of
from torch_collab.swarm import optimizer_state


def world_of(*optimizers: torch.optim.Optimizer) -> Any:
    parameters = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    return SimpleNamespace(
        is_leader=True,
        info=SimpleNamespace(site=SimpleNamespace(ranks=[0])),
        training=SimpleNamespace(
            optimizers=list(optimizers),
            number_of=optimizers.index,
            vector=SimpleNamespace(trained=tuple((id(p), p.numel()) for p in parameters)),
            fetch=None,
        ),
    )


def trained(kind: type[torch.optim.Optimizer], steps: int = 3, **options: Any) -> torch.optim.Optimizer:
    torch.manual_seed(3)
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in ((4, 5), (), (7,), (1,))]
    optimizer = kind(parameters, lr=0.01, **options)  # type: ignore[call-arg]
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    return optimizer


def copy_of(optimizer: torch.optim.Optimizer) -> tuple[str, torch.Tensor]:
    world = world_of(optimizer)
    return optimizer_copy.make(world.training.optimizers, world.training.vector.trained)


def load(optimizer: torch.optim.Optimizer, text: str, data: torch.Tensor) -> None:
    fetch = Fetch()
    if why := optimizer_state._take(world_of(optimizer), fetch, optimizer, text, data):
        raise Unsuitable(why)
    assert fetch.left == 0


def expect_alike(taken: dict[str, Any], served: dict[str, Any]) -> None:
    assert taken["state"].keys() == served["state"].keys()
    for number, held in served["state"].items():
        assert taken["state"][number].keys() == held.keys()
        for key, value in held.items():
            other = taken["state"][number][key]
            assert type(other) is type(value), key
            if not isinstance(value, torch.Tensor):
                assert other == value
                continue
            assert other.dtype == value.dtype and other.shape == value.shape and other.stride() == value.stride()
            sent = value.cpu() if key in ("step", "mu_product") else value.cpu().bfloat16().to(value.dtype)
            assert torch.equal(other.cpu(), sent), key


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.AdamW, {"amsgrad": True}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.RMSprop, {"centered": True, "momentum": 0.5}),
        (torch.optim.NAdam, {}),
        (torch.optim.Adagrad, {}),
        (torch.optim.Rprop, {}),
    ],
)
def test_the_state_taken_is_the_one_served(kind: type[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    source, joiner = trained(kind, **options), trained(kind, 0, **options)
    load(joiner, *copy_of(source))
    expect_alike(joiner.state_dict(), source.state_dict())
    for parameter in joiner.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    joiner.step()


def test_muons_momentum_is_served() -> None:
    def muon(steps: int) -> torch.optim.Optimizer:
        optimizer = torch.optim.Muon([torch.nn.Parameter(torch.ones(4, 5))], lr=0.01)
        for _ in range(steps):
            optimizer.param_groups[0]["params"][0].grad = torch.ones(4, 5)
            optimizer.step()
        return optimizer

    source, joiner = muon(3), muon(0)
    load(joiner, *copy_of(source))
    assert list(source.state_dict()["state"][0]) == ["momentum_buffer"]
    expect_alike(joiner.state_dict(), source.state_dict())


def test_values_that_differ_between_parameters_keep_their_places() -> None:
    source = trained(torch.optim.AdamW)
    source.param_groups[0]["params"][2].grad = None
    source.step()
    text, data = copy_of(source)
    assert json.loads(text)["layouts"][0]["scalars"] == [["step", "float32", [4.0, 4.0, 3.0, 4.0]]]
    joiner = trained(torch.optim.AdamW, 0)
    load(joiner, text, data)
    expect_alike(joiner.state_dict(), source.state_dict())


def test_a_parameter_that_never_had_a_gradient_has_no_part() -> None:
    source = trained(torch.optim.AdamW)
    del source.state[source.param_groups[0]["params"][1]]
    text, data = copy_of(source)
    assert json.loads(text)["parameters"] == [[1, 0], [1, -1], [2, 0]]
    assert data.numel() == (20 + 7 + 1) * 2 * 2
    parts = parts_of(text, [20, 1, 7, 1])
    assert [part and (part.number, part.begin) for part in parts] == [(0, 0), None, (1, 80), (2, 108)]


def test_a_source_says_which_state_it_cannot_serve() -> None:
    assert copy_of(trained(torch.optim.SGD))[1].numel() == 0
    with pytest.raises(Unsuitable, match=r"keeps .* as .*, which collab does not serve to other sites"):
        copy_of(trained(torch.optim.Adafactor))
    counting = trained(torch.optim.AdamW)
    counting.param_groups[0]["step"] = 7
    with pytest.raises(Unsuitable, match="counts its steps in its parameter groups"):
        copy_of(counting)


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        (
            torch.optim.SGD,
            {"momentum": 0.9},
            "its optimizer is torch.optim.adamw.AdamW, this site's is torch.optim.sgd",
        ),
        (torch.optim.AdamW, {"amsgrad": True}, "has amsgrad False, this site's has True"),
    ],
)
def test_another_optimizer_is_not_given_the_state(kind: type[torch.optim.Optimizer], options: Any, why: str) -> None:
    text, data = copy_of(trained(torch.optim.AdamW))
    joiner = trained(kind, 0, **options)
    with pytest.raises(Unsuitable, match=why):
        load(joiner, text, data)
    assert not joiner.state


@pytest.mark.parametrize(
    ("held", "fresh"),
    [
        ({}, True),
        ({"momentum_buffer": None}, True),
        ({"momentum_buffer": torch.zeros(3)}, True),  # made with the optimizer
        ({"func_evals": 0, "n_iter": 0, "old_dirs": []}, True),  # LBFGS, before its closure runs
        ({"step": torch.tensor(0.0), "sum": torch.ones(3)}, True),  # Adagrad
        ({"momentum_buffer": torch.tensor([0.0, 1e-9])}, False),
        ({"step": 3, "exp_avg": torch.zeros(3)}, False),
        ({"n_iter": 1}, False),
    ],
)
def test_entries_of_an_optimizer_before_its_first_step_are_no_state(held: dict[str, Any], fresh: bool) -> None:
    assert optimizer_copy.is_fresh(held) is fresh


def test_optimizers_may_differ_in_their_rates() -> None:
    source = trained(torch.optim.AdamW, weight_decay=0.0)
    joiner = trained(torch.optim.AdamW, 0, weight_decay=0.1, foreach=False)
    joiner.param_groups[0]["lr"] = 0.0
    load(joiner, *copy_of(source))


def fetched_for_two() -> tuple[Any, torch.optim.Optimizer, torch.optim.Optimizer]:
    """A site that has fetched for both of its optimizers, of which the first has stepped."""
    first, second = (trained(torch.optim.Adam, 0) for _ in range(2))
    world = world_of(first, second)
    members = [trained(torch.optim.Adam), trained(torch.optim.Adam)]
    served = world_of(*members)
    text, data = optimizer_copy.make(served.training.optimizers, served.training.vector.trained)
    elements = [n for _, n in world.training.vector.trained]
    world.training.fetch = Fetch(data, parts_of(text, elements), len(elements))
    world.training.fetch.comes(0)
    optimizer_state._load(world, world.training.fetch, first)
    return world, first, second


def test_an_optimizer_may_step_several_times_before_another_takes_its_state() -> None:
    world, first, second = fetched_for_two()
    for _ in range(5):  # as the critic of a GAN
        optimizer_state.before_step(world, first)
    optimizer_state.before_step(world, second)
    assert second.state
    assert world.training.fetch.over and world.training.fetch.data is None


def test_fetched_state_is_not_kept_for_an_optimizer_that_never_steps() -> None:
    world, first, _ = fetched_for_two()
    for _ in range(optimizer_state._MOST_BETWEEN):
        optimizer_state.before_step(world, first)
    assert world.training.fetch.over and world.training.fetch.data is None


def test_non_finite_state_is_not_taken() -> None:
    text, data = copy_of(trained(torch.optim.AdamW))
    data.view(torch.bfloat16)[3] = float("nan")
    joiner = trained(torch.optim.AdamW, 0)
    world = world_of(joiner)
    with pytest.raises(Unsuitable, match="exp_avg is not finite"):
        optimizer_state._check_finite(world, joiner, data, optimizer_state._parts(world, text))
    fetch = Fetch(data, optimizer_state._parts(world, text), 4)
    with pytest.raises(Unsuitable, match="exp_avg is not finite"):
        optimizer_state._load(world, fetch, joiner)
    assert not joiner.state


class Wire:
    """What a site's leader sends its other ranks, one after the other."""

    def __init__(self) -> None:
        self.sent: list[torch.Tensor] = []

    def rank(self, number: int, *optimizers: torch.optim.Optimizer) -> Any:
        world = world_of(*optimizers)
        world.is_leader = number == 0
        world.info.site.ranks = [0, 1]
        take = self.sent.append if number == 0 else lambda into: into.copy_(self.sent.pop(0))
        world.training.session = SimpleNamespace(broadcast=lambda values: take(values))
        return world


@pytest.mark.parametrize("second", [False, True])
def test_other_ranks_hold_one_plane_at_a_time(second: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_state, "_agreed", lambda _, why: why)
    served = [trained(torch.optim.AdamW) for _ in range(1 + second)]
    member = world_of(*served)
    text, data = optimizer_copy.make(served, member.training.vector.trained)
    wire = Wire()
    ranks = [[trained(torch.optim.AdamW, 0) for _ in served] for _ in range(2)]
    made: list[int] = []
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda size, **how: (made.append(size), empty(size, **how))[1])
    for number, optimizers in enumerate(ranks):
        made.clear()
        world, fetch = wire.rank(number, *optimizers), Fetch()
        assert optimizer_state._take(world, fetch, optimizers[0], text, data if number == 0 else None) == ""
        assert fetch.left == 4 * second
        if second:
            optimizer_state._load(world, fetch, optimizers[1])
            assert fetch.left == 0
        for optimizer, source in zip(optimizers, served, strict=True):
            expect_alike(optimizer.state_dict(), source.state_dict())
    assert not wire.sent
    later = data.numel() // 2 * second
    assert made == [later, *(2 * n for n in (20, 1, 7, 1) for _ in range(2))], "of the other rank"


def test_a_rank_that_fails_takes_part_to_the_end_and_no_rank_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(optimizer_state, "_agreed", lambda _, why: (told.append(why), why)[1])
    text, data = copy_of(trained(torch.optim.AdamW))
    wire = Wire()
    leader, other = trained(torch.optim.AdamW, 0), trained(torch.optim.AdamW, 0)
    assert optimizer_state._take(wire.rank(0, leader), Fetch(), leader, text, data) == ""
    values = optimizer_state._values

    def full(parameter: torch.Tensor, *more: Any) -> torch.Tensor:
        if parameter.numel() == 7:
            raise RuntimeError("out of memory")
        return values(parameter, *more)

    monkeypatch.setattr(optimizer_state, "_values", full)
    fetch = Fetch()
    assert "out of memory" in optimizer_state._take(wire.rank(1, other), fetch, other, text, None)
    assert not wire.sent, "it has taken part in all pieces"
    assert not other.state and fetch.data is None
    assert "out of memory" in told[-1]


def test_no_rank_of_a_site_does_what_one_rank_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_state, "_agreed", lambda _, why: why or "rank 1: it has no room")
    text, data = copy_of(trained(torch.optim.AdamW))
    leader = trained(torch.optim.AdamW, 0)
    assert optimizer_state._take(Wire().rank(0, leader), Fetch(), leader, text, data) == "rank 1: it has no room"
    assert not leader.state


def changed(**change: Any) -> str:
    layout = {
        "class": "A",
        "settings": {},
        "planes": [["m", "float32", "bfloat16"]],
        "scalars": [["step", "float32", [1.0]]],
    }
    layout |= {key: value for key, value in change.items() if key in layout}
    whole = {"version": 1, "layouts": [layout], "parameters": [[2, 0]]}
    return json.dumps(whole | {key: value for key, value in change.items() if key in whole})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        changed(version=2),
        changed(parameters=[[1, 0]]),
        changed(parameters=[[3, 0], [-1, 0]]),
        changed(parameters=[[2, 1]]),
        changed(parameters=[[2, -2]]),
        changed(parameters=[[2]]),
        changed(layouts=[7]),
        changed(planes=[["m", "float32", "float32"]]),
        changed(planes=[["m", "int64", "bfloat16"]]),
        changed(planes=[["m", "float32", "bfloat16"]] * 9),
        changed(planes=[["m", "complex64", "bfloat16"]]),
        changed(scalars=[["step", "float32", [1.0, 2.0, 3.0]]]),
        changed(scalars=[["step", "float32", []]]),
        changed(scalars=[["step", "float32", [float("nan")]]]),
        changed(scalars=[["step", "float32", [1e300]]]),
        changed(scalars=[["step", "float32", ["1"]]]),
        changed(scalars=[["step", "str", [1.0]]]),
        changed(settings=5),
    ],
)
def test_a_description_is_not_trusted(text: str) -> None:
    assert len(parts_of(changed(), [3, 4])) == 2
    with pytest.raises(Unsuitable):
        parts_of(text, [3, 4])


# ---- real sites ------------------------------------------------------------------------------------


class Joined:
    """Two sites that trained, and what became of the one that came later."""

    def __init__(self, folder: Path, members: str, late: str, before: str, ranks: int, **environment: str) -> None:
        self.folder = folder
        worlds: list[Ranks] = []
        with Coordinator("--sites", "2") as coordinator:

            def start(site: str, index: int, kind: str, ranks: int, **more: str) -> Ranks:
                arguments = [str(folder), site, kind, before]
                script, events = "optimizer_state.py", folder / "events.jsonl"
                return start_site(script, arguments, site, index, coordinator.address, events, ranks, **more)

            try:
                worlds += [start("paris", 0, members, 1), start("oslo", 1, members, 1)]
                for world in worlds:
                    world.wait_for_line(0, "round 2:")
                worlds.append(start("late", 2, late, ranks, **environment))
                self.late: list[Finished] = expect_success(worlds[2].join())  # the others train until it has
                for world in worlds:
                    expect_success(world.join())
            finally:
                for world in worlds:
                    world.kill()
        told = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        self.told = [event for event in told if event["event"] == "join-optimizer"]

    @property
    def served(self) -> list[dict[str, Any]]:
        served: list[dict[str, Any]] = torch.load(self.folder / "served.pt")
        return served

    def taken(self, rank: int = 0) -> list[dict[str, Any]]:
        taken: list[dict[str, Any]] = torch.load(self.folder / f"taken-{rank}.pt")
        return taken


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "ranks", "default"), [("adamw", 2, ""), ("sgd", 2, "meta"), ("two", 2, "")])
def test_a_joiner_goes_on_from_a_members_optimizer_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, ranks: int, default: str
) -> None:
    if default:
        monkeypatch.setenv("TEST_DEFAULT", default)
    joined = Joined(tmp_path, kind, kind, "fresh", ranks)
    for rank in range(ranks):
        for taken, served in zip(joined.taken(rank), joined.served, strict=True):
            assert served["state"]
            expect_alike(taken, served)
    assert len(joined.told) == 1
    told = joined.told[0]
    assert told["site"] == "late" and told["source"] in ("paris", "oslo") and told["seconds"] < 30
    elements = {"adamw": 3 * 401, "sgd": 401, "two": 2 * 76 + 325}[kind]
    assert told["bytes"] == 2 * elements
    assert "goes on from the state fetched from" in joined.late[0].output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("members", "late", "environment", "why"),
    [
        ("adamw", "sgd", {}, "its optimizer is torch.optim.adamw.AdamW, this site's is torch.optim.sgd.SGD"),
        ("plain", "sgd", {}, "its optimizer keeps no state"),
        ("adamw", "adamw", {"COLLAB_JOIN_OPTIMIZER": "0"}, ""),
    ],
)
def test_a_joiner_that_gets_no_state_starts_cold_and_says_why(
    tmp_path: Path, members: str, late: str, environment: dict[str, str], why: str
) -> None:
    joined = Joined(tmp_path, members, late, "fresh", 1, **environment)
    assert not joined.taken()[0]["state"]
    if why:
        assert [event["site"] for event in joined.told] == ["late"] and "source" not in joined.told[0]
        assert "starts cold" in joined.told[0]["reason"] and why in joined.told[0]["reason"]
        assert joined.told[0]["reason"] in joined.late[0].output
    else:
        assert not joined.told and not (tmp_path / "served.pt").exists()


@pytest.mark.slow
def test_a_script_that_has_restored_its_optimizer_keeps_it(tmp_path: Path) -> None:
    joined = Joined(tmp_path, "adamw", "adamw", "restored", 1)
    assert {float(held["step"]) for held in joined.taken()[0]["state"].values()} == {1.0}
    assert not joined.told
