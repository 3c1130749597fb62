"""Whether the script had loaded a state, a checkpoint's, by the time it trains: the swarm then begins with its model.

Two things show it. A module's `load_state_dict`, watched from `init_process_group` on, when what it loaded into is part
of the vector at the first training forward of a generation: the module that DDP wraps, a part of it, what contains it,
the DDP itself. And an optimizer of the vector that has state before it has ever stepped here. A model that was loaded
before `init_process_group`, and no optimizer with it, cannot be told from a fresh one (COLLAB_INIT_FROM).
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
    """At the first training forward of a generation, of this rank."""
    modules = world.loads.noted()
    trained = frozenset(id(each.tensor) for entry in entries for each in (entry, *entry.tied) if each.trained)
    # What was loaded into frozen parameters alone, a backbone's, is the same at all sites.
    held = (tensor for module in modules for slots in torch_compat.slots_of(module) for tensor in slots.values())
    return any(id(tensor) in trained for tensor in held) or any(
        _has_stepped(optimizer, trained) for optimizer in _optimizers()
    )


def _optimizers() -> list[torch.optim.Optimizer]:
    """All that live. Of each object only the type is asked: what stands in for others may do anything when asked."""
    kinds, left = set(), [torch.optim.Optimizer]
    while left:
        kind = left.pop()
        kinds.add(id(kind))
        left.extend(kind.__subclasses__())
    return [thing for thing in gc.get_objects() if id(type(thing)) in kinds]


def _has_stepped(optimizer: torch.optim.Optimizer, trained: frozenset[int]) -> bool:
    """Or was given the state of one that had. Some have state from the start (Adagrad), with a count of 0 steps."""
    held = getattr(optimizer, "state", None)
    if not isinstance(held, Mapping):
        return False
    kept = [of_one for parameter, of_one in held.items() if id(parameter) in trained]
    try:
        return any(isinstance(of_one, Mapping) and not optimizer_copy.is_fresh(of_one) for of_one in kept)
    except Exception:  # an optimizer of somebody else's, whose state is of another kind
        return False
