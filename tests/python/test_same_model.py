"""What of two models is compared between sites."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch_collab import log, native
from torch_collab.swarm import same_model
from torch_collab.swarm.same_model import _everyone_who_comes
from torch_collab.world.topology import Site, Sites


class Quantised(torch.Tensor):
    """As weights of 8 bits are: made of two others, with no memory of its own."""

    @staticmethod
    def __new__(cls, values: torch.Tensor, scale: torch.Tensor) -> Quantised:
        made: Quantised = torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=torch.float32)
        made.values, made.scale = values, scale
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["values", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert function is torch.ops.aten.detach.default
        return cls(args[0].values, args[0].scale)


class Opaque(Quantised):
    __tensor_flatten__ = property()  # says nothing


def test_the_parts_of_a_composite_tensor_are_compared() -> None:
    values, scale = torch.arange(6, dtype=torch.int8).reshape(2, 3), torch.tensor([0.5, 2.0])
    told = native.digest(Quantised(values, scale))
    assert len(told) == 32 and told == native.digest(Quantised(values.clone(), scale.clone()))
    assert told != native.digest(Quantised(values + 1, scale)) and told != native.digest(Quantised(values, scale + 1))


def test_a_tensor_without_accessible_memory_is_refused() -> None:
    with pytest.raises(TypeError, match=r"tensor of Opaque has no memory of its own.*\[capture\.no-memory\]"):
        native.digest(Opaque(torch.ones(3, dtype=torch.int8), torch.ones(1)))
    assert native.digest(torch.empty(0)) == native.digest(torch.empty(0))


def test_a_comparison_of_models_says_for_which_site_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    told = threading.Event()
    monkeypatch.setattr(same_model, "_SAY_SECONDS", 0.0)
    monkeypatch.setattr(log, "_say", lambda level, text: (said.append(text), told.set()))
    sites = (Site("paris", (0,)), Site("tokyo", (1,)))
    world: Any = SimpleNamespace(info=SimpleNamespace(sites=Sites(sites), site=sites[0]), is_leader=True)
    with same_model._said_after_a_while(world, timedelta(seconds=300)):
        assert told.wait(20)
    assert "forward at tokyo," in said[0] and "for at most 300 s" in said[0], said


OURS, TOKYOS = "base [2] frozen a1", "base [2] frozen b2"


@pytest.mark.parametrize(
    ("theirs", "gone", "told"),
    [(OURS, False, []), (TOKYOS, False, [OURS, TOKYOS]), ("base [3] frozen b2", False, []), (TOKYOS, True, [])],
    ids=["alike", "other values", "another model", "gone"],
)
def test_first_members_compare_frozen_values_and_leave_the_rest_to_the_join(
    theirs: str, gone: bool, told: list[str]
) -> None:
    def gather(what: str, mine: bytes, limit: timedelta) -> list[bytes]:
        if gone:
            raise RuntimeError("rank 1 of tokyo is gone")
        text = json.dumps([[theirs], "", False]).encode()
        other = {"models": mine if theirs == OURS else bytes(32), "sizes": len(text).to_bytes(8, "big")}
        return [mine, other.get(what, text.ljust(len(mine)))]

    sites = Sites((Site("paris", (0,)), Site("tokyo", (1,))))
    world: Any = SimpleNamespace(info=SimpleNamespace(sites=sites), hub=SimpleNamespace(gather=gather))
    everyone = _everyone_who_comes(world, [[OURS], "", False], timedelta(seconds=1))
    assert [lines for lines, _, _ in everyone] == [[line] for line in told]
