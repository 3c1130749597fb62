"""A tensor of the DDP modules, as sites compare it: of the vector that they average, or beside it."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Entry:
    name: str
    tensor: torch.Tensor
    trained: bool  # part of the vector; else frozen or left out, and compared at join only
    buffer: bool = False
    left_out: bool = False  # a buffer of which each site keeps its own values
    tied: tuple[Entry, ...] = ()  # others that lie in the very same memory: no part of the vector, which moves it once

    @property
    def parameters(self) -> list[torch.Tensor]:
        """What is trained there: the objects that a DDP and its optimizer know."""
        return [each.tensor for each in (self, *self.tied) if each.trained and not each.buffer]

    @property
    def kind(self) -> str:
        return "left out" if self.left_out else "averaged" if self.trained else "frozen"

    def describe(self) -> str:
        what = self.kind if self.left_out else "buffer" if self.buffer else "trained" if self.trained else "frozen"
        return f"{self.name} {str(self.tensor.dtype).removeprefix('torch.')} {list(self.tensor.shape)} {what}"
