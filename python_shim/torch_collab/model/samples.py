"""How many samples a forward has seen: dimension 0 of the first tensor among its arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch


def first_dimension(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Dimension 0 of the first tensor of at least one dimension, searched depth first in order; 1 without any."""
    tensor = _first_tensor(args)
    if tensor is None:
        tensor = _first_tensor(kwargs)
    return 1 if tensor is None else int(tensor.shape[0])


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
    """Samples of this rank since the last step. What the script counts itself replaces what forwards show."""

    def __init__(self) -> None:
        self._seen = 0
        self._told: int | None = None

    def saw(self, n: int) -> None:
        self._seen += n

    def tell(self, n: int) -> None:
        if n < 0:
            raise ValueError(f"collab: count_samples({n}): a number of samples is not negative [capture.samples]")
        self._told = n if self._told is None else self._told + n

    def take(self) -> int:
        """At a step of the model. What was trained without a forward that was seen weighs something too."""
        count = max(1, self._seen) if self._told is None else self._told
        self._seen, self._told = 0, None
        return count
