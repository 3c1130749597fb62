"""Finds optimizers that keep their own copy of the parameters (fp32 masters, slow weights) and undo rounds with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torch_collab.model.optimizer_copy import PLAIN

# With momentum, the step after H steps moves on by about 1/H of their way; after few steps that is too much.
LEAST_STEPS = 5
_LEAST_VALUES = 16
_BAND = (0.5, 1.5)  # how much of the round's change is undone after one step
_SHARE = 0.6  # of the values
_IN_A_ROW = 2

_LOOKS = 4  # looks at the optimizers: slow weights appear only after a few steps
_TENSORS = 4
_ELEMENTS = 4096
_NEARER = 0.9


class UndoneRounds:
    """Checks one step after a round whether its change was undone.

    For each value this is the part of the round's change that was taken back. With masters it is 1, give or take a
    step. After an ordinary step few values lie within the bounds, whatever its size and direction.
    """

    def __init__(self) -> None:
        self._round: tuple[Tensor, Tensor] | None = None
        self._in_a_row = 0
        self._told = False
        self._looks = 0
        self._copies: list[_Copy] = []  # copies in optimizers' states, seen at the last round

    def round(self, before: Tensor | None, after: Tensor | None, steps: int) -> None:
        """The values before and after a round that followed so many steps."""
        fits = before is not None and after is not None and before.shape == after.shape and steps >= LEAST_STEPS
        self._round = (before, after) if fits and not self._told else None

    def step(self, values: Tensor | None) -> bool:
        """Takes the values after a step. True, only once: two rounds in a row were undone."""
        for copy in self._copies:
            copy.step()
        held, self._round = self._round, None
        if held is None or values is None or values.shape != held[0].shape:
            return False
        before, after, now = (each.cpu().double() for each in (*held, values))
        changed = before != after
        if int(changed.sum()) < _LEAST_VALUES:
            return False
        back = ((now - after) / (before - after))[changed]
        share = ((back > _BAND[0]) & (back < _BAND[1])).double().mean()
        self._in_a_row = self._in_a_row + 1 if share >= _SHARE else 0
        if self._in_a_row < _IN_A_ROW or self._told:
            return False
        self._told = True
        return True

    def keeper(self, optimizers: Any) -> tuple[str, str] | None:
        """Called at a round. Returns (class, name of the state) of an optimizer whose state holds a copy of its
        parameters and that went on from this copy after the previous round; only once."""
        found = next(((copy.kind, copy.name) for copy in self._copies if copy.kept), None)
        self._copies = []
        if self._told or self._looks == _LOOKS:
            return None
        if found is not None:
            self._told = True
            return found
        self._looks += 1
        named = ((optimizer, copy_kept_by(optimizer)) for optimizer in optimizers)
        self._copies = [_Copy(optimizer, name) for optimizer, name in named if name]
        return None


class _Copy:
    """A state that is close to its parameters at a round. One step later it is nearer either to its old values (a copy
    that is kept) or to the round's result: some optimizers rewrite it from the parameters in each step (SAM)."""

    def __init__(self, optimizer: Any, name: str) -> None:
        self.kind, self.name = type(optimizer).__name__, name
        self.kept = False
        self._state: Mapping[Any, Any] | None = optimizer.state
        held = [p for p, of_one in optimizer.state.items() if isinstance(of_one, Mapping) and name in of_one]
        self._parameters = held[:_TENSORS]
        self._then = self._read()
        self._brought = torch.cat([_head(parameter) for parameter in self._parameters])

    def _read(self) -> Tensor | None:
        held = self._state
        if held is None or not all(isinstance(held.get(p, {}).get(self.name), Tensor) for p in self._parameters):
            return None
        return torch.cat([_head(held[p][self.name]) for p in self._parameters])

    def step(self) -> None:
        """The first step after the round decides."""
        now, then = self._read(), self._then
        self._state, self._then, self._parameters = None, None, []
        if now is not None and then is not None and now.shape == then.shape == self._brought.shape:
            self.kept = bool((now - then).norm() < _NEARER * (now - self._brought).norm())


def _head(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1)[:_ELEMENTS].float().cpu().clone()


def copy_kept_by(optimizer: Any) -> str:
    """The name of a state that is close to its parameters; "": none. Moments are nowhere near them."""
    held = getattr(optimizer, "state", None)
    if not isinstance(held, Mapping):
        return ""
    if all(callable(getattr(optimizer, name, None)) for name in ("train", "eval")) and any(
        isinstance(of_one, Mapping) and "z" in of_one for of_one in held.values()
    ):
        return "z"  # schedule-free: it runs ahead of the trained parameters, and is soon far from them
    looked = 0
    names: set[str] | None = None
    for parameter, of_one in list(held.items()):
        if not isinstance(parameter, Tensor) or parameter.dim() < 2 or not isinstance(of_one, Mapping):
            continue
        close = {str(name) for name, value in of_one.items() if _is_close(value, parameter)}
        names = close if names is None else names & close
        looked += 1
        if looked == _TENSORS or not names:
            break
    names = names or set()
    if isinstance(optimizer, torch.optim.ASGD):
        names.discard("ax")  # an average that the optimizer never reads
    return min(names, default="")


def _is_close(value: Any, parameter: Tensor) -> bool:
    if type(value) not in PLAIN or value.shape != parameter.shape or not value.is_floating_point():
        return False
    of, at = _head(value), _head(parameter)
    return bool((of - at).norm() < 0.5 * at.norm())
