"""What rounds must not average, and what undoes them: the parameters' place holds other values than training left."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ranks import Finished, expect_success, listing, run_ranks
from torch import nn
from torch_collab.model.undone import UndoneRounds, copy_kept_by
from torch_collab.model.values import Values

EVERY_FIVE = {"COLLAB_SYNC_EVERY": "5"}
ONE_SITE, TWO_SITES, PAIRS = ["a", "a"], ["a", "b"], ["a", "a", "b", "b"]


def parameters() -> list[torch.Tensor]:
    torch.manual_seed(0)
    layers = nn.Linear(8, 16), nn.Linear(16, 4), nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    return [parameter for layer in layers for parameter in layer.parameters()]


# ---- the sample itself


def test_values_unchanged_since_the_step_do_not_count_as_replaced() -> None:
    held, values = parameters(), Values()
    assert not values.replaced(0), "no step was counted"
    held[0].data.fill_(float("nan"))
    values.note(held, 1)
    assert not values.replaced(1)


@pytest.mark.parametrize("put", ["copied", "another storage", "another device"])
def test_values_that_were_put_there_are_seen_until_they_go(put: str) -> None:
    held, values = parameters(), Values()
    kept = [parameter.detach().clone() for parameter in held]
    values.note(held, 1)
    for parameter in held:
        if put == "copied":
            parameter.data.mul_(0.999)
        else:
            parameter.data = torch.zeros_like(parameter) if put == "another storage" else parameter.data.half()
    assert values.replaced(1)
    assert not values.replaced(2), "an optimizer has stepped since: those are its values"
    for parameter, old in zip(held, kept, strict=True):
        parameter.data = old
    assert not values.replaced(1)


def test_a_load_into_any_of_many_tensors_is_noticed() -> None:
    held, values = [torch.zeros(8) for _ in range(300)], Values()
    for changed in held:
        values.note(held, 1)
        values.before_load(1)
        assert not values.replaced(1)
        changed.fill_(1)
        assert values.replaced(1)


def test_a_script_that_edits_after_each_step_is_known_by_it() -> None:
    held, values = parameters(), Values()
    for step in range(8):
        values.note(held, step)
        held[0].data.mul_(0.9)
        values.before_forward()
    values.note(held, 8)
    held[0].data.mul_(0.9)
    assert not values.replaced(8)
    values.before_load(8)
    held[0].data.zero_()
    assert values.replaced(8), "what it loads is seen all the same"


# ---- rounds that are undone


def undone(back: float, step: float, steps: int = 10, correlated: bool = False, rounds: int = 6, seed: int = 0) -> bool:
    """A step after each round of so many steps moves `step` times what the round changed, and takes a part `back`."""
    generator = torch.Generator().manual_seed(seed)
    watch, told = UndoneRounds(), False
    for _ in range(rounds):
        before, after = torch.randn(2, 64, generator=generator)
        drawn = torch.randn(64, generator=generator)
        moved = (before - after) * drawn.abs() if correlated else drawn
        watch.round(before, after, steps)
        told = watch.step(after + back * (before - after) + step * moved) or told
    return told


@given(st.sampled_from([0.0, 0.01, 0.3, 1.0, 3.0, 100.0]), st.integers(0, 500))
def test_no_step_of_whatever_size_passes_for_an_undone_round(step: float, seed: int) -> None:
    assert not undone(0.0, step, seed=seed)
    assert not undone(0.2, step, seed=seed), "momentum of five steps"


def test_a_step_whose_directions_all_agree_with_the_round_does_not_either() -> None:
    for step in (0.1, 0.3, 3.0, 30.0):
        assert not undone(0.0, step, correlated=True)


def test_master_copies_are_reported_only_after_two_rounds() -> None:
    assert undone(1.0, 0.1) and undone(1.0, 0.4)
    assert not undone(1.0, 0.1, rounds=1)
    assert not undone(1.0, 0.1, steps=4), "a step of momentum does as much after so few"


def test_only_copies_of_parameters_are_named_among_states() -> None:
    kinds = [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.ASGD]
    for kind in kinds:
        held = parameters()
        optimizer = kind(held, lr=0.01)
        for _ in range(20):
            sum((parameter**2).sum() for parameter in held).backward()
            optimizer.step()
        assert copy_kept_by(optimizer) == "", kind
        for parameter in held:
            optimizer.state[parameter]["z"] = parameter.detach() * 1.1
        assert copy_kept_by(optimizer) == "z", kind


class Sam(torch.optim.SGD):
    """As it is written often: the copy is made in the first of its two steps."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["old_p"] = parameter.data.clone()
        super().step()


class Lookahead(torch.optim.SGD):
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step()
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter].setdefault("slow", parameter.data.clone())


@pytest.mark.parametrize(("kind", "told"), [(Sam, None), (Lookahead, ("Lookahead", "slow"))])
def test_a_copy_that_is_written_anew_in_each_step_is_not_named(
    kind: type[torch.optim.SGD], told: tuple[str, str] | None
) -> None:
    held, watch = parameters(), UndoneRounds()
    optimizer = kind(held, lr=0.01, momentum=0.9)
    seen = []
    for _ in range(4):
        for _ in range(3):
            sum((parameter**2).sum() for parameter in held).backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step(None)
        for parameter in held:
            parameter.data.mul_(0.8)  # the round
        seen.append(watch.keeper([optimizer]))
    assert seen == [None, told, None, None]


def test_schedule_free_is_known_by_what_it_has() -> None:
    held = parameters()
    optimizer = torch.optim.SGD(held, lr=0.01)
    optimizer.state[held[0]]["z"] = held[0].detach() * 10
    assert copy_kept_by(optimizer) == "", "far away, it may be anything"
    optimizer.train = optimizer.eval = lambda: None  # type: ignore[attr-defined]
    assert copy_kept_by(optimizer) == "z"


# ---- whole scripts


def run(sites: list[str], *case: str, **environment: str) -> list[Finished]:
    finished = expect_success(run_ranks("values.py", sites, *case, environment={**EVERY_FIVE, **environment}))
    assert all("done" in rank.output for rank in finished), listing(finished)
    return finished


def told(finished: list[Finished], what: str) -> int:
    return sum(rank.output.count(what) for rank in finished)


def number(rank: Finished, name: str) -> float:
    return float(next(line for line in rank.output.splitlines() if line.startswith(name)).split()[1])


LOADED = ["load_best", "load_best_of_a_part", "copy_to"]
# Sites meet every case and both overlaps, and cases both overlaps; not all combinations of the three.
LOADS = [
    pytest.param(sites, case, str((place + number) % 2), id=f"{'-'.join(sites)}-{case}-{(place + number) % 2}")
    for place, sites in enumerate((ONE_SITE, TWO_SITES, PAIRS))
    for number, case in enumerate(LOADED)
]


@pytest.mark.slow
@pytest.mark.parametrize(("sites", "case", "overlap"), LOADS)
def test_a_state_that_is_loaded_at_the_end_is_in_no_round(sites: list[str], case: str, overlap: str) -> None:
    finished = run(sites, case, COLLAB_OVERLAP=overlap)
    largest = [number(rank, "largest") for rank in finished]
    assert largest[0] == 100 and all(each < 3 for each in largest[1:]), listing(finished)
    assert told(finished, "[round.values-replaced]") == 1


@pytest.mark.slow
def test_a_trained_state_that_is_back_by_the_end_is_averaged() -> None:
    finished = run(TWO_SITES, "load_and_restore")
    assert number(finished[0], "sum") == number(finished[1], "sum"), listing(finished)
    assert told(finished, "[round.values-replaced]") == 0


@pytest.mark.slow
@pytest.mark.parametrize("sites", [TWO_SITES, PAIRS], ids="-".join)
def test_an_average_that_stands_there_in_a_barrier_is_in_no_round(sites: list[str]) -> None:
    finished = run(sites, "ema_swap")
    assert len({number(rank, "sum") for rank in finished}) == 1, listing(finished)
    assert told(finished, "[round.values-swapped]") == 2, "each site's leader tells it once"


@pytest.mark.slow
def test_a_script_that_clips_its_weights_has_its_rounds_in_barriers() -> None:
    assert told(run(TWO_SITES, "clipped"), "[round.values-swapped]") == 0


@pytest.mark.slow
@pytest.mark.parametrize("overlap", ["0", "1"])
@pytest.mark.parametrize("optimizer", ["masters", "slow"])
def test_an_optimizer_that_undoes_rounds_is_reported(optimizer: str, overlap: str) -> None:
    finished = run(TWO_SITES, "optimize", optimizer, COLLAB_OVERLAP=overlap, COLLAB_SYNC_EVERY="20")
    assert told(finished, "[round.undone]") == 2, listing(finished)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "overlap"),
    [("sgd", "0"), ("sgd", "1"), ("adamw", "0"), ("adamw", "1"), ("asgd", "0"), ("rmsprop", "1")],
)
def test_an_optimizer_of_torch_is_not_reported_as_undoing_rounds(optimizer: str, overlap: str) -> None:
    finished = run(TWO_SITES, "optimize", optimizer, COLLAB_OVERLAP=overlap, COLLAB_SYNC_EVERY="20")
    assert told(finished, "[round.undone]") == 0, listing(finished)


@pytest.mark.slow
@pytest.mark.parametrize("sites", [TWO_SITES, PAIRS], ids="-".join)
def test_parameters_ddp_ignores_stay_each_ranks_own(sites: list[str]) -> None:
    finished = run(sites, "ignored")
    assert told(finished, "expert.weight, expert.bias, expert.scale: each rank keeps its own") == len(sites)


@pytest.mark.slow
@pytest.mark.parametrize("sites", [TWO_SITES, PAIRS], ids="-".join)
def test_frozen_parameters_drawn_at_random_become_those_of_rank_0(sites: list[str]) -> None:
    finished = run(sites, "frozen")
    assert told(finished, "[capture.frozen-differ]") == 2, "each site's leader tells it"
