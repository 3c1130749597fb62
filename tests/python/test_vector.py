"""The vector follows objects that the script puts in the place of its tensors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch_collab.capture import forward
from torch_collab.model.entry import Entry
from torch_collab.model.vector import Vector, collect


class Wrapped(torch.nn.Module):
    """As much of DistributedDataParallel as a vector looks at."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module


class Run:
    failed = False

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_however_many_are_replaced_the_modules_are_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(50)))
    ddp: Any = Wrapped(model)
    vector = Vector([ddp], [Entry(name, held, True) for name, held in model.named_parameters()], 1)
    walks: list[int] = []
    index = Vector._index
    monkeypatch.setattr(Vector, "_index", lambda self: (walks.append(1), index(self)))
    replaced: list[tuple[int, torch.Tensor]] = []
    world: Any = SimpleNamespace(
        run=Run(),
        is_leader=False,
        training=SimpleNamespace(
            vector=vector,
            session=SimpleNamespace(replace_tensor=lambda position, tensor: replaced.append((position, tensor))),
        ),
    )
    forward._follow_parameters(world)
    assert not walks and not replaced
    before = vector.version
    model.load_state_dict({name: torch.ones_like(held) for name, held in model.named_parameters()}, assign=True)
    forward._follow_parameters(world)
    assert len(walks) == 1
    assert [position for position, _ in replaced] == list(range(100))
    assert all(told is held for (_, told), held in zip(replaced, model.parameters(), strict=True))
    assert all(mine is held for mine, held in zip(vector.parameters, model.parameters(), strict=True))
    assert vector.version != before and vector.changes() == []


def test_float64_that_rounds_would_shorten_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("torch_collab.log.warn_once", said.append)
    ddp: Any = Wrapped(torch.nn.Linear(2, 1))
    collect([ddp], {}, with_buffers=True)
    assert said == []
    ddp.module.double()
    collect([ddp], {}, with_buffers=True)
    assert said == [
        "weight, bias are float64, but rounds are computed in float32: each round rounds the values to 24 bits "
        "[capture.float64]"
    ]
