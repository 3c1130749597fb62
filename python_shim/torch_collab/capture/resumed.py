"""Notes what a script loads, for the first training forward and for later rounds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_collab import torch_compat
from torch_collab.model.modules import parts_of
from torch_collab.swarm import loaded
from torch_collab.world import state

if TYPE_CHECKING:
    from torch_collab.model.entry import Entry
    from torch_collab.world.state import World


def watch_loads(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces `torch.nn.Module.load_state_dict`: does the same, and notes the module's parts."""

    @functools.wraps(original)
    def load_state_dict(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        # For a compiler that traces this function these are constants, so that it sees nothing but the call.
        if not torch.compiler.is_compiling() and (world := state.current()) is not None:
            _before_load(world, self)
        loaded = original(self, *args, **kwargs)
        if not torch.compiler.is_compiling() and (world := state.current()) is not None:
            world.loads.note(self)
        return loaded

    return load_state_dict


def _before_load(world: World, module: torch.nn.Module) -> None:
    vector = world.training.vector
    if vector is None or world.run.finished:
        return
    held = (slots.values() for part in parts_of(module).values() for slots in torch_compat.slots_of(part))
    if any(id(tensor) in vector.ids for tensors in held for tensor in tensors):
        vector.values.before_load(world.training.unseen.steps)
        vector.frozen.forget()


def seen(world: World, entries: Sequence[Entry]) -> bool:
    """Asked at a generation's first training forward. Only the answer of the site's leader counts; False elsewhere."""
    shown = world.is_leader and loaded.shows(world, entries)
    world.loads.take()
    return shown
