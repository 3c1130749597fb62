"""Modules of the script since the last generation began: the DDPs that it made, and what it loaded a state into."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

from torch import nn

from torch_collab import torch_compat

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel


class Ddps:
    def __init__(self) -> None:
        self._new: list[weakref.ref[DistributedDataParallel]] = []  # that are in no vector yet
        # What each was made to train, by id(); in the order of construction, which is the same at every rank.
        self.constructed: weakref.WeakKeyDictionary[DistributedDataParallel, frozenset[int]] = (
            weakref.WeakKeyDictionary()
        )

    def add(self, ddp: DistributedDataParallel, module: nn.Module) -> None:
        """It is being constructed around `module`."""
        self._new.append(weakref.ref(ddp))
        self.constructed[ddp] = frozenset(
            id(each) for name, each in module.named_parameters() if each.requires_grad and not is_ignored(module, name)
        )

    def made_since(self, ddp: DistributedDataParallel) -> list[DistributedDataParallel]:
        """Those that were constructed since the last generation began, in that order; `ddp` is one of them."""
        # A discarded DDP may live on in a reference cycle, at one rank and not at another.
        gc.collect()
        made = [each for each in (ref() for ref in self._new) if each is not None]
        return made if any(each is ddp for each in made) else [*made, ddp]

    def is_new(self, ddp: DistributedDataParallel) -> bool:
        return any(ref() is ddp for ref in self._new)

    def join(self, ddp: DistributedDataParallel) -> None:
        """It is part of the vector that is trained."""
        self._new = [ref for ref in self._new if ref() is not ddp]

    def begin_generation(self) -> None:
        self._new.clear()


def parts_of(module: nn.Module) -> dict[int, nn.Module]:
    """All, itself among them, by id(): a module may define __eq__ and have no hash."""
    parts: dict[int, nn.Module] = {}
    left = [module]
    while left:
        part = left.pop()
        if id(part) not in parts:
            parts[id(part)] = part
            left.extend(torch_compat.children_of(part))
    return parts


def is_ignored(module: nn.Module, name: str) -> bool:
    """Whether a DDP around `module` leaves this parameter or buffer of it alone."""
    names = torch_compat.ignored_by_ddp(module)
    return name in names or (bool(names) and "." not in name and f".{name}" in names)


class Loads:
    def __init__(self) -> None:
        self._parts: dict[int, weakref.ref[nn.Module]] = {}

    def note(self, module: nn.Module) -> None:
        # All its parts: what holds them may be gone by then.
        self._parts.update((key, weakref.ref(part)) for key, part in parts_of(module).items())

    def noted(self) -> list[nn.Module]:
        """Those that are there still."""
        return [module for module in (ref() for ref in self._parts.values()) if module is not None]

    def take(self) -> list[nn.Module]:
        """Likewise. The notes are needed no longer."""
        noted = self.noted()
        self._parts.clear()
        return noted
