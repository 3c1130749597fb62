"""Counts the samples that a forward has seen: dimension 0 of the first tensor among its arguments, or the length of a
list of samples (as detectors take it).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch


def first_dimension(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Dimension 0 of the first tensor of at least one dimension, searched depth first in order; 1 without any."""
    given = (*args, *kwargs.values())
    labelled = {len(value) for value in given if _is_list_of(value, Mapping)}
    for value in given:
        if _are_samples(value) or (_is_list_of(value, torch.Tensor) and len(value) in labelled):
            return len(value)
        tensor = _first_tensor(value)
        if tensor is not None:
            return int(tensor.shape[0])
    return 1


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(each, kind) for each in value)


def _are_samples(value: Any) -> bool:
    """True if each mapping is one sample: it has numbers or strings beside tensors, or the tensors' sizes differ.

    Mappings that are parts of one batch (queries and answers, say) hold tensors alone, all of the batch's size.
    """
    if not _is_list_of(value, Mapping):
        return False
    entries = [entry for each in value for entry in each.values()]
    sizes = {entry.shape[0] for entry in entries if isinstance(entry, torch.Tensor) and entry.dim() > 0}
    return len(sizes) > 1 or any(isinstance(entry, (str, int, float)) for entry in entries)


def _first_tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value if value.dim() > 0 else None
    if isinstance(value, Mapping):
        items = list(value.values())
    elif isinstance(value, (list, tuple)):
        items = list(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [getattr(value, field.name) for field in dataclasses.fields(value)]
    else:
        return None
    for item in items:
        found = _first_tensor(item)
        if found is not None:
            return found
    return None


class SampleCounter:
    """This rank's samples since the last step. A count by the script itself replaces the one from the forwards."""

    def __init__(self) -> None:
        self._trained: int | None = None  # from forwards in training mode; None: there was none
        self._looked_at = 0  # from forwards in eval mode with gradients: an evaluation, or training in that mode
        self._told: int | None = None

    def saw(self, n: int, in_training_mode: bool = True) -> None:
        if in_training_mode:
            self._trained = n + (self._trained or 0)
        else:
            self._looked_at += n

    def tell(self, n: int) -> None:
        if n < 0:
            raise ValueError(f"collab: count_samples({n}): a number of samples cannot be negative [capture.samples]")
        self._told = n if self._told is None else self._told + n

    def take(self) -> int:
        """Called at a step of the model. A step without any seen forward weighs something, too."""
        seen = self._looked_at if self._trained is None else self._trained
        count = max(1, seen) if self._told is None else self._told
        self._trained, self._looked_at, self._told = None, 0, None
        return count
