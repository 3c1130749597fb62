"""Optimizers that keep parameters of their own (fp32 masters, slow weights) and go on from those after a round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torch_collab.model.optimizer_copy import PLAIN

# A step of momentum goes on where the steps before it went: of H of them it is about 1/H, of fewer too much.
LEAST_STEPS = 5
_LEAST_VALUES = 16
_BAND = (0.5, 1.5)  # of what the round changed, that is back after one step
_SHARE = 0.6  # of the values
_IN_A_ROW = 2

_LOOKS = 4  # slow weights are made after a few steps
_TENSORS = 4
_ELEMENTS = 4096


class UndoneRounds:
    """One step after a round: is what it changed changed back?

    Value by value: the share of what the round changed that is back. With masters that is 1, give or take a step. An
    ordinary step, small or large against the round's change, has few values between the bounds, whatever its direction.
    """

    def __init__(self) -> None:
        self._round: tuple[Tensor, Tensor] | None = None
        self._in_a_row = 0
        self._told = False
        self._looks = 0

    def round(self, before: Tensor | None, after: Tensor | None, steps: int) -> None:
        """Values before and after a round that came of so many steps."""
        fits = before is not None and after is not None and before.shape == after.shape and steps >= LEAST_STEPS
        self._round = (before, after) if fits and not self._told else None

    def step(self, values: Tensor | None) -> bool:
        """The values after a step. True: two rounds in a row were undone, told once."""
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
        """(class, name of the state) of an optimizer whose state holds a copy of its parameters; told once."""
        if self._told or self._looks == _LOOKS:
            return None
        self._looks += 1
        for optimizer in optimizers:
            if name := copy_kept_by(optimizer):
                self._told = True
                return type(optimizer).__name__, name
        return None


def copy_kept_by(optimizer: Any) -> str:
    """The name of a state that lies close to the parameters it is of; "": none. A moment is nowhere near them."""
    held = getattr(optimizer, "state", None)
    if not isinstance(held, Mapping):
        return ""
    if all(callable(getattr(optimizer, name, None)) for name in ("train", "eval")) and any(
        isinstance(of_one, Mapping) and "z" in of_one for of_one in held.values()
    ):
        return "z"  # schedule-free: it runs ahead of what is trained, soon far
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
        names.discard("ax")  # an average that it never reads
    return min(names, default="")


def _is_close(value: Any, parameter: Tensor) -> bool:
    if type(value) not in PLAIN or value.shape != parameter.shape or not value.is_floating_point():
        return False
    of, at = (each.detach().reshape(-1)[:_ELEMENTS].float().cpu() for each in (value, parameter))
    return bool((of - at).norm() < 0.5 * at.norm())
