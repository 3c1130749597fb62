"""Modules of the script since the last generation began: the DDPs that it made, and those it loaded a state into."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import nn

from torch_collab import torch_compat

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel


class Ddps:
    def __init__(self) -> None:
        self._new: list[weakref.ref[DistributedDataParallel]] = []  # DDPs that are in no vector yet
        # What each DDP was made to train, by id(); in the order of construction, which is the same at every rank.
        self.constructed: weakref.WeakKeyDictionary[DistributedDataParallel, frozenset[int]] = (
            weakref.WeakKeyDictionary()
        )

    def add(self, ddp: DistributedDataParallel, module: nn.Module) -> None:
        """`ddp` is being constructed around `module`."""
        self._new.append(weakref.ref(ddp))
        self.constructed[ddp] = frozenset(
            id(each) for name, each in module.named_parameters() if each.requires_grad and not is_ignored(module, name)
        )

    def made_since(self, ddp: DistributedDataParallel) -> list[DistributedDataParallel]:
        """The DDPs that were constructed since the last generation began, in that order; `ddp` is one of them."""
        # A discarded DDP may live on in a reference cycle, at one rank and not at another.
        gc.collect()
        made = [each for each in (ref() for ref in self._new) if each is not None]
        return made if any(each is ddp for each in made) else [*made, ddp]

    def none_lives(self) -> bool:
        """No DDP that was constructed here is alive."""
        if self.constructed:
            gc.collect()  # see made_since()
        return not self.constructed

    def is_new(self, ddp: DistributedDataParallel) -> bool:
        return any(ref() is ddp for ref in self._new)

    def join(self, ddp: DistributedDataParallel) -> None:
        """`ddp` becomes part of the vector that is trained."""
        self._new = [ref for ref in self._new if ref() is not ddp]

    def begin_generation(self) -> None:
        self._new.clear()


# If so many steps in a row train only a copy, that copy is the model that the script trains from here on.
COPY_ALONE = 50


class Copies:
    """Copies of DDPs that were called in training, and whose construction was not seen: averages of weights, teachers,
    copies for the tasks of a meta-learner. They stay the script's own until it trains one of them alone for long."""

    def __init__(self) -> None:
        self._seen: list[tuple[weakref.ref[DistributedDataParallel], list[int]]] = []  # and steps of its optimizers

    def called(self, copy: DistributedDataParallel) -> bool:
        """True if the copy was called for the first time."""
        known = next((each for each in self._seen if each[0]() is copy), None)
        self._seen = [each for each in self._seen if each[0]() not in (None, copy)]
        self._seen.append(known or (weakref.ref(copy), [0]))
        return known is None

    def stepped(self, optimizer: Any, constructed: Iterable[frozenset[int]]) -> DistributedDataParallel | None:
        """Called before an optimizer steps that trains nothing of the vector. Returns the copy that is trained by now.
        `constructed`: id() of what each DDP was made to train."""
        if not self._seen:
            return None
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for ref, steps in self._seen:
            copy = ref()
            if copy is not None and any(id(parameter) in held for parameter in copy.parameters()):
                steps[0] += 1
                return copy if steps[0] >= COPY_ALONE else None
        if any(not held.isdisjoint(trained) for trained in constructed):
            self.others_stepped()
        return None

    def others_stepped(self) -> None:
        for _, steps in self._seen:
            steps[0] = 0

    def begin_generation(self) -> None:
        self._seen.clear()


def parts_of(module: nn.Module) -> dict[int, nn.Module]:
    """All submodules and `module` itself by id(), because a module may define __eq__ and have no hash."""
    parts: dict[int, nn.Module] = {}
    left = [module]
    while left:
        part = left.pop()
        if id(part) not in parts:
            parts[id(part)] = part
            left.extend(torch_compat.children_of(part))
    return parts


def is_ignored(module: nn.Module, name: str) -> bool:
    """Whether a DDP around `module` ignores this parameter or buffer of it."""
    names = torch_compat.ignored_by_ddp(module)
    return name in names or (bool(names) and "." not in name and f".{name}" in names)


class Loads:
    def __init__(self) -> None:
        self._parts: dict[int, weakref.ref[nn.Module]] = {}

    def note(self, module: nn.Module) -> None:
        # Note all parts: the module that holds them may be gone by then.
        self._parts.update((key, weakref.ref(part)) for key, part in parts_of(module).items())

    def noted(self) -> list[nn.Module]:
        """The noted modules that are still alive."""
        return [module for module in (ref() for ref in self._parts.values()) if module is not None]

    def take(self) -> list[nn.Module]:
        """The same, and forgets them."""
        noted = self.noted()
        self._parts.clear()
        return noted
