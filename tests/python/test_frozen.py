"""Frozen parameters that a script changes while it trains: sites do not average them, and the log says so."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch_collab.capture import resumed
from torch_collab.model.frozen import FrozenValues
from torch_collab.model.modules import Loads
from torch_collab.model.values import Values
from torch_collab.world import state

Named = list[tuple[str, torch.Tensor]]


def frozen(count: int = 3) -> Named:
    torch.manual_seed(0)
    return [(f"base{at}", nn.Parameter(torch.randn(8, 4), requires_grad=False)) for at in range(count)]


def change(tensor: torch.Tensor) -> None:
    tensor.add_(0.01)


def move(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data.double()


def halve(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data.half()


def copy(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data.clone()


def merge_into_a_copy(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data + 0.01


def let_go(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data[:0]


def free(tensor: torch.Tensor) -> None:
    tensor.untyped_storage().resize_(0)


def test_a_change_is_reported_once_with_a_name() -> None:
    named, values = frozen(), FrozenValues()
    values.before_forward(named)
    assert values.after_round(named, alike=True) == ""
    values.before_forward(named)
    change(named[1][1])
    assert values.after_round(named, alike=True) == "base1"
    values.before_forward(named)
    change(named[1][1])
    assert values.after_round(named, alike=True) == "", "it was told"


@pytest.mark.parametrize("count", [1, 64, 65, 300])
def test_values_are_spread_over_all_of_them(count: int) -> None:
    """A merge changes every base, a momentum encoder each of its parameters."""
    named, values = frozen(count), FrozenValues()
    named.append(("steps", nn.Parameter(torch.tensor([3]), requires_grad=False)))
    values.before_forward(named)
    for _, tensor in named[:count:2]:
        change(tensor)
    assert values.after_round(named, alike=True) == "base0"


@pytest.mark.parametrize("what", [merge_into_a_copy, copy, move, halve, let_go, free])
@torch.no_grad()
def test_new_storage_is_no_change_but_new_values_in_it_are(what: Callable[[torch.Tensor], None]) -> None:
    named, values = frozen(), FrozenValues()
    values.before_forward(named)
    what(named[2][1])
    assert values.after_round(named, alike=True) == ("base2" if what is merge_into_a_copy else "")
    values.before_forward(named)
    assert values.after_round(named, alike=True) == ""


def test_a_change_while_all_sites_hold_one_model_is_the_same_everywhere() -> None:
    """Right after a round: `dist.barrier()`, then a merge."""
    named, values = frozen(), FrozenValues()
    values.before_forward(named)
    assert values.after_round(named, alike=True) == ""
    change(named[0][1])
    values.before_forward(named)
    assert values.after_round(named, alike=False) == ""
    change(named[0][1])
    values.before_forward(named)
    assert values.after_round(named, alike=True) == "base0", "a round that leaves each site its own model"


def test_a_checkpoint_that_is_loaded_is_no_change() -> None:
    named, values = frozen(), FrozenValues()
    values.before_forward(named)
    change(named[0][1])
    values.forget()
    assert values.after_round(named, alike=True) == ""
    values.before_forward(named)
    assert values.after_round(named, alike=True) == ""


class OnlineAndTarget(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.online, self.target = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)


@pytest.mark.parametrize(("of", "told"), [("", ""), ("target", "target.weight")])
def test_loading_the_trained_model_is_no_change_but_loading_frozen_parts_alone_is(
    monkeypatch: pytest.MonkeyPatch, of: str, told: str
) -> None:
    """The latter is how a target network follows its site's model."""
    model, values = OnlineAndTarget(), FrozenValues()
    named = [(name, each) for name, each in model.named_parameters() if not each.requires_grad]
    ids = frozenset(id(each) for each in model.online.parameters())
    vector = SimpleNamespace(ids=ids, values=Values(), frozen=values)
    training = SimpleNamespace(vector=vector, unseen=SimpleNamespace(steps=0))
    world = SimpleNamespace(training=training, run=SimpleNamespace(finished=False), loads=Loads())
    monkeypatch.setattr(state, "current", lambda: world)
    values.before_forward(named)
    load, loaded = resumed.watch_loads(nn.Module.load_state_dict), model.get_submodule(of)
    load(loaded, {name: held + 1 for name, held in loaded.state_dict().items()})
    assert values.after_round(named, alike=True) == told


@pytest.mark.parametrize(("undone", "told"), [("unmerged", "base0"), ("loaded", "")])
@torch.no_grad()
def test_an_undone_merge_leaves_rounding_and_a_reloaded_one_leaves_none(undone: str, told: str) -> None:
    named, values = frozen(), FrozenValues()
    values.before_forward(named)
    before = [tensor.clone() for _, tensor in named]
    merged = [torch.randn(8, 4) for _ in named]
    for (_, tensor), held, adapters in zip(named, before, merged, strict=True):
        tensor.add_(adapters)
        if undone == "unmerged":
            tensor.sub_(adapters)
        else:
            tensor.copy_(held)
    assert values.after_round(named, alike=True) == told


def test_a_tensor_that_now_requires_a_gradient_is_not_compared() -> None:
    named, values = frozen(), FrozenValues()
    values.before_forward(named)
    change(named[0][1])
    assert values.after_round(named[1:], alike=True) == ""


def test_a_vector_without_frozen_parameters_has_nothing_to_say() -> None:
    values = FrozenValues()
    values.before_forward([])
    assert values.after_round([], alike=True) == ""


def dtypes() -> list[torch.dtype]:
    """All of torch's, each once."""
    return sorted({kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}, key=str)


def raw(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def of_kind(kind: torch.dtype) -> torch.Tensor:
    try:
        tensor = torch.empty(64, dtype=torch.uint8).view(kind)
    except RuntimeError:  # no view gives quantized ones
        tensor = torch.empty(64, dtype=kind)
    raw(tensor).zero_()
    return tensor


def per_channel() -> torch.Tensor:
    return torch.quantize_per_channel(torch.zeros(8, 4), torch.ones(8), torch.zeros(8), 0, torch.qint8)


KINDS = {**{str(kind): functools.partial(of_kind, kind) for kind in dtypes()}, "per_channel": per_channel}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_values_of_every_type_of_torchs_are_compared(make: Callable[[], torch.Tensor]) -> None:
    named: Named = [(f"base{at}", nn.Parameter(make(), requires_grad=False)) for at in range(2)]
    values = FrozenValues()
    values.before_forward(named)
    assert values.after_round(named, alike=False) == ""
    raw(named[1][1]).fill_(65)
    assert values.after_round(named, alike=True) == "base1"
