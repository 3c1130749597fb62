"""Tensors that are several objects in one memory: taken once, refused where they share a part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import expect_success, run_ranks
from torch import nn
from torch_collab.model import optimizer_copy, vector
from torch_collab.model.entry import Entry
from torch_collab.model.vector import Vector


class Wrapped(nn.Module):
    """As much of DistributedDataParallel as a vector looks at."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def collected(model: nn.Module) -> list[Entry]:
    ddps: list[Any] = [Wrapped(model)]
    return vector.collect(ddps, {}, True)


def names(model: nn.Module) -> dict[str, list[str]]:
    """Of the entries, and of what is tied to each by its memory."""
    return {entry.name: [other.name for other in entry.tied] for entry in collected(model)}


class Pair(nn.Module):
    def __init__(self, one: torch.Tensor, other: torch.Tensor) -> None:
        super().__init__()
        self.one, self.other = nn.Parameter(one), nn.Parameter(other)


def tied_pair(*shape: int) -> Pair:
    pair = Pair(torch.ones(shape), torch.ones(shape))
    pair.other.data = pair.one.data
    return pair


def vector_of(model: nn.Module, ranks: int = 1) -> tuple[Vector, Wrapped]:
    ddp: Any = Wrapped(model)
    return Vector([ddp], collected(model), ranks), ddp


@pytest.mark.parametrize("shape", [(3, 4), (3, 1), (1,), ()])
def test_two_parameters_in_one_memory_are_taken_once(shape: tuple[int, ...]) -> None:
    pair = tied_pair(*shape)
    held, _ = vector_of(pair)
    assert names(pair) == {"one": ["other"]}
    assert [each is pair.one for each in held.parameters] == [True]
    # Their optimizers know both, and keep a state for each.
    assert held.trained == tuple((id(each), each.numel()) for each in (pair.one, pair.other))
    assert held.ids == {id(pair.one), id(pair.other)}


def test_the_stride_of_a_dimension_of_one_does_not_matter_for_tied_memory() -> None:
    whole = torch.ones(1, 4)
    assert names(Pair(whole, whole.as_strided((1, 4), (77, 1)))) == {"one": ["other"]}


def test_a_trained_tensor_carries_a_frozen_one_in_its_memory() -> None:
    pair = tied_pair(2, 2)
    pair.one.requires_grad_(False)
    (entry,) = collected(pair)
    assert entry.name == "other" and entry.kind == "averaged" and [each.name for each in entry.tied] == ["one"]
    assert [id(each) for each in entry.parameters] == [id(pair.other)]
    pair.other.requires_grad_(False)
    assert names(pair) == {"one": [], "other": []}, "compared at join, both"


def test_a_buffer_in_the_memory_of_a_parameter_is_taken_with_it() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("shadow", model.weight.detach())
    model.register_buffer("passing", model.weight.detach(), persistent=False)
    assert names(model) == {"weight": ["shadow"], "bias": [], "passing": []}


def test_buffers_may_share_what_they_like() -> None:
    model, table = nn.Linear(2, 2), torch.ones(8)
    for name, part in (("whole", table), ("again", table.view(8)), ("part", table[2:5])):
        model.register_buffer(name, part)
    assert list(names(model)) == ["weight", "bias", "whole", "again", "part"]


def test_parts_of_one_storage_that_share_nothing_are_apart() -> None:
    flat = torch.ones(12)
    assert names(Pair(flat[:6], flat[6:])) == {"one": [], "other": []}
    matrix = torch.ones(4, 6)
    assert names(Pair(matrix[:, :3], matrix[:, 3:])) == {"one": [], "other": []}
    assert names(Pair(matrix[:, 0::2], matrix[:, 1::2])) == {"one": [], "other": []}


MATRIX = torch.ones(4, 4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (MATRIX, MATRIX[1:]),
        (MATRIX[:3], MATRIX[2:]),
        (MATRIX[:, :3], MATRIX[:, 2:]),
        (MATRIX, MATRIX.t()),
        (MATRIX, MATRIX.view(16)),
        (MATRIX, MATRIX.view(torch.bfloat16)),
        (MATRIX[2:], MATRIX[:3]),
    ],
)
def test_a_shared_part_is_refused_and_both_are_named(one: torch.Tensor, other: torch.Tensor) -> None:
    model = nn.Sequential(Pair(torch.ones(3), MATRIX.clone()), Pair(one, other))
    with pytest.raises(RuntimeError, match=r"capture\.memory-overlaps") as refused:
        collected(model)
    assert all(name in str(refused.value) for name in ("1.one", "1.other", "Tie them as one Parameter"))
    assert "0." not in str(refused.value)


def test_a_buffer_in_a_part_of_a_parameter_is_refused() -> None:
    model = nn.Linear(4, 4)
    model.register_buffer("row", model.weight.detach()[1])
    with pytest.raises(RuntimeError, match=r"row .* memory of weight .*\[capture\.memory-overlaps\]"):
        collected(model)


def test_tensors_without_memory_share_none() -> None:
    freed = [torch.ones(3) for _ in range(2)]
    for each in freed:
        each.untyped_storage().resize_(0)  # as sharded parameters are between their uses
    meta = (torch.ones(3, device="meta") for _ in range(2))
    base = torch.ones(4)
    for one, other in (freed, meta, (base[:0], base[:0]), (base, base[2:2])):
        assert names(Pair(one, other)) == {"one": [], "other": []}


def test_an_untied_parameter_is_refused_until_the_model_is_wrapped_anew() -> None:
    pair = tied_pair(2, 2)
    held, _ = vector_of(pair)
    again: Any = Wrapped(pair)
    assert held.changes() == [] and held.covers(again, {})
    pair.one.data = pair.other.data = torch.zeros(2, 2)
    assert held.changes() == [], "both have moved"
    pair.other.data = torch.zeros(2, 2)
    with pytest.raises(RuntimeError, match=r"other lay in the memory of one .*\[capture\.untied\]"):
        held.changes()
    third: Any = Wrapped(pair)
    assert not held.covers(third, {}), "it begins another generation"
    assert names(pair) == {"one": [], "other": []}


def take(held: Vector) -> list[str]:
    changes = held.changes()
    held.take(changes)
    return [entry.name for _, entry, _ in changes]


def test_new_objects_in_one_memory_are_followed() -> None:
    pair = tied_pair(2, 2)
    held, _ = vector_of(pair)
    shared = torch.zeros(2, 2)
    pair.load_state_dict({"one": shared, "other": shared.view(2, 2)}, assign=True)
    assert take(held) == ["one"] and take(held) == []
    assert held.ids == {id(pair.one), id(pair.other)} and pair.one is not pair.other
    pair.other = nn.Parameter(pair.one.data)
    held.look_again()
    assert take(held) == [] and held.ids == {id(pair.one), id(pair.other)}
    pair.other = pair.one
    held.look_again()
    assert take(held) == [] and held.ids == {id(pair.one)}, "tied as one Parameter by now"
    pair.one.data = torch.zeros(2, 2)
    assert take(held) == []


def test_new_parameter_objects_are_refused_if_untied_or_unknown_to_ddp() -> None:
    pair = tied_pair(2, 2)
    held, _ = vector_of(pair)
    pair.other = nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(RuntimeError, match=r"\[capture\.untied\]"):
        held.changes()
    pair = tied_pair(2, 2)
    held, _ = vector_of(pair, ranks=2)
    pair.other = nn.Parameter(pair.one.data)
    with pytest.raises(RuntimeError, match=r"other is not the Parameter object .*\[capture\.parameter-replaced\]"):
        held.changes()


def test_a_functional_call_is_no_change() -> None:
    pair = tied_pair(2, 2)
    held, _ = vector_of(pair)
    stood = pair._parameters["one"]
    pair._parameters["one"] = torch.zeros(2, 2)  # type: ignore[assignment]
    assert held.changes() == []
    pair._parameters["one"] = stood
    assert held.changes() == [] and held.ids == {id(pair.one), id(pair.other)}


def test_optimizer_state_is_served_for_each_parameter_that_shares_memory() -> None:
    pair = tied_pair(2, 2)
    held, _ = vector_of(pair)
    optimizer = torch.optim.Adam(pair.parameters())
    for each in pair.parameters():
        each.grad = torch.ones_like(each)
    optimizer.step()
    text, data = optimizer_copy.make([optimizer], held.trained)
    assert None not in optimizer_copy.parts_of(text, [n for _, n in held.trained])
    assert len(data) == 2 * 2 * 4 * 2  # objects, moments, elements, bytes of bfloat16


@pytest.mark.slow
def test_a_round_behind_the_training_moves_one_memory_once(tmp_path: Path) -> None:
    environment = {"COLLAB_OVERLAP": "1", "COLLAB_SYNC_EVERY": "4", "COLLAB_CODEC": "fp32"}
    for way in ("parameter", "data"):
        expect_success(run_ranks("one_memory.py", ["a", "b"], str(tmp_path), way, environment=environment))

    def weights(way: str, when: str) -> list[torch.Tensor]:
        return [torch.load(tmp_path / f"{way}-{when}{rank}.pt")["one.weight"] for rank in range(2)]

    before, merged = weights("parameter", "before"), weights("parameter", "merged")
    assert not torch.allclose(merged[0], merged[1], atol=1e-4), "half of what the sites differed by stays"
    for rank in range(2):
        mean = (before[0] + before[1]) / 2
        assert torch.allclose(merged[rank], (before[rank] + mean) / 2, atol=1e-5)
        assert torch.allclose(weights("data", "merged")[rank], merged[rank], atol=1e-5)
