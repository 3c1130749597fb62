"""Whether the script had loaded a state (a checkpoint) before it trains: the swarm then begins with its model.

There are two signs. One is a module's `load_state_dict`, watched from `init_process_group` on, if that module is part
of the vector at a generation's first training forward: the module that DDP wraps, a part of it, a module that contains
it, or the DDP itself. The other is an optimizer of the vector that has state before it ever stepped here. A model that
was loaded before `init_process_group`, without an optimizer, looks like a fresh one (COLLAB_INIT_FROM).
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from torch_collab import torch_compat
from torch_collab.model import optimizer_copy

if TYPE_CHECKING:
    from torch_collab.model.entry import Entry
    from torch_collab.world.state import World


def shows(world: World, entries: Sequence[Entry]) -> bool:
    """Whether this rank has loaded a state; asked at a generation's first training forward."""
    modules = world.loads.noted()
    trained = frozenset(id(each.tensor) for entry in entries for each in (entry, *entry.tied) if each.trained)
    # A load into frozen parameters alone (a backbone) does not count: these are the same at all sites.
    held = (tensor for module in modules for slots in torch_compat.slots_of(module) for tensor in slots.values())
    return any(id(tensor) in trained for tensor in held) or any(
        _has_stepped(optimizer, trained) for optimizer in _optimizers()
    )


def _optimizers() -> list[torch.optim.Optimizer]:
    """All living optimizers. Looks only at each object's type: a proxy may do anything when asked for more."""
    kinds, left = set(), [torch.optim.Optimizer]
    while left:
        kind = left.pop()
        kinds.add(id(kind))
        left.extend(kind.__subclasses__())
    return [thing for thing in gc.get_objects() if id(type(thing)) in kinds]


def _has_stepped(optimizer: torch.optim.Optimizer, trained: frozenset[int]) -> bool:
    """Whether it has stepped, or got the state of one that had. Some (Adagrad) begin with state, and 0 steps."""
    held = getattr(optimizer, "state", None)
    if not isinstance(held, Mapping):
        return False
    kept = [of_one for parameter, of_one in held.items() if id(parameter) in trained]
    try:
        return any(isinstance(of_one, Mapping) and not optimizer_copy.is_fresh(of_one) for of_one in kept)
    except Exception:  # a third-party optimizer with another kind of state
        return False
